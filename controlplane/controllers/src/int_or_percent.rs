//! Numbers that may be given as a percentage. Pure.
//!
//! Source: `k8s.io/apimachinery/pkg/util/intstr` (GetScaledValueFromIntOrPercent) at v1.37.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number as it is, a percentage of `total`.
pub(crate) fn scaled(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => percent(
            text.trim_end_matches('%').parse().unwrap_or(0),
            total,
            round_up,
        ),
    }
}

/// So many hundredths of `total`.
pub(crate) fn percent(percent: i64, total: i32, round_up: bool) -> i32 {
    let hundredths = percent.saturating_mul(i64::from(total));
    let whole = if round_up {
        hundredths.div_euclid(100) + i64::from(hundredths % 100 != 0)
    } else {
        hundredths / 100
    };
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_the_most() {
        let percent = |text: &str| IntOrString::String(text.into());
        assert_eq!(scaled(&percent("25%"), 5, true), 2);
        assert_eq!(scaled(&percent("200%"), i32::MAX, false), i32::MAX);
        let huge = percent("9223372036854775807%");
        assert_eq!(scaled(&huge, i32::MAX, true), i32::MAX);
    }
}
