//! Times that others find: croner, as far as both languages are one, and a walk over every minute.

use jiff::Zoned;
use proptest::prelude::*;

use super::*;

/// A field within these bounds: a star, a step, a range or some numbers. No `5/15`, which is read
/// in two ways.
fn field(min: u8, max: u8) -> impl Strategy<Value = String> {
    let number = min..=max;
    let range =
        (number.clone(), number.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let stepped = (range.clone(), 1..=9_u8).prop_map(|(range, step)| format!("{range}/{step}"));
    let piece = prop_oneof![number.prop_map(|number| number.to_string()), range, stepped];
    prop_oneof![
        2 => Just("*".to_owned()),
        1 => (2..=30_u8).prop_map(|step| format!("*/{step}")),
        3 => prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.join(",")),
    ]
}

/// With the days of the month, or of the week, or with neither: what both mean together is read in
/// two ways.
fn schedule() -> impl Strategy<Value = String> {
    let days = prop_oneof![
        Just(("*".to_owned(), "*".to_owned())),
        field(1, 28).prop_map(|day| (day, "*".to_owned())),
        field(0, 6).prop_map(|weekday| ("*".to_owned(), weekday)),
    ];
    (field(0, 59), field(0, 23), days, field(1, 12)).prop_map(
        |(minute, hour, (day, weekday), month)| format!("{minute} {hour} {day} {month} {weekday}"),
    )
}

fn moment() -> impl Strategy<Value = Timestamp> {
    let years = 1_500_000_000..2_000_000_000_i64;
    years.prop_map(|second| Timestamp::from_second(second).unwrap())
}

/// The first minute of the next `days` days that matches all fields.
fn by_hand(text: &str, after: Timestamp, zone: &TimeZone, days: i64) -> Option<Timestamp> {
    let fields = Fields::parse(text).unwrap();
    let has = |bits: u64, value: i8| bits & (1 << value) != 0;
    let first = after.as_second().div_euclid(60) + 1;
    (first..first + days * 1440).find_map(|minute| {
        let at = Timestamp::from_second(minute * 60).unwrap();
        let civil = zone.to_datetime(at);
        let weekday = civil.weekday().to_sunday_zero_offset();
        let matches = has(fields.minutes, civil.minute())
            && has(fields.hours, civil.hour())
            && has(fields.months, civil.month())
            && has(fields.days, civil.day())
            && has(fields.weekdays, weekday);
        matches.then_some(at)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn croner_finds_the_same(text in schedule(), after in moment()) {
        let theirs: croner::Cron = text.parse().unwrap();
        let theirs = theirs.find_next_occurrence(&after.to_zoned(TimeZone::UTC), false);
        let ours = Schedule::parse(&text).unwrap().next(after, &TimeZone::UTC);
        prop_assert_eq!(ours, theirs.ok().map(|found: Zoned| found.timestamp()), "{}", text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Also around the nights in which the clock jumps.
    #[test]
    fn no_minute_is_left_out(
        text in schedule(),
        name in prop_oneof![Just("Europe/Berlin"), Just("America/New_York"), Just("Asia/Kolkata"), Just("UTC")],
        after in prop_oneof![
            moment(),
            // 2026-03-29 and 2026-10-25 in Berlin, 2026-03-08 and 2026-11-01 in New York, and two
            // days.
            (prop_oneof![Just(1_774_746_000_i64), Just(1_792_890_000), Just(1_772_953_200), Just(1_793_509_200)], -100_000..100_000_i64)
                .prop_map(|(night, off)| Timestamp::from_second(night + off).unwrap()),
        ],
    ) {
        let zone = zone(name).unwrap();
        let ours = Schedule::parse(&text).unwrap().next(after, &zone);
        if let Some(found) = by_hand(&text, after, &zone, 10) {
            prop_assert_eq!(ours, Some(found), "{} after {} in {}", text, after, name);
        }
    }
}
