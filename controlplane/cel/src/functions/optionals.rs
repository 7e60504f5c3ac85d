//! Values that may be absent. `or` and `orValue`, which do not look at what they do not need, have
//! nodes of their own in a program.

use crate::{
    function::{Function, function, no_such_overload},
    meter::Meter,
    value::{EvalError, Evaluated, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function("optional.of", of, &[("optional_of", "V -> optional(V)")]),
    function(
        "optional.ofNonZeroValue",
        of_non_zero,
        &[("optional_ofNonZeroValue", "V -> optional(V)")],
    ),
    function(
        "optional.none",
        none,
        &[("optional_none", "-> optional(V)")],
    ),
    function("value", value, &[("optional_value", ".optional(V) -> V")]),
    function(
        "hasValue",
        has_value,
        &[("optional_hasValue", ".optional(V) -> bool")],
    ),
    function(
        "or",
        none,
        &[(
            "optional_or_optional",
            ".optional(V), optional(V) -> optional(V)",
        )],
    ),
    function(
        "orValue",
        none,
        &[("optional_orValue_value", ".optional(V), V -> V")],
    ),
    function(
        "_?._",
        none,
        &[("select_optional_field", "dyn, string -> optional(V)")],
    ),
    function(
        "_[?_]",
        none,
        &[
            ("list_optindex_optional_int", "list(V), int -> optional(V)"),
            (
                "optional_list_optindex_optional_int",
                "optional(list(V)), int -> optional(V)",
            ),
            ("map_optindex_optional_value", "map(K, V), K -> optional(V)"),
            (
                "optional_map_optindex_optional_value",
                "optional(map(K, V)), K -> optional(V)",
            ),
        ],
    ),
    function("first", first, &[("list_first", ".list(V) -> optional(V)")]),
    function("last", last, &[("list_last", ".list(V) -> optional(V)")]),
    function(
        "optional.unwrap",
        unwrap,
        &[("optional_unwrap", "list(optional(V)) -> list(V)")],
    ),
    function(
        "unwrapOpt",
        unwrap,
        &[("optional_unwrapOpt", ".list(optional(V)) -> list(V)")],
    ),
];

fn of<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::some(args[0].clone()))
}

fn none<'v>(_: &mut Meter<'_>, _: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Optional(None))
}

fn of_non_zero<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let zero = match &args[0] {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(bool) => !bool,
        Value::Int(int) => *int == 0,
        Value::Uint(uint) => *uint == 0,
        Value::Double(double) => *double == 0.0,
        Value::Duration(nanos) => *nanos == 0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.len() == 0,
        Value::Map(map) => map.len() == 0,
        _ => false,
    };
    if zero {
        none(meter, args)
    } else {
        of(meter, args)
    }
}

fn value<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Optional(Some(value)) => Ok((**value).clone()),
        Value::Optional(None) => Err(EvalError::new("optional.none() dereference")),
        _ => no_such_overload(),
    }
}

fn has_value<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Optional(value) => Ok(Value::Bool(value.is_some())),
        _ => no_such_overload(),
    }
}

fn at<'v>(list: &Value<'v>, at: Option<usize>) -> Evaluated<'v> {
    let list = list.as_list()?;
    match at.and_then(|at| list.get(at)) {
        Some(value) => value.map(Value::some),
        None => Ok(Value::Optional(None)),
    }
}

fn first<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    at(&args[0], Some(0))
}

fn last<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    at(&args[0], args[0].as_list()?.len().checked_sub(1))
}

fn unwrap<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    meter.work(list.len())?;
    let mut present = Vec::new();
    for element in list.iter() {
        match element? {
            Value::Optional(value) => present.extend(value.map(|value| (*value).clone())),
            _ => return no_such_overload(),
        }
    }
    Ok(Value::list(present))
}
