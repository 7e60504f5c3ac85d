//! Dates and durations.

/// `full-date` of RFC 3339.
pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day)
}

fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `date-time` of RFC 3339.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_time(time: &str) -> bool {
    let (Some(clock), Some(rest)) = (time.get(..8), time.get(8..)) else {
        return false;
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts[..] else {
        return false;
    };
    let is_upto = |text: &str, most: &str| is_digits(text, 2) && text <= most;
    if !is_upto(hour, "23") || !is_upto(minute, "59") || !is_upto(second, "59") {
        return false;
    }
    let zone_at = rest.find(['z', '+', '-']);
    let Some((fraction, zone)) = zone_at.and_then(|at| rest.split_at_checked(at)) else {
        return false;
    };
    let mut digits = fraction.chars();
    let is_fraction = fraction.is_empty()
        || (digits.next().is_some()
            && !digits.as_str().is_empty()
            && digits.all(|digit| digit.is_ascii_digit()));
    is_fraction && (zone == "z" || is_offset(&zone[1..]))
}

fn is_offset(zone: &str) -> bool {
    let parts = zone.split_once(':');
    parts.is_some_and(|(hours, minutes)| is_digits(hours, 2) && is_digits(minutes, 2))
}

fn is_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// As Go's `time.ParseDuration` has it, or numbers with units in words.
pub(super) fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_spoken_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (number, unit) = rest.split_at(unit_at.unwrap_or(rest.len()));
        let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
        if !has_digit || number.matches('.').count() > 1 {
            return false;
        }
        let known = ["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h"];
        // The longest that fits: `ms` before `m`.
        let end = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (name, after) = unit.split_at(end.unwrap_or(unit.len()));
        if !known.contains(&name) {
            return false;
        }
        rest = after;
    }
    true
}

/// Upstream looks for what it knows and overlooks the rest.
fn is_spoken_duration(text: &str) -> bool {
    let short = ["ns", "us", "\u{b5}s", "ms", "s", "m", "h", "hr", "d", "w"];
    let long = [
        "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
    ];
    let mut rest = text;
    let mut is_known = false;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let number = &rest[at..];
        let after = number.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if number.len() - after.len() > 18 {
            return false;
        }
        let unit = after.trim_start();
        let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '\u{b5}';
        let end = unit.find(|letter| !is_letter(letter));
        let (name, after) = unit.split_at(end.unwrap_or(unit.len()));
        let name = name.to_lowercase();
        is_known |=
            short.contains(&name.as_str()) || long.iter().any(|unit| name.starts_with(unit));
        rest = after;
    }
    is_known
}
