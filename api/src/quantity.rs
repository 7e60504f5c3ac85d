//! Fixed-point amounts in Kubernetes' notation: `100m`, `1.5`, `1Gi`, `2e3`.
//!
//! An amount is a whole number of nano-units in 128 bits, so that sums and comparisons are exact.
//! What is finer than nano is rounded up and what is beyond 2^63-1 units is capped, as upstream
//! does.
//!
//! Source: `k8s.io/apimachinery/pkg/api/resource/quantity.go`.

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
    str::FromStr,
};

use thiserror::Error;

const NANO: i128 = 1_000_000_000;
/// 2^63-1 units: the largest amount that upstream keeps.
const MAX: i128 = i64::MAX as i128 * NANO;

/// A text that is no quantity; the texts are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseQuantityError {
    /// Not a number, or an empty text.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// A suffix that does not exist.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `1k`, `1500m`
    #[default]
    DecimalSi,
    /// `1Ki`, `1Gi`
    BinarySi,
    /// `1e3`
    DecimalExponent,
}

/// An amount and the family of suffixes it is written with. Equality and order look at the amount
/// alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing, in decimal notation.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// A whole number of units.
    #[must_use]
    pub fn from_units(units: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(units) * NANO,
            format,
        }
    }

    /// A number of thousandths, in decimal notation.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * 1_000_000,
            format: Format::DecimalSi,
        }
    }

    /// Parses a quantity.
    ///
    /// # Errors
    /// [`ParseQuantityError`] with upstream's text.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, suffix) = rest.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(ParseQuantityError::Format);
        }
        let (base, exponent, format) = suffix_of(suffix)?;
        let mut nanos = scale(whole, fraction, base, exponent);
        if negative {
            nanos = -nanos;
        }
        // Small fractions of bytes make no sense in binary notation: they are written in decimal.
        let format = if format == Format::BinarySi && nanos.abs() < 1024 * NANO {
            Format::DecimalSi
        } else {
            format
        };
        Ok(Self { nanos, format })
    }

    /// The amount in units, rounded up.
    #[must_use]
    pub fn value(&self) -> i64 {
        clamp(div_up(self.nanos, NANO))
    }

    /// The amount in thousandths, rounded up.
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        clamp(div_up(self.nanos, 1_000_000))
    }

    /// The amount in nano-units.
    #[must_use]
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount as a floating-point number.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        reason = "an approximation is what is asked for"
    )]
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// The family of suffixes.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The same amount, written with this family of suffixes where it can be.
    #[must_use]
    pub fn in_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }
}

/// Base, exponent and family of a suffix.
fn suffix_of(suffix: &str) -> Result<(i128, i32, Format), ParseQuantityError> {
    let decimal = |exponent| Ok((10, exponent, Format::DecimalSi));
    let binary = |exponent| Ok((2, exponent, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']);
            let Some(digits) = digits else {
                // Upstream looks at the characters first, and tells a suffix that it does not know
                // from what is none.
                let known = suffix
                    .bytes()
                    .all(|b| b"eEinumkKMGTP+-0123456789".contains(&b));
                return Err(if known {
                    ParseQuantityError::Suffix
                } else {
                    ParseQuantityError::Format
                });
            };
            let exponent: i32 = digits.parse().map_err(|_| ParseQuantityError::Suffix)?;
            Ok((10, exponent, Format::DecimalExponent))
        }
    }
}

/// `whole.fraction * base^exponent` in nano-units, rounded up, capped.
fn scale(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|b| i128::from(b - b'0'))
        .skip_while(|d| *d == 0);
    // Powers of ten still to apply: nano-units, minus the digits after the point.
    let mut power = 9 - i64::try_from(fraction.len()).unwrap_or(i64::MAX - 9);
    let mut mantissa: i128 = 0;
    let mut inexact = false;
    let mut dropped = 0_i64;
    for digit in digits {
        // 37 digits would overflow once scaled: what follows only decides how to round.
        if dropped > 0 || mantissa >= 10_i128.pow(36) {
            dropped += 1;
            inexact |= digit != 0;
        } else {
            mantissa = mantissa * 10 + digit;
        }
    }
    power += dropped;
    if base == 10 {
        power += i64::from(exponent);
    } else {
        let factor = 1_i128 << exponent;
        match mantissa.checked_mul(factor) {
            Some(product) => mantissa = product,
            None if power < 0 => {
                // A long fraction: its tail is far below a nano-unit.
                while mantissa.checked_mul(factor).is_none() {
                    inexact |= mantissa % 10 != 0;
                    mantissa /= 10;
                    power += 1;
                }
                mantissa *= factor;
            }
            None => return MAX,
        }
    }
    while power > 0 && mantissa != 0 {
        match mantissa.checked_mul(10) {
            Some(m) if m <= MAX => mantissa = m,
            _ => return MAX,
        }
        power -= 1;
    }
    while power < 0 && mantissa != 0 {
        inexact |= mantissa % 10 != 0;
        mantissa /= 10;
        power += 1;
    }
    (mantissa + i128::from(inexact)).min(MAX)
}

/// Divides and rounds away from zero, as upstream does.
fn div_up(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 {
        quotient
    } else {
        quotient + value.signum()
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that keeps the number whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && self.nanos.abs() >= 1024 * NANO
            && self.nanos % NANO == 0
        {
            let mut units = self.nanos / NANO;
            let mut suffix = 0;
            while suffix < 6 && units % 1024 == 0 {
                units /= 1024;
                suffix += 1;
            }
            return write!(
                f,
                "{units}{}",
                ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][suffix]
            );
        }
        let (mut amount, mut step) = (self.nanos, 0_usize);
        while step < 9 && amount % 1000 == 0 {
            amount /= 1000;
            step += 1;
        }
        if self.format == Format::DecimalExponent {
            let exponent = [
                "e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18",
            ][step];
            return write!(f, "{amount}{exponent}");
        }
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][step];
        write!(f, "{amount}{suffix}")
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Self;

    /// The sum keeps the family of the left side, unless that is zero.
    fn add(self, other: Self) -> Self {
        let format = if self.nanos == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: (self.nanos + other.nanos).clamp(-MAX, MAX),
            format,
        }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            nanos: -self.nanos,
            format: self.format,
        }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_forms_are_upstreams() {
        let table = [
            ("0", "0"),
            ("0n", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("1.5", "1500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("0.1", "100m"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("2000", "2k"),
            ("1234", "1234"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-1", "1200e-3"),
            ("1E", "1E"),
            ("0.0000000001", "1n"),
            ("-1.5Gi", "-1536Mi"),
            ("+5", "5"),
            ("9999999999999999999999", "9223372036854775807"),
            (
                "100000000000000000000000000000000000000000000000000000000",
                "9223372036854775807",
            ),
            ("1000Ei", "9223372036854775807"),
        ];
        for (text, expect) in table {
            assert_eq!(
                Quantity::parse(text).map(|q| q.to_string()),
                Ok(expect.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", ".", "-", "1.2.3", "abc", " 1", "1 ", "1x", "1ki", "1KiB", "--1", "1e", "1ee3",
            "1µ",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_round_up() {
        let value = |text: &str| {
            Quantity::parse(text)
                .map(|q| (q.value(), q.milli_value()))
                .expect("a quantity")
        };
        assert_eq!(value("100m"), (1, 100));
        assert_eq!(value("1u"), (1, 1));
        assert_eq!(value("1.5Gi"), (1_610_612_736, 1_610_612_736_000));
        assert_eq!(value("-1u"), (-1, -1));
    }

    #[test]
    fn sums_keep_the_left_family() {
        let q = |text: &str| Quantity::parse(text).expect("a quantity");
        assert_eq!((q("1Gi") + q("1G")).to_string(), "2073741824");
        assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
        assert_eq!((q("1") - q("100m")).to_string(), "900m");
        assert_eq!([q("250m"), q("750m")].into_iter().sum::<Quantity>(), q("1"));
        assert!(q("1Ki") > q("1k"));
    }

    proptest! {
        #[test]
        fn canonical_form_parses_to_itself(text in "-?[0-9]{1,6}(\\.[0-9]{0,4})?(m|k|M|G|Ki|Mi|Gi|e2|)") {
            let q = Quantity::parse(&text).expect("a quantity");
            let again = Quantity::parse(&q.to_string()).expect("its own text");
            prop_assert_eq!(q, again);
            prop_assert_eq!(q.to_string(), again.to_string());
        }

        #[test]
        fn any_text_parses_or_fails_without_panic(text in "[-+.0-9eEinumkKMGTP]{0,60}") {
            let _ = Quantity::parse(&text).map(|q| (q.to_string(), q.value(), q.milli_value()));
        }
    }
}
