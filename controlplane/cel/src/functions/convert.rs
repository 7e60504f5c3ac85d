//! Conversions between types.

use crate::{
    function::{Cost, Function, function, no_such_overload, walk_first},
    meter::Meter,
    time,
    value::{EvalError, Evaluated, Timestamp, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function("type", type_of, &[("type", "A -> type(A)")]),
    function("dyn", same, &[("to_dyn", "A -> dyn")]),
    function(
        "bool",
        to_bool,
        &[
            ("bool_to_bool", "bool -> bool"),
            ("string_to_bool", "string -> bool"),
        ],
    ),
    Function {
        name: "bytes",
        overloads: &[
            ("bytes_to_bytes", "bytes -> bytes"),
            ("string_to_bytes", "string -> bytes"),
        ],
        call: to_bytes,
        cost: Cost::Overload(text_to_bytes),
    },
    function(
        "double",
        to_double,
        &[
            ("double_to_double", "double -> double"),
            ("int64_to_double", "int -> double"),
            ("string_to_double", "string -> double"),
            ("uint64_to_double", "uint -> double"),
        ],
    ),
    function(
        "duration",
        to_duration,
        &[
            ("duration_to_duration", "duration -> duration"),
            ("int64_to_duration", "int -> duration"),
            ("string_to_duration", "string -> duration"),
        ],
    ),
    function(
        "int",
        to_int,
        &[
            ("int64_to_int64", "int -> int"),
            ("double_to_int64", "double -> int"),
            ("duration_to_int64", "duration -> int"),
            ("string_to_int64", "string -> int"),
            ("timestamp_to_int64", "timestamp -> int"),
            ("uint64_to_int64", "uint -> int"),
        ],
    ),
    Function {
        name: "string",
        overloads: &[
            ("string_to_string", "string -> string"),
            ("bool_to_string", "bool -> string"),
            ("bytes_to_string", "bytes -> string"),
            ("double_to_string", "double -> string"),
            ("duration_to_string", "duration -> string"),
            ("int64_to_string", "int -> string"),
            ("timestamp_to_string", "timestamp -> string"),
            ("uint64_to_string", "uint -> string"),
        ],
        call: to_string,
        cost: Cost::Overload(bytes_to_text),
    },
    function(
        "timestamp",
        to_timestamp,
        &[
            ("timestamp_to_timestamp", "timestamp -> timestamp"),
            ("int64_to_timestamp", "int -> timestamp"),
            ("string_to_timestamp", "string -> timestamp"),
        ],
    ),
    function(
        "uint",
        to_uint,
        &[
            ("uint64_to_uint64", "uint -> uint"),
            ("double_to_uint64", "double -> uint"),
            ("int64_to_uint64", "int -> uint"),
            ("string_to_uint64", "string -> uint"),
        ],
    ),
];

/// Those that are applied when an expression is compiled, if their argument is written in it.
pub(crate) const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

fn text_to_bytes(args: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    match args.first() {
        Some(Some(Value::String(_))) => walk_first(args, result),
        _ => 1,
    }
}

fn bytes_to_text(args: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    match args.first() {
        Some(Some(Value::Bytes(_))) => walk_first(args, result),
        _ => 1,
    }
}

fn same<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(args[0].clone())
}

fn type_of<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Type(args[0].type_of()))
}

fn wrong(text: &str, to: &str) -> EvalError {
    EvalError::new(format!(
        "type conversion error from 'string' to '{to}': {text}"
    ))
}

fn range(to: &str) -> EvalError {
    EvalError::new(match to {
        "uint" => "unsigned integer overflow",
        _ => "integer overflow",
    })
}

fn to_bool<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Bool(bool) => Ok(Value::Bool(*bool)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            text => Err(wrong(text, "bool")),
        },
        _ => no_such_overload(),
    }
}

fn to_bytes<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_such_overload(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a double is the nearest one to the number"
)]
fn to_double<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Double(double) => Ok(Value::Double(*double)),
        Value::Int(int) => Ok(Value::Double(*int as f64)),
        Value::Uint(uint) => Ok(Value::Double(*uint as f64)),
        Value::String(text) => {
            // What is too large is none; what is written as infinite is.
            let named = text
                .trim_start_matches(['+', '-'])
                .starts_with(['i', 'I', 'n', 'N']);
            let double = text.parse().ok();
            let double = double.filter(|double: &f64| named || double.is_finite());
            double
                .map(Value::Double)
                .ok_or_else(|| wrong(text, "double"))
        }
        _ => no_such_overload(),
    }
}

fn to_duration<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        Value::Int(seconds) => seconds
            .checked_mul(1_000_000_000)
            .map(Value::Duration)
            .ok_or_else(|| EvalError::new("duration overflow")),
        Value::String(text) => time::duration(text)
            .map(Value::Duration)
            .ok_or_else(|| wrong(text, "google.protobuf.Duration")),
        _ => no_such_overload(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is bounded first")]
fn to_int<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Int(int) => Ok(Value::Int(*int)),
        Value::Uint(uint) => {
            let int = i64::try_from(*uint);
            int.map(Value::Int).map_err(|_| range("int"))
        }
        // The first double beyond the range on either side is not in it.
        Value::Double(double) if double.abs() < 9_223_372_036_854_775_808.0 => {
            Ok(Value::Int(*double as i64))
        }
        Value::Double(_) => Err(range("int")),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(moment) => Ok(Value::Int(moment.seconds)),
        Value::String(text) => {
            let int = text.parse().map(Value::Int);
            int.map_err(|_| wrong(text, "int"))
        }
        _ => no_such_overload(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is bounded first"
)]
fn to_uint<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Uint(uint) => Ok(Value::Uint(*uint)),
        Value::Int(int) => {
            let uint = u64::try_from(*int);
            uint.map(Value::Uint).map_err(|_| range("uint"))
        }
        Value::Double(double) if *double >= 0.0 && *double < 18_446_744_073_709_551_616.0 => {
            Ok(Value::Uint(*double as u64))
        }
        Value::Double(_) => Err(range("uint")),
        Value::String(text) => {
            let uint = (!text.starts_with('+')).then(|| text.parse().ok());
            let uint = uint.flatten().map(Value::Uint);
            uint.ok_or_else(|| wrong(text, "uint"))
        }
        _ => no_such_overload(),
    }
}

fn to_timestamp<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::Timestamp(moment) => Ok(Value::Timestamp(*moment)),
        Value::Int(seconds) => Timestamp::new(*seconds, 0)
            .map(Value::Timestamp)
            .ok_or_else(|| EvalError::new("timestamp overflow")),
        Value::String(text) => time::timestamp(text)
            .map(Value::Timestamp)
            .ok_or_else(|| wrong(text, "google.protobuf.Timestamp")),
        _ => no_such_overload(),
    }
}

fn to_string<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match &args[0] {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes);
            text.map(Value::string)
                .map_err(|_| EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))
        }
        Value::Opaque(_) | Value::List(_) | Value::Map(_) | Value::Optional(_) | Value::Null => {
            no_such_overload()
        }
        other => Ok(Value::string(super::texts::display(other))),
    }
}
