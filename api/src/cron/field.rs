//! One field of a schedule, as bits: `*`, `1-5`, `*/10`, `mon`, `1,3-5`.
//!
//! Source: `github.com/robfig/cron/v3`, `parser.go` (getField, getRange).

/// Set if a field is a star: a day need not match it.
pub(super) const STAR: u64 = 1 << 63;

/// What a field may hold.
pub(super) struct Bounds {
    min: u64,
    max: u64,
    /// Of its values, from the smallest on.
    names: &'static [&'static str],
}

pub(super) const MINUTES: Bounds = Bounds {
    min: 0,
    max: 59,
    names: &[],
};
pub(super) const HOURS: Bounds = Bounds {
    min: 0,
    max: 23,
    names: &[],
};
pub(super) const DAYS: Bounds = Bounds {
    min: 1,
    max: 31,
    names: &[],
};
pub(super) const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
pub(super) const WEEKDAYS: Bounds = Bounds {
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// The bits of a field. One without any part matches nothing.
pub(super) fn parse(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| range(part, bounds))
        .try_fold(0, |bits, part| Ok(bits | part?))
}

fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let by_slash: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = by_slash[0].split('-').collect();
    // Whatever follows a star and a hyphen.
    let is_star = matches!(ends[0], "*" | "?");
    let (start, mut end) = if is_star {
        (bounds.min, bounds.max)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends[1..] {
            [] => (start, start),
            [last] => (start, number_or_name(last, bounds)?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match by_slash[1..] {
        [] => 1,
        [step] => {
            let step = number(step)?;
            // `5/15` goes on to the end.
            if ends.len() == 1 {
                end = bounds.max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({min}): {text}"
        ));
    }
    if end > max {
        return Err(format!(
            "end of range ({end}) above maximum ({max}): {text}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let star = if is_star && step == 1 { STAR } else { 0 };
    let matches = |value: &u64| (value - start).is_multiple_of(step);
    let bits = (start..=end).filter(matches).map(|value| 1 << value);
    Ok(bits.fold(star, |all, bit: u64| all | bit))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match (bounds.min..)
        .zip(bounds.names)
        .find(|(_, name)| **name == lower)
    {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let failed = |why: &str| {
        Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"
        ))
    };
    match text.parse::<i64>() {
        Ok(number) => u64::try_from(number)
            .map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(error) => match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                failed("value out of range")
            }
            _ => failed("invalid syntax"),
        },
    }
}
