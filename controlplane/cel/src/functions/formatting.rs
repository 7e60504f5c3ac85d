//! `format`: values in a text, as `%s`, `%d`, `%.3f` and so on.
//!
//! Source: `ext/formatting.go` of cel-go, which Kubernetes' version of the extension uses.

use super::texts::display;
use crate::{
    function::{Function, function, walk_first},
    meter::Meter,
    value::{EvalError, Evaluated, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[function(
    "format",
    format,
    &[("string_format", ".string, list(dyn) -> string")],
)
.overload(walk_first)];

/// Digits after the point.
const PRECISION: usize = 6;
/// More of them are refused.
const MAX_PRECISION: usize = 100;

fn format<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let values = args[1].as_list()?;
    let mut out = String::new();
    let mut rest = args[0].as_str()?;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (precision, after) = precision(rest)?;
        let mut verbs = after.chars();
        let Some(verb) = verbs.next() else {
            return Err(EvalError::new("unexpected end of string"));
        };
        rest = verbs.as_str();
        let Some(value) = values.get(next) else {
            return Err(EvalError::new(format!("index {next} out of range")));
        };
        next += 1;
        let clause = clause(meter, verb, precision, &value?)?;
        meter.work(1 + clause.len() / 16)?;
        out.push_str(&clause);
    }
    out.push_str(rest);
    Ok(Value::string(out))
}

fn precision(text: &str) -> Result<(Option<usize>, &str), EvalError> {
    let Some(rest) = text.strip_prefix('.') else {
        return Ok((None, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let end = end.ok_or_else(|| {
        EvalError::new("could not find end of precision specifier: missing formatting clause")
    })?;
    let precision: usize = rest[..end].parse().map_err(|_| {
        EvalError::new(format!(
            "error while converting precision to integer: {:?}",
            &rest[..end]
        ))
    })?;
    if precision > MAX_PRECISION {
        return Err(EvalError::new(format!(
            "precision {precision} exceeds maximum allowed precision {MAX_PRECISION}"
        )));
    }
    Ok((Some(precision), &rest[end..]))
}

fn clause(
    meter: &mut Meter<'_>,
    verb: char,
    precision: Option<usize>,
    value: &Value<'_>,
) -> Result<String, EvalError> {
    let precision = precision.unwrap_or(PRECISION);
    let clause = match verb {
        's' => Some(text(meter, value)?),
        'd' => decimal(value),
        'f' => number(value).map(|double| fixed(double, precision)),
        'e' => number(value).map(|double| scientific(double, precision)),
        'b' => match value {
            Value::Bool(bool) => Some(u8::from(*bool).to_string()),
            other => radix(other, 2),
        },
        'x' => hex(value),
        'X' => hex(value).map(|text| text.to_uppercase()),
        'o' => radix(value, 8),
        other => {
            return Err(EvalError::new(format!(
                "unrecognized formatting clause \"{other}\""
            )));
        }
    };
    let of = value.type_of();
    let wanted = match verb {
        'd' => "integer clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => "octal clause can only be used on integers",
    };
    clause.ok_or_else(|| {
        EvalError::new(format!(
            "error during formatting: {wanted}, was given {}",
            of.runtime_name()
        ))
    })
}

fn decimal(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Int(int) => Some(int.to_string()),
        Value::Uint(uint) => Some(uint.to_string()),
        _ => None,
    }
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(double) => Some(*double),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(double: f64) -> Option<&'static str> {
    if double.is_nan() {
        return Some("NaN");
    }
    let infinite = if double > 0.0 { "∞" } else { "-∞" };
    double.is_infinite().then_some(infinite)
}

/// With a comma at each thousand, as in the locale that upstream takes.
fn fixed(double: f64, precision: usize) -> String {
    if let Some(special) = special(double) {
        return special.into();
    }
    let plain = format!("{double:.precision$}");
    let (whole, fraction) = match plain.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (&*plain, String::new()),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

fn scientific(double: f64, precision: usize) -> String {
    if let Some(special) = special(double) {
        return special.into();
    }
    let plain = format!("{double:.precision$e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}\u{202f}×\u{202f}10{}", superscript(sign, exponent))
}

/// Two digits at least.
fn superscript(sign: char, exponent: &str) -> String {
    let padded = format!("{exponent:0>2}");
    let digits = padded.chars().map(|digit| match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        other => char::from_u32(0x2070 + other.to_digit(10).unwrap_or(0)).unwrap_or(other),
    });
    let sign = if sign == '-' { "⁻" } else { "" };
    format!("{sign}{}", digits.collect::<String>())
}

fn radix(value: &Value<'_>, radix: u32) -> Option<String> {
    let (sign, magnitude) = match value {
        Value::Int(int) => (if *int < 0 { "-" } else { "" }, int.unsigned_abs()),
        Value::Uint(uint) => ("", *uint),
        _ => return None,
    };
    Some(match radix {
        2 => format!("{sign}{magnitude:b}"),
        8 => format!("{sign}{magnitude:o}"),
        _ => format!("{sign}{magnitude:x}"),
    })
}

fn hex(value: &Value<'_>) -> Option<String> {
    let bytes = match value {
        Value::String(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        other => return radix(other, 16),
    };
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn text(meter: &mut Meter<'_>, value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::List(_) | Value::Map(_) => nested(meter, value)?,
        Value::Null => "null".into(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Opaque(_) | Value::Optional(_) => {
            return Err(EvalError::new(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, \
                 ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                value.type_of().runtime_name()
            )));
        }
        other => display(other),
    })
}

/// As it could be written in an expression.
fn nested(meter: &mut Meter<'_>, value: &Value<'_>) -> Result<String, EvalError> {
    meter.work(1)?;
    Ok(match value {
        Value::String(text) => super::texts::quoted(text),
        Value::Bytes(bytes) => {
            format!("b{}", super::texts::quoted(&String::from_utf8_lossy(bytes)))
        }
        Value::Double(double) => match special(*double) {
            Some(_) => format!("\"{}\"", display(value)),
            None => format!("{double:.PRECISION$}"),
        },
        Value::Timestamp(_) => format!("timestamp(\"{}\")", display(value)),
        Value::Duration(_) => format!("duration(\"{}\")", display(value)),
        Value::List(list) => {
            let mut parts = Vec::new();
            for element in list.iter() {
                parts.push(nested(meter, &element?)?);
            }
            meter.work(parts.iter().map(String::len).sum::<usize>() / 16)?;
            format!("[{}]", parts.join(", "))
        }
        Value::Map(map) => {
            let mut parts = Vec::new();
            for key in map.keys() {
                if let Some(value) = map.get(&key) {
                    let value = nested(meter, &value?)?;
                    parts.push((nested(meter, &key)?, value));
                }
            }
            parts.sort();
            let parts: Vec<String> = parts
                .into_iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            meter.work(parts.iter().map(String::len).sum::<usize>() / 16)?;
            format!("{{{}}}", parts.join(", "))
        }
        other => text(meter, other)?,
    })
}
