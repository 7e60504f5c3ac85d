//! Lists: Kubernetes' functions, version 1; those of cel-go's extension are below.

pub(super) mod extension;

use std::cmp::Ordering;

use super::{
    equal::{contains, equal},
    order::compare,
};
use crate::{
    function::{Function, function, no_such_overload},
    meter::Meter,
    value::{EvalError, Evaluated, Value},
};

/// Overloads for lists of each type, whose values are of that type too.
macro_rules! of_each {
    ($id:literal, [$($of:literal),*]) => {
        &[$((concat!("list_", $of, $id, $of), concat!(".list(", $of, ") -> ", $of))),*]
    };
}

/// Those for lists whose values have an order.
macro_rules! of_ordered {
    ($id:literal) => {
        of_each!(
            $id,
            [
                "int",
                "uint",
                "double",
                "bool",
                "duration",
                "timestamp",
                "string",
                "bytes"
            ]
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "isSorted",
        is_sorted,
        &[
            ("list_int_is_sorted_bool", ".list(int) -> bool"),
            ("list_uint_is_sorted_bool", ".list(uint) -> bool"),
            ("list_double_is_sorted_bool", ".list(double) -> bool"),
            ("list_bool_is_sorted_bool", ".list(bool) -> bool"),
            ("list_duration_is_sorted_bool", ".list(duration) -> bool"),
            ("list_timestamp_is_sorted_bool", ".list(timestamp) -> bool"),
            ("list_string_is_sorted_bool", ".list(string) -> bool"),
            ("list_bytes_is_sorted_bool", ".list(bytes) -> bool"),
        ],
    )
    .named(walked),
    function(
        "sum",
        sum,
        of_each!("_sum_", ["int", "uint", "double", "duration"]),
    )
    .named(walked),
    function("max", max, of_ordered!("_max_")).named(walked),
    function("min", min, of_ordered!("_min_")).named(walked),
    function(
        "indexOf",
        index_of,
        &[
            ("list_a_index_of_int", ".list(A), A -> int"),
            ("string_index_of_string", ".string, string -> int"),
            ("string_index_of_string_int", ".string, string, int -> int"),
        ],
    )
    .named(walked),
    function(
        "lastIndexOf",
        last_index_of,
        &[
            ("list_a_last_index_of_int", ".list(A), A -> int"),
            ("string_last_index_of_string", ".string, string -> int"),
            (
                "string_last_index_of_string_int",
                ".string, string, int -> int",
            ),
        ],
    )
    .named(walked),
    function(
        "includes",
        includes,
        &[("list_includes_dyn_dyn", ".dyn, dyn -> bool")],
    ),
];

/// What it costs to walk along a value with all that is in it.
fn walk(value: &Value<'_>, left: &mut u64) -> u64 {
    if *left == 0 {
        return 0;
    }
    *left -= 1;
    match value {
        Value::String(text) => text.len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => {
            let elements = list.iter().filter_map(Result::ok);
            elements.map(|element| walk(&element, left)).sum()
        }
        Value::Map(map) => {
            let keys = map.keys().into_iter();
            let entries = keys.map(|key| {
                let value = map.get(&key).and_then(Result::ok);
                walk(&key, left) + value.map_or(0, |value| walk(&value, left))
            });
            entries.sum()
        }
        _ => 1,
    }
}

fn walked(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    // More than any budget allows.
    let mut left = 10_000_000;
    args.first()
        .copied()
        .flatten()
        .map_or(1, |value| walk(value, &mut left))
}

/// The order of two values that must have one.
fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    let order = compare(a, b).ok_or_else(EvalError::no_such_overload)?;
    Ok(order.unwrap_or(Ordering::Equal))
}

fn is_sorted<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    meter.work(list.len())?;
    let mut previous: Option<Value<'_>> = None;
    for element in list.iter() {
        let element = element?;
        if let Some(previous) = &previous
            && order(previous, &element)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(element);
    }
    Ok(Value::Bool(true))
}

fn sum<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    meter.work(list.len())?;
    let mut sum: Option<Value<'v>> = None;
    for element in list.iter() {
        let element = element?;
        if !matches!(
            element,
            Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)
        ) {
            return no_such_overload();
        }
        sum = Some(match sum {
            Some(sum) => super::ops::add(meter, &[sum, element])?,
            None => element,
        });
    }
    Ok(sum.unwrap_or(Value::Int(0)))
}

fn extreme<'v>(
    meter: &mut Meter<'_>,
    args: &[Value<'v>],
    name: &str,
    better: Ordering,
) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    meter.work(list.len())?;
    let mut best: Option<Value<'v>> = None;
    for element in list.iter() {
        let element = element?;
        best = match best {
            Some(best) if order(&element, &best)? != better => Some(best),
            Some(_) => Some(element),
            None => {
                order(&element, &element)?;
                Some(element)
            }
        };
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn max<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    extreme(meter, args, "max", Ordering::Greater)
}

fn min<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    extreme(meter, args, "min", Ordering::Less)
}

fn place(meter: &mut Meter<'_>, args: &[Value<'_>], last: bool) -> Result<i64, EvalError> {
    if let Value::String(text) = &args[0] {
        return super::texts::place_of(text, &args[1..], last);
    }
    let list = args[0].as_list()?;
    let mut found = -1;
    for (element, at) in list.iter().zip(0..) {
        meter.work(1)?;
        if equal(meter, &element?, &args[1])? {
            found = at;
            if !last {
                break;
            }
        }
    }
    Ok(found)
}

fn index_of<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    place(meter, args, false).map(Value::Int)
}

fn last_index_of<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    place(meter, args, true).map(Value::Int)
}

fn includes<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let found = match &args[0] {
        Value::List(list) => contains(meter, list, &args[1])?,
        other => equal(meter, other, &args[1])?,
    };
    Ok(Value::Bool(found))
}
