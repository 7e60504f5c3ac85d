//! Operators but for order, and what the parser makes of macros.

use std::{collections::BTreeMap, sync::Arc};

use super::equal::{contains, join};
use crate::{
    function::{Function, function, no_such_overload, size},
    meter::Meter,
    range::traversal,
    value::{EvalError, Evaluated, Map, Timestamp, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    // These have nodes of their own in a program; here they are declared.
    function("_?_:_", special, &[("conditional", "bool, A, A -> A")]),
    function("_&&_", special, &[("logical_and", "bool, bool -> bool")]),
    function("_||_", special, &[("logical_or", "bool, bool -> bool")]),
    function(
        "@not_strictly_false",
        special,
        &[("not_strictly_false", "bool -> bool")],
    ),
    function(
        "_[_]",
        special,
        &[
            ("index_list", "list(A), int -> A"),
            ("index_map", "map(A, B), A -> B"),
            (
                "optional_list_index_int",
                "optional(list(V)), int -> optional(V)",
            ),
            (
                "optional_map_index_value",
                "optional(map(K, V)), K -> optional(V)",
            ),
        ],
    ),
    function("!_", not, &[("logical_not", "bool -> bool")]),
    function(
        "_+_",
        add,
        &[
            ("add_bytes", "bytes, bytes -> bytes"),
            ("add_double", "double, double -> double"),
            ("add_duration_duration", "duration, duration -> duration"),
            ("add_duration_timestamp", "duration, timestamp -> timestamp"),
            ("add_timestamp_duration", "timestamp, duration -> timestamp"),
            ("add_int64", "int, int -> int"),
            ("add_list", "list(A), list(A) -> list(A)"),
            ("add_string", "string, string -> string"),
            ("add_uint64", "uint, uint -> uint"),
        ],
    )
    .overload(joined),
    function(
        "_-_",
        subtract,
        &[
            ("subtract_double", "double, double -> double"),
            (
                "subtract_duration_duration",
                "duration, duration -> duration",
            ),
            ("subtract_int64", "int, int -> int"),
            (
                "subtract_timestamp_duration",
                "timestamp, duration -> timestamp",
            ),
            (
                "subtract_timestamp_timestamp",
                "timestamp, timestamp -> duration",
            ),
            ("subtract_uint64", "uint, uint -> uint"),
        ],
    ),
    function(
        "_*_",
        multiply,
        &[
            ("multiply_double", "double, double -> double"),
            ("multiply_int64", "int, int -> int"),
            ("multiply_uint64", "uint, uint -> uint"),
        ],
    ),
    function(
        "_/_",
        divide,
        &[
            ("divide_double", "double, double -> double"),
            ("divide_int64", "int, int -> int"),
            ("divide_uint64", "uint, uint -> uint"),
        ],
    ),
    function(
        "_%_",
        modulo,
        &[
            ("modulo_int64", "int, int -> int"),
            ("modulo_uint64", "uint, uint -> uint"),
        ],
    ),
    function(
        "-_",
        negate,
        &[
            ("negate_double", "double -> double"),
            ("negate_int64", "int -> int"),
        ],
    ),
    function(
        "@in",
        is_in,
        &[
            ("in_list", "A, list(A) -> bool"),
            ("in_map", "A, map(A, B) -> bool"),
        ],
    )
    .overload(looked_at),
    function(
        "cel.@mapInsert",
        insert,
        &[
            ("@mapInsert_map_map", "map(K, V), map(K, V) -> map(K, V)"),
            ("@mapInsert_map_key_value", "map(K, V), K, V -> map(K, V)"),
        ],
    ),
];

fn special<'v>(_: &mut Meter<'_>, _: &[Value<'v>]) -> Evaluated<'v> {
    no_such_overload()
}

/// Joining texts copies both; lists are joined by reference.
fn joined(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    match args.first() {
        Some(Some(Value::String(_) | Value::Bytes(_))) => traversal(size(args, 0) + size(args, 1)),
        _ => 1,
    }
}

fn looked_at(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    match args.get(1) {
        Some(Some(Value::List(list))) => list.len() as u64,
        _ => 1,
    }
}

fn overflow(of: &str) -> EvalError {
    EvalError::new(match of {
        "int" => "integer overflow",
        "uint" => "unsigned integer overflow",
        "duration" => "duration overflow",
        _ => "timestamp overflow",
    })
}

fn int<'v>(value: Option<i64>) -> Evaluated<'v> {
    value.map(Value::Int).ok_or_else(|| overflow("int"))
}

fn uint<'v>(value: Option<u64>) -> Evaluated<'v> {
    value.map(Value::Uint).ok_or_else(|| overflow("uint"))
}

fn not<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Bool(bool) => Ok(Value::Bool(!bool)),
        _ => no_such_overload(),
    }
}

/// A moment some nanoseconds later.
fn later<'v>(moment: Timestamp, nanos: i128) -> Evaluated<'v> {
    let sum = moment.later(nanos).map(Value::Timestamp);
    sum.ok_or_else(|| overflow("timestamp"))
}

pub(super) fn add<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            meter.work((a.len() + b.len()) / 16)?;
            Ok(Value::string([&**a, &**b].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.work((a.len() + b.len()) / 16)?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => join(meter, a, b).map(Value::list),
        (Value::Duration(a), Value::Duration(b)) => a
            .checked_add(*b)
            .map(Value::Duration)
            .ok_or_else(|| overflow("duration")),
        (Value::Timestamp(moment), Value::Duration(nanos))
        | (Value::Duration(nanos), Value::Timestamp(moment)) => later(*moment, i128::from(*nanos)),
        _ => no_such_overload(),
    }
}

fn subtract<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => a
            .checked_sub(*b)
            .map(Value::Duration)
            .ok_or_else(|| overflow("duration")),
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let nanos = a.as_nanos() - b.as_nanos();
            let nanos = i64::try_from(nanos);
            nanos.map(Value::Duration).map_err(|_| overflow("duration"))
        }
        (Value::Timestamp(moment), Value::Duration(nanos)) => later(*moment, -i128::from(*nanos)),
        _ => no_such_overload(),
    }
}

fn multiply<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => no_such_overload(),
    }
}

fn divide<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::new("division by zero"))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => no_such_overload(),
    }
}

fn modulo<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::new("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        _ => no_such_overload(),
    }
}

fn negate<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Int(a) => int(a.checked_neg()),
        Value::Double(a) => Ok(Value::Double(-a)),
        _ => no_such_overload(),
    }
}

fn is_in<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[1] {
        Value::List(list) => contains(meter, list, &args[0]).map(Value::Bool),
        Value::Map(map) => match map.get(&args[0]) {
            Some(value) => value.map(|_| Value::Bool(true)),
            None => Ok(Value::Bool(false)),
        },
        _ => no_such_overload(),
    }
}

/// A map with one entry more, or with those of another; a key must be new.
fn insert<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let Value::Map(map) = &args[0] else {
        return no_such_overload();
    };
    let mut entries = match map {
        Map::Owned(entries) => Arc::clone(entries),
        other => {
            let mut entries = BTreeMap::new();
            for key in other.keys() {
                let value = other.get(&key).transpose()?;
                entries.extend(key.key().zip(value));
            }
            Arc::new(entries)
        }
    };
    let new = match &args[1..] {
        [Value::Map(more)] => {
            let keys = more.keys().into_iter();
            let entries = keys.map(|key| Ok((key.clone(), more.get(&key).transpose()?)));
            let entries: Result<Vec<_>, EvalError> = entries.collect();
            entries?
        }
        [key, value] => vec![(key.clone(), Some(value.clone()))],
        _ => return no_such_overload(),
    };
    meter.work(entries.len() + new.len())?;
    let owned = Arc::make_mut(&mut entries);
    for (key, value) in new {
        let (Some(key), Some(value)) = (key.key(), value) else {
            return Err(EvalError::new(format!(
                "unsupported key type: {}",
                key.type_of().runtime_name()
            )));
        };
        let text = super::texts::display(&Value::from(key.clone()));
        if owned.insert(key, value).is_some() {
            return Err(EvalError::new(format!(
                "insert failed: key {text} already exists"
            )));
        }
    }
    Ok(Value::Map(Map::Owned(entries)))
}
