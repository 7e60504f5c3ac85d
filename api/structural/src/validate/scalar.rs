//! Texts and numbers.

use serde_json::{Number, Value};

use super::Outcome;
use crate::{
    schema::{Bounds, Node, NumberBounds},
    violation::Wrong,
};

impl Node {
    pub(super) fn check_text(&self, text: &str, path: &str, out: &mut Outcome) {
        let value = || Value::from(text);
        let Bounds { min, max } = self.length;
        let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(max) = max.filter(|max| length() > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            out.violations.add(path, Wrong::TooLong { max });
        }
        if let Some(min) = min.filter(|min| length() < *min) {
            let detail = format!("{path} in body should be at least {min} chars long");
            out.violations.invalid(path, &value(), detail);
        }
        if let Some(pattern) = &self.pattern
            && !pattern.matches(text)
        {
            let detail = format!("{path} in body should match '{}'", pattern.text());
            out.violations.invalid(path, &value(), detail);
        }
        out.matches += 1;
        if let Some(format) = self.format {
            if !format.holds(text) {
                let name = &self.format_name;
                let detail = format!("{path} in body must be of type {name}: {text:?}");
                let value = value();
                out.violations
                    .add(path, Wrong::TypeInvalid { value, detail });
            }
            out.matches += 1;
        }
    }
}

impl NumberBounds {
    pub(super) fn check(&self, number: &Number, path: &str, out: &mut Outcome) {
        let value = Value::Number(number.clone());
        let mut tell = |detail: String| {
            out.violations
                .invalid(path, &value, format!("{path} in body should be {detail}"));
        };
        if let Some(factor) = self.multiple_of
            && !is_multiple(number, factor)
        {
            tell(format!("a multiple of {}", shown(number, factor)));
        }
        if let Some(max) = self.max
            && !is_below(number, max, self.excludes_max)
        {
            let than = if self.excludes_max {
                "less than"
            } else {
                "less than or equal to"
            };
            tell(format!("{than} {}", shown(number, max)));
        }
        if let Some(min) = self.min
            && !is_above(number, min, self.excludes_min)
        {
            let than = if self.excludes_min {
                "greater than"
            } else {
                "greater than or equal to"
            };
            tell(format!("{than} {}", shown(number, min)));
        }
        out.matches += 1;
    }
}

/// A bound as upstream compares and prints it for this number: whole numbers with its whole part.
#[allow(clippy::cast_possible_truncation, reason = "saturates, as bounds may")]
fn whole(bound: f64) -> i64 {
    bound as i64
}

fn is_below(number: &Number, max: f64, excluded: bool) -> bool {
    match number.as_i64() {
        Some(number) if excluded => number < whole(max),
        Some(number) => number <= whole(max),
        None if excluded => float(number) < max,
        None => float(number) <= max,
    }
}

fn is_above(number: &Number, min: f64, excluded: bool) -> bool {
    match number.as_i64() {
        Some(number) if excluded => number > whole(min),
        Some(number) => number >= whole(min),
        None if excluded => float(number) > min,
        None => float(number) >= min,
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    if let Some(number) = number.as_i64()
        && whole(factor) != 0
    {
        return number
            .checked_rem(whole(factor))
            .is_none_or(|rest| rest == 0);
    }
    let number = float(number);
    let times = if factor < 1.0 {
        1.0 / factor * number
    } else {
        number / factor
    };
    // As close as upstream wants it.
    let rest = (times - times.round()).abs();
    rest < 1e-9 || (times != 0.0 && rest / times.abs() < 1e-9)
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

fn shown(number: &Number, bound: f64) -> String {
    if number.is_i64() {
        return whole(bound).to_string();
    }
    go_float(bound)
}

/// As Go prints it: with an exponent where that is below -4 or above 20.
pub(crate) fn go_float(number: f64) -> String {
    if number == 0.0 || (1e-4..1e21).contains(&number.abs()) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_go_does() {
        for (number, expect) in [
            (10.0, "10"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e21, "1e+21"),
            (0.00001, "1e-05"),
            (1e20, "100000000000000000000"),
        ] {
            assert_eq!(go_float(number), expect);
        }
    }
}
