//! Resource quantities as numbers the node can work with; what cannot be parsed counts as zero,
//! because the API server has validated it long before.

use coracle_api::quantity::Quantity;

/// Thousandths, rounded up.
pub(crate) fn milli(text: &str) -> i64 {
    text.parse::<Quantity>()
        .map_or(0, |quantity| quantity.milli_value())
}

/// Whole units, rounded up.
pub(crate) fn value(text: &str) -> i64 {
    text.parse::<Quantity>()
        .map_or(0, |quantity| quantity.value())
}
