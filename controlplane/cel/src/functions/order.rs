//! Order: `<`, `<=`, `>`, `>=`, and equality as operators.

use std::cmp::Ordering;

use super::{equal::equal, numbers};
use crate::{
    function::{Function, function, no_such_overload, size},
    meter::Meter,
    range::traversal,
    value::{Evaluated, Value},
};

macro_rules! comparison {
    ($name:literal, $prefix:literal, $call:ident) => {
        function(
            $name,
            $call,
            &[
                (concat!($prefix, "_bool"), "bool, bool -> bool"),
                (concat!($prefix, "_int64"), "int, int -> bool"),
                (concat!($prefix, "_int64_double"), "int, double -> bool"),
                (concat!($prefix, "_int64_uint64"), "int, uint -> bool"),
                (concat!($prefix, "_uint64"), "uint, uint -> bool"),
                (concat!($prefix, "_uint64_double"), "uint, double -> bool"),
                (concat!($prefix, "_uint64_int64"), "uint, int -> bool"),
                (concat!($prefix, "_double"), "double, double -> bool"),
                (concat!($prefix, "_double_int64"), "double, int -> bool"),
                (concat!($prefix, "_double_uint64"), "double, uint -> bool"),
                (concat!($prefix, "_string"), "string, string -> bool"),
                (concat!($prefix, "_bytes"), "bytes, bytes -> bool"),
                (
                    concat!($prefix, "_timestamp"),
                    "timestamp, timestamp -> bool",
                ),
                (concat!($prefix, "_duration"), "duration, duration -> bool"),
            ],
        )
        .overload(smaller_text)
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    comparison!("_<_", "less", less),
    comparison!("_<=_", "less_equals", less_equals),
    comparison!("_>_", "greater", greater),
    comparison!("_>=_", "greater_equals", greater_equals),
    function("_==_", equals, &[("equals", "A, A -> bool")]).named(smaller),
    function("_!=_", not_equals, &[("not_equals", "A, A -> bool")]).named(smaller),
];

/// A tenth of the smaller of both.
fn smaller(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    if let Some(Some(Value::Opaque(_))) = args.first() {
        return 1;
    }
    traversal(size(args, 0).min(size(args, 1)))
}

fn smaller_text(args: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    match args.first() {
        Some(Some(Value::String(_) | Value::Bytes(_))) => smaller(args, result),
        _ => 1,
    }
}

fn equals<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    equal(meter, &args[0], &args[1]).map(Value::Bool)
}

fn not_equals<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    equal(meter, &args[0], &args[1]).map(|equal| Value::Bool(!equal))
}

fn less<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    ordered(args, Ordering::is_lt)
}

fn less_equals<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    ordered(args, Ordering::is_le)
}

fn greater<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    ordered(args, Ordering::is_gt)
}

fn greater_equals<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    ordered(args, Ordering::is_ge)
}

fn ordered<'v>(args: &[Value<'v>], holds: fn(Ordering) -> bool) -> Evaluated<'v> {
    match compare(&args[0], &args[1]) {
        Some(order) => Ok(Value::Bool(order.is_some_and(holds))),
        None => no_such_overload(),
    }
}

/// The order of two values; `None` if they have none, `Some(None)` with a NaN.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    let order = match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => return Some(numbers::order(a, b)),
        _ => return None,
    };
    Some(Some(order))
}
