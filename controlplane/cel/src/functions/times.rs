//! What of a moment or a duration is asked for.

use crate::{
    function::{Function, function, no_such_overload},
    meter::Meter,
    time,
    value::{EvalError, Evaluated, Value},
};

macro_rules! getter {
    ($name:literal, $part:literal, $call:ident) => {
        function(
            $name,
            $call,
            &[
                (concat!("timestamp_to_", $part), ".timestamp -> int"),
                (
                    concat!("timestamp_to_", $part, "_with_tz"),
                    ".timestamp, string -> int",
                ),
            ],
        )
    };
    ($name:literal, $part:literal, $call:ident, $duration:literal) => {
        function(
            $name,
            $call,
            &[
                (concat!("timestamp_to_", $part), ".timestamp -> int"),
                (
                    concat!("timestamp_to_", $part, "_with_tz"),
                    ".timestamp, string -> int",
                ),
                ($duration, ".duration -> int"),
            ],
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    getter!("getFullYear", "year", year),
    getter!("getMonth", "month", month),
    getter!("getDayOfYear", "day_of_year", day_of_year),
    getter!("getDayOfMonth", "day_of_month", day_of_month),
    getter!("getDate", "day_of_month_1_based", date),
    getter!("getDayOfWeek", "day_of_week", day_of_week),
    getter!("getHours", "hours", hours, "duration_to_hours"),
    getter!("getMinutes", "minutes", minutes, "duration_to_minutes"),
    getter!("getSeconds", "seconds", seconds, "duration_to_seconds"),
    getter!(
        "getMilliseconds",
        "milliseconds",
        milliseconds,
        "duration_to_milliseconds"
    ),
];

fn get<'v>(
    args: &[Value<'v>],
    of_moment: impl Fn(time::Local) -> i64,
    of_duration: Option<fn(i64) -> i64>,
) -> Evaluated<'v> {
    let zone = match args.get(1) {
        Some(zone) => Some(zone.as_str()?),
        None => None,
    };
    match (&args[0], of_duration) {
        (Value::Timestamp(moment), _) => match time::civil(*moment, zone) {
            Some(local) => Ok(Value::Int(of_moment(local))),
            None => Err(EvalError::new(format!(
                "unknown time zone {}",
                zone.unwrap_or_default()
            ))),
        },
        (Value::Duration(nanos), Some(of_duration)) => Ok(Value::Int(of_duration(*nanos))),
        _ => no_such_overload(),
    }
}

fn year<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| i64::from(local.alike.year()) + local.years,
        None,
    )
}

fn month<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(args, |local| i64::from(local.alike.month()) - 1, None)
}

fn day_of_year<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(args, |local| i64::from(local.alike.day_of_year()) - 1, None)
}

fn day_of_month<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(args, |local| i64::from(local.alike.day()) - 1, None)
}

fn date<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(args, |local| local.alike.day().into(), None)
}

fn day_of_week<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| local.alike.weekday().to_sunday_zero_offset().into(),
        None,
    )
}

fn hours<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| local.alike.hour().into(),
        Some(|nanos| nanos / 3_600_000_000_000),
    )
}

fn minutes<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| local.alike.minute().into(),
        Some(|nanos| nanos / 60_000_000_000),
    )
}

fn seconds<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| local.alike.second().into(),
        Some(|nanos| nanos / 1_000_000_000),
    )
}

fn milliseconds<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    get(
        args,
        |local| local.alike.millisecond().into(),
        Some(|nanos| nanos / 1_000_000),
    )
}
