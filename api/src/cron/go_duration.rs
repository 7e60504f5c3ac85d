//! Durations in Go's form: `1h30m`, `-1.5h`, `300ms`.
//!
//! Source: `time.ParseDuration` of Go 1.26: the messages are its own.

/// Units and their nanoseconds.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // Micro sign and the Greek letter.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds that `text` stands for.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (is_negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_i64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let is_of_unit = |c: char| c != '.' && !c.is_ascii_digit();
        let end = after.find(|c| !is_of_unit(c)).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, unit)) = UNITS.iter().find(|(known, _)| *known == name) else {
            return Err(format!("time: unknown unit {name:?} in duration {text:?}"));
        };
        let part = part(whole, fraction, *unit);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(invalid)?;
        rest = after;
    }
    Ok(if is_negative { -total } else { total })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// So many of a unit; `None` if that is too much.
fn part(whole: &str, fraction: &str, unit: i64) -> Option<i64> {
    let whole: i64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    // What a unit has no digits for is cut.
    let (mut rest, mut scale) = (0, unit);
    for digit in fraction.bytes() {
        scale /= 10;
        rest += i64::from(digit - b'0') * scale;
    }
    whole.checked_mul(unit)?.checked_add(rest)
}
