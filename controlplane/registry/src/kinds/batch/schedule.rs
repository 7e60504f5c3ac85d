//! Checks of cron schedules: five fields, or a word such as `@daily`. Computes no times.
//!
//! Source: `github.com/robfig/cron/v3`, `parser.go`: the messages are its own.

/// Why a schedule is bad, if it is.
pub(super) fn error(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=") {
        let (zone, after) = rest.split_once(' ')?;
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if let Some(message) = zone_error(zone) {
            return Some(format!("provided bad location {zone}: {message}"));
        }
        rest = after.trim();
    }
    if let Some(word) = rest.strip_prefix('@') {
        return descriptor_error(rest, word);
    }
    let fields: Vec<_> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    fields
        .iter()
        .zip(FIELDS)
        .find_map(|(text, field)| text.split(',').find_map(|part| range_error(part, field)))
}

/// Why no time zone has that name, if so.
pub(super) fn zone_error(zone: &str) -> Option<String> {
    if zone.is_empty() || zone == "UTC" {
        return None;
    }
    match jiff::tz::TimeZone::get(zone) {
        Ok(_) => None,
        Err(_) => Some(format!("unknown time zone {zone}")),
    }
}

struct Field {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [&Field; 5] = [
    &Field {
        min: 0,
        max: 59,
        names: &[],
    },
    &Field {
        min: 0,
        max: 23,
        names: &[],
    },
    &Field {
        min: 1,
        max: 31,
        names: &[],
    },
    &Field {
        min: 1,
        max: 12,
        names: MONTHS,
    },
    &Field {
        min: 0,
        max: 6,
        names: DAYS,
    },
];

fn descriptor_error(whole: &str, word: &str) -> Option<String> {
    match word {
        "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => None,
        _ => match word.strip_prefix("every ") {
            Some(duration) if is_duration(duration) => None,
            Some(duration) => Some(format!(
                "failed to parse duration {whole}: time: invalid duration \"{duration}\""
            )),
            None => Some(format!("unrecognized descriptor: {whole}")),
        },
    }
}

/// A duration in Go's form: `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let after = &rest[digits..];
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .filter(|unit| after.starts_with(*unit));
        let Some(unit) = unit.max_by_key(|unit| unit.len()).filter(|_| digits > 0) else {
            return false;
        };
        rest = &after[unit.len()..];
    }
    true
}

/// One of the comma-separated parts of a field: `*`, `1-5`, `*/10`, `mon`.
fn range_error(text: &str, field: &Field) -> Option<String> {
    let mut by_slash = text.split('/');
    let (range, step) = (by_slash.next().unwrap_or_default(), by_slash.next());
    if by_slash.next().is_some() {
        return Some(format!("too many slashes: {text}"));
    }
    let mut ends = range.split('-');
    let (first, last) = (ends.next().unwrap_or_default(), ends.next());
    let (start, mut end) = if matches!(first, "*" | "?") {
        (field.min, field.max)
    } else {
        let start = match number(first, field) {
            Ok(start) => start,
            Err(message) => return Some(message),
        };
        match last.map(|last| number(last, field)).transpose() {
            Ok(end) => (start, end.unwrap_or(start)),
            Err(message) => return Some(message),
        }
    };
    if ends.next().is_some() {
        return Some(format!("too many hyphens: {text}"));
    }
    if let Some(step) = step {
        match plain_number(step) {
            Ok(0) => return Some(format!("step of range should be a positive number: {text}")),
            // As robfig/cron: `5/15` goes on to the end.
            Ok(_) if last.is_none() => end = field.max,
            Ok(_) => {}
            Err(message) => return Some(message),
        }
    }
    if start < field.min {
        Some(format!(
            "beginning of range ({start}) below minimum ({}): {text}",
            field.min
        ))
    } else if end > field.max {
        Some(format!(
            "end of range ({end}) above maximum ({}): {text}",
            field.max
        ))
    } else if start > end {
        Some(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ))
    } else {
        None
    }
}

fn number(text: &str, field: &Field) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match field.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(u32::try_from(index).unwrap_or(0) + field.min),
        None => plain_number(text),
    }
}

fn plain_number(text: &str) -> Result<u32, String> {
    if let Ok(negative) = text.parse::<i64>()
        && negative < 0
    {
        return Err(format!("negative number ({negative}) not allowed: {text}"));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_schedules_pass() {
        for good in [
            "* * * * *",
            "*/5 0-6,12 1 jan MON-fri",
            "@hourly",
            "@every 1h30m",
            "TZ=UTC 0 0 * * 0",
            "0 0 ? * *",
        ] {
            assert_eq!(error(good), None, "{good}");
        }
    }

    #[test]
    fn bad_schedules_say_why() {
        for (bad, expect) in [
            ("", "empty spec string"),
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-2 * * * *",
                "beginning of range (5) beyond end of range (2): 5-2",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(error(bad).as_deref(), Some(expect), "{bad}");
        }
    }
}
