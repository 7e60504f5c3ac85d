//! The language, and the times that are due by it.

mod due;
mod oracle;

use super::*;

#[test]
fn good_schedules_are_read() {
    for good in [
        "* * * * *",
        "*/5 0-6,12 1 jan MON-fri",
        "@hourly",
        "@every 1h30m",
        "TZ=UTC 0 0 * * 0",
        "CRON_TZ=Europe/Berlin   0 0 * * 0",
        "TZ=UTC @daily",
        "0 0 ? * *",
        "1,,2 * * * *",
        "*-7 5/15 +5 * *",
    ] {
        assert!(Schedule::parse(good).is_ok(), "{good}");
    }
}

#[test]
fn bad_schedules_say_why() {
    for (bad, expect) in [
        ("", "empty spec string"),
        ("bad", "expected exactly 5 fields, found 1: [bad]"),
        (
            "* * * * * *",
            "expected exactly 5 fields, found 6: [* * * * * *]",
        ),
        ("TZ=UTC", "expected exactly 5 fields, found 0: []"),
        (
            "TZ=Mars/Base * * * * *",
            "provided bad location Mars/Base: unknown time zone Mars/Base",
        ),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        (
            "5-2 * * * *",
            "beginning of range (5) beyond end of range (2): 5-2",
        ),
        (
            "*/0 * * * *",
            "step of range should be a positive number: */0",
        ),
        ("*/5/5 * * * *", "too many slashes: */5/5"),
        (
            "a * * * *",
            "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
        ),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            "* * L * *",
            "failed to parse int from L: strconv.Atoi: parsing \"L\": invalid syntax",
        ),
        (
            "* * 15W * *",
            "failed to parse int from 15W: strconv.Atoi: parsing \"15W\": invalid syntax",
        ),
        (
            "* * * * mon#2",
            "failed to parse int from mon#2: strconv.Atoi: parsing \"mon#2\": invalid syntax",
        ),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every", "unrecognized descriptor: @every"),
        (
            "@every x",
            "failed to parse duration @every x: time: invalid duration \"x\"",
        ),
    ] {
        let why = Schedule::parse(bad)
            .map(drop)
            .map_err(|why| why.to_string());
        assert_eq!(why, Err(expect.to_owned()), "{bad}");
    }
}

/// `TestParse` and `TestFields` of robfig/cron: which bits are set.
#[test]
fn a_field_is_the_values_that_match() {
    let all = |range: std::ops::RangeInclusive<u64>| range.map(|bit| 1 << bit).sum::<u64>();
    for (text, expect) in [
        ("5", 1 << 5),
        ("5,6", 1 << 5 | 1 << 6),
        ("5-7", all(5..=7)),
        ("5-6/2", 1 << 5),
        ("5-7/2", 1 << 5 | 1 << 7),
        ("5-7/1", all(5..=7)),
        ("50/4", 1 << 50 | 1 << 54 | 1 << 58),
        ("*", all(0..=59) | field::STAR),
        ("?", all(0..=59) | field::STAR),
        ("*/1", all(0..=59) | field::STAR),
        ("*/20", 1 | 1 << 20 | 1 << 40),
        ("*,5", all(0..=59) | field::STAR),
        (",", 0),
    ] {
        assert_eq!(field::parse(text, &field::MINUTES), Ok(expect), "{text}");
    }
    let names = field::parse("Jan,MAR-may", &field::MONTHS);
    assert_eq!(names, Ok(1 << 1 | 1 << 3 | 1 << 4 | 1 << 5));
}

/// `TestParseDuration` of Go, as far as seconds count.
#[test]
fn durations_are_gos() {
    for (text, expect) in [
        ("0", Ok(0)),
        ("5s", Ok(5_000_000_000)),
        ("-5s", Ok(-5_000_000_000)),
        ("+1.5h", Ok(5_400_000_000_000)),
        ("1h30m", Ok(5_400_000_000_000)),
        (".5s", Ok(500_000_000)),
        ("1.s", Ok(1_000_000_000)),
        ("10.5s4m", Ok(250_500_000_000)),
        ("1us", Ok(1_000)),
        ("1\u{b5}s", Ok(1_000)),
        ("0.000000000000001h", Ok(0)),
        ("", Err("time: invalid duration \"\"")),
        ("3", Err("time: missing unit in duration \"3\"")),
        ("-", Err("time: invalid duration \"-\"")),
        (".s", Err("time: invalid duration \".s\"")),
        ("1d", Err("time: unknown unit \"d\" in duration \"1d\"")),
        ("3000000h", Err("time: invalid duration \"3000000h\"")),
    ] {
        let expect = expect.map_err(str::to_owned);
        assert_eq!(go_duration::parse(text), expect, "{text}");
    }
}

#[test]
fn a_zone_has_one_spelling() {
    for good in [
        "",
        "UTC",
        "Europe/Berlin",
        "Etc/UTC",
        "America/Argentina/Buenos_Aires",
    ] {
        assert!(zone(good).is_ok(), "{good}");
    }
    for bad in [
        "utc",
        "europe/berlin",
        "Mars/Base",
        "Etc/Unknown",
        "../UTC",
        "Local",
    ] {
        let why = zone(bad).map(drop).map_err(|why| why.to_string());
        assert_eq!(why, Err(format!("unknown time zone {bad}")));
    }
}

#[test]
fn a_zone_needs_no_files_of_the_machine() {
    let berlin = built_in("Europe/Berlin").unwrap();
    let schedule = Schedule::parse("30 2 * * *").unwrap();
    let next = |after: &str| {
        let next = schedule.next(after.parse().unwrap(), &berlin).unwrap();
        next.to_string()
    };
    assert_eq!(next("2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
    assert_eq!(next("2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
    assert_eq!(next("2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
    assert!(
        ["europe/berlin", "Etc/Unknown", "Mars/Base"]
            .iter()
            .all(|bad| built_in(bad).is_none())
    );
}
