//! Durations and moments in the notations of Go, RFC 3339 and JSON.

use jiff::{civil, tz::TimeZone};

use crate::value::Timestamp;

const NANOS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `1h2m3.5s` in nanoseconds, as Go parses it.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut nanos: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (whole, fraction) = rest[..end].split_once('.').unwrap_or((&rest[..end], ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = rest.split_at(end.unwrap_or(rest.len()));
        let (_, unit) = NANOS.iter().find(|(name, _)| *name == unit)?;
        rest = after;
        if whole.len() > 20 {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        nanos += whole.checked_mul(*unit)?;
        // Finer than a nanosecond is cut off.
        let mut scale = *unit;
        for digit in fraction.chars() {
            scale /= 10;
            nanos += i128::from(digit.to_digit(10)?) * scale;
        }
        if nanos > i128::from(i64::MAX) + 1 {
            return None;
        }
    }
    i64::try_from(sign * nanos).ok()
}

/// In seconds, as CEL prints it: `3723.004s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, fraction) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// A moment as RFC 3339 writes it, in capital letters.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.is_ascii().then_some(text)?;
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, rest) = rest.split_at_checked(9)?;
    let clock = clock.strip_prefix('T')?;
    let date: civil::Date = shaped(date, "dddd-dd-dd").then(|| date.parse().ok())??;
    let clock: civil::Time =
        (shaped(clock, "dd:dd:dd") && !clock.ends_with("60")).then(|| clock.parse().ok())??;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
        None => ("0", rest),
    };
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let offset = match zone {
        "Z" => 0,
        zone if shaped(zone, "+dd:dd") => offset(zone)?,
        _ => return None,
    };
    if fraction.is_empty() {
        return None;
    }
    let since = civil::DateTime::from_parts(date, clock).duration_since(EPOCH);
    Timestamp::new(since.as_secs() - i64::from(offset), nanos)
}

/// Whether a text has the form: `d` is a digit, `+` a sign, all else itself.
fn shaped(text: &str, form: &str) -> bool {
    text.len() == form.len()
        && text.chars().zip(form.chars()).all(|(c, form)| match form {
            'd' => c.is_ascii_digit(),
            '+' => c == '+' || c == '-',
            form => c == form,
        })
}

/// `-08:00` in seconds.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let hours: i32 = hours.parse().ok().filter(|hours| (0..24).contains(hours))?;
    let minutes: i32 = minutes.parse().ok().filter(|min| (0..60).contains(min))?;
    Some(sign * (hours * 3600 + minutes * 60))
}

const EPOCH: civil::DateTime = civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Timestamp {
    /// A moment, if it is between the years 1 and 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        let in_range = (-62_135_596_800..=253_402_300_799).contains(&seconds);
        (in_range && nanos < 1_000_000_000).then_some(Self { seconds, nanos })
    }

    /// Nanoseconds since 1970.
    pub(crate) fn as_nanos(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// Some nanoseconds later.
    pub(crate) fn later(self, nanos: i128) -> Option<Self> {
        let sum = self.as_nanos() + nanos;
        let seconds = i64::try_from(sum.div_euclid(1_000_000_000)).ok()?;
        Self::new(seconds, u32::try_from(sum.rem_euclid(1_000_000_000)).ok()?)
    }
}

/// As RFC 3339, in UTC.
pub(crate) fn format_timestamp(moment: Timestamp) -> String {
    let civil = civil(moment, None).map_or(EPOCH, |local| local.alike);
    let fraction = if moment.nanos == 0 {
        String::new()
    } else {
        let digits = format!("{:09}", moment.nanos);
        format!(".{}", digits.trim_end_matches('0'))
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    )
}

/// What schemas call `date` or `date-time`.
pub(crate) fn date_or_time(text: &str) -> Option<Timestamp> {
    if text.len() == 10 {
        return timestamp(&format!("{text}T00:00:00Z"));
    }
    timestamp(text)
}

/// The last second of the year 9999, with which the calendar ends; somewhere it is later then.
const LAST_SECOND: i64 = 253_402_300_799;
/// Seconds of 400 years, after which days of weeks and leap years are the same again.
const CYCLE: i64 = 146_097 * 86_400;

/// A date and a time of day.
pub(crate) struct Local {
    /// The same but for the year.
    pub(crate) alike: civil::DateTime,
    /// How many years later it is.
    pub(crate) years: i64,
}

/// A moment on the calendar and the clock of a zone: a name of the time zone database, or a
/// difference like `-08:00`. Without one it is UTC.
pub(crate) fn civil(moment: Timestamp, zone: Option<&str>) -> Option<Local> {
    let offset = match zone {
        None | Some("" | "UTC") => 0,
        Some(zone) if zone.contains(':') => offset(zone)?,
        Some(zone) => {
            // The database goes a day less far than moments do.
            let seconds = moment.seconds.clamp(
                jiff::Timestamp::MIN.as_second(),
                jiff::Timestamp::MAX.as_second(),
            );
            let moment = jiff::Timestamp::from_second(seconds).ok()?;
            TimeZone::get(zone).ok()?.to_offset(moment).seconds()
        }
    };
    let seconds = moment.seconds + i64::from(offset);
    let is_after = seconds > LAST_SECOND;
    let seconds = if is_after { seconds - CYCLE } else { seconds };
    let since = jiff::SignedDuration::new(seconds, i32::try_from(moment.nanos).ok()?);
    Some(Local {
        alike: EPOCH.checked_add(since).ok()?,
        years: if is_after { 400 } else { 0 },
    })
}
