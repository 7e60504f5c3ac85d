//! Numbers of different types, compared.

use std::cmp::Ordering;

use crate::value::Value;

/// The order of two numbers of any types; a NaN has none.
pub(super) fn order(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&double(*b)),
        (Value::Double(a), Value::Uint(b)) => a.partial_cmp(&double(*b)),
        (Value::Int(a), Value::Double(b)) => double(*a).partial_cmp(b),
        (Value::Uint(a), Value::Double(b)) => double(*a).partial_cmp(b),
        _ => None,
    }
}

/// As upstream compares them: a whole number as the nearest double.
#[expect(clippy::cast_precision_loss, reason = "the nearest one is meant")]
fn double(whole: impl Into<i128>) -> f64 {
    whole.into() as f64
}
