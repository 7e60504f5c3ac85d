//! Texts and numbers.

use serde_json::{Number, Value};

use super::Outcome;
use crate::{
    schema::{Bounds, Node, NumberBounds, NumberFormat},
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
        if let Some(format) = self.format {
            self.check_range(format, number, path, out);
        }
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

impl NumberBounds {
    /// Whether a number, and the bounds of it, are what their format has. Since 1.36; told of the
    /// object as a whole.
    fn check_range(&self, format: NumberFormat, number: &Number, path: &str, out: &mut Outcome) {
        let is_whole = float(number).fract() == 0.0;
        // What is no whole number has another type, which is told.
        let is_known = format == NumberFormat::Float || is_whole;
        let value = (is_known && !format.has(number)).then_some("Checked");
        let bound = |bound: Option<f64>, what: &'static str| {
            bound
                .filter(|bound| !format.has_float(*bound))
                .map(|_| what)
        };
        let found = [
            value,
            bound(self.multiple_of, "MultipleOf"),
            bound(self.min, "Minimum boundary"),
            bound(self.max, "Maximum boundary"),
        ];
        for what in found.into_iter().flatten() {
            let (kind, name) = format.names();
            let detail =
                format!("{what} value must be of type {kind} with format {name} in {path}");
            let value = "".into();
            out.violations.add("", Wrong::Invalid { value, detail });
        }
    }
}

impl NumberFormat {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Int32 => ("integer", "int32"),
            Self::Int64 => ("integer", "int64"),
            Self::Float => ("number", "float"),
        }
    }

    fn has(self, number: &Number) -> bool {
        match number.as_i64() {
            Some(number) if self == Self::Int32 => i32::try_from(number).is_ok(),
            Some(_) => true,
            None => self.has_float(float(number)),
        }
    }

    fn has_float(self, number: f64) -> bool {
        // 2^63 itself is none of them.
        const END: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Int32 => (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
            Self::Int64 => (-END..END).contains(&number),
            Self::Float => number.abs() <= f64::from(f32::MAX),
        }
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
