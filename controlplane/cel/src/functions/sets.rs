//! Lists as sets.

use super::equal::contains;
use crate::{
    function::{Function, function, size},
    meter::Meter,
    value::{EvalError, Evaluated, List, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "sets.contains",
        set_contains,
        &[("list_sets_contains_list", "list(T), list(T) -> bool")],
    )
    .named(product),
    function(
        "sets.intersects",
        intersects,
        &[("list_sets_intersects_list", "list(T), list(T) -> bool")],
    )
    .named(product),
    function(
        "sets.equivalent",
        equivalent,
        &[("list_sets_equivalent_list", "list(T), list(T) -> bool")],
    )
    .named(twice_the_product),
];

fn product(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    size(args, 0)
        .saturating_mul(size(args, 1))
        .saturating_add(1)
}

fn twice_the_product(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    size(args, 0)
        .saturating_mul(size(args, 1))
        .saturating_mul(2)
        .saturating_add(1)
}

fn has_all(meter: &mut Meter<'_>, list: &List<'_>, of: &List<'_>) -> Result<bool, EvalError> {
    for element in of.iter() {
        if !contains(meter, list, &element?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn set_contains<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (list, of) = (args[0].as_list()?, args[1].as_list()?);
    has_all(meter, list, of).map(Value::Bool)
}

fn equivalent<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (a, b) = (args[0].as_list()?, args[1].as_list()?);
    Ok(Value::Bool(has_all(meter, a, b)? && has_all(meter, b, a)?))
}

fn intersects<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (a, b) = (args[0].as_list()?, args[1].as_list()?);
    for element in a.iter() {
        if contains(meter, b, &element?)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
