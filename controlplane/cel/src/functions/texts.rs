//! Texts: the standard library's functions and those of cel-go's strings extension, version 2.

use crate::{
    function::{Function, function, no_such_overload, size, walk_first, walk_first_twice},
    meter::Meter,
    range::{factor, traversal},
    time,
    value::{EvalError, Evaluated, Value},
};

/// Bytes of a text whose letters are counted in the time of one step.
const COUNTED: usize = 256;
/// Bytes of a text that are walked along, letter by letter.
const WALKED: usize = 32;

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "size",
        length,
        &[
            ("size_bytes", "bytes -> int"),
            ("bytes_size", ".bytes -> int"),
            ("size_list", "list(A) -> int"),
            ("list_size", ".list(A) -> int"),
            ("size_map", "map(A, B) -> int"),
            ("map_size", ".map(A, B) -> int"),
            ("size_string", "string -> int"),
            ("string_size", ".string -> int"),
        ],
    ),
    function(
        "contains",
        contains,
        &[("contains_string", ".string, string -> bool")],
    )
    .overload(product),
    function(
        "startsWith",
        starts_with,
        &[("starts_with_string", ".string, string -> bool")],
    )
    .overload(walk_first),
    function(
        "endsWith",
        ends_with,
        &[("ends_with_string", ".string, string -> bool")],
    )
    .overload(walk_first),
    function(
        "charAt",
        char_at,
        &[("string_char_at_int", ".string, int -> string")],
    ),
    function(
        "lowerAscii",
        lower,
        &[("string_lower_ascii", ".string -> string")],
    )
    .named(walk_first),
    function(
        "upperAscii",
        upper,
        &[("string_upper_ascii", ".string -> string")],
    )
    .named(walk_first),
    function("trim", trim, &[("string_trim", ".string -> string")]).named(walk_first),
    function(
        "substring",
        substring,
        &[
            ("string_substring_int", ".string, int -> string"),
            ("string_substring_int_int", ".string, int, int -> string"),
        ],
    )
    .named(walk_first),
    function(
        "replace",
        replace,
        &[
            (
                "string_replace_string_string",
                ".string, string, string -> string",
            ),
            (
                "string_replace_string_string_int",
                ".string, string, string, int -> string",
            ),
        ],
    )
    .named(walk_first_twice),
    function(
        "split",
        split,
        &[
            ("string_split_string", ".string, string -> list(string)"),
            (
                "string_split_string_int",
                ".string, string, int -> list(string)",
            ),
        ],
    )
    .named(walk_first_twice),
    function(
        "join",
        join,
        &[
            ("list_join", ".list(string) -> string"),
            ("list_join_string", ".list(string), string -> string"),
        ],
    )
    .named(twice_the_result),
    function(
        "strings.quote",
        quote,
        &[("strings_quote", "string -> string")],
    )
    .overload(walk_first),
    function(
        "jsonpatch.escapeKey",
        escape_key,
        &[("string_jsonpatch_escapeKey_string", "string -> string")],
    )
    .named(walk_first),
];

fn product(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    traversal(size(args, 0)).saturating_mul(traversal(size(args, 1)))
}

fn twice_the_result(_: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    factor(result.map_or(1, Value::size), 0.2)
}

/// A value as `string()` gives it; texts as they are.
pub(crate) fn display(value: &Value<'_>) -> String {
    match value {
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => uint.to_string(),
        Value::Double(double) => go_double(*double),
        Value::String(text) => text.to_string(),
        Value::Timestamp(moment) => time::format_timestamp(*moment),
        Value::Duration(nanos) => time::format_duration(*nanos),
        Value::Type(of) => of.runtime_name().to_owned(),
        other => other.type_of().runtime_name().to_owned(),
    }
}

/// As Go's `%g` writes a double: an exponent below -4 and from 6 on.
fn go_double(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{double}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn length<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    if let Value::String(text) = &args[0] {
        // Its letters are counted, which upstream does for nothing.
        meter.work(text.len() / COUNTED)?;
    }
    match &args[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => no_such_overload(),
    }
}

fn contains<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(args[0].as_str()?.contains(args[1].as_str()?)))
}

fn starts_with<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(
        args[0].as_str()?.starts_with(args[1].as_str()?),
    ))
}

fn ends_with<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(args[0].as_str()?.ends_with(args[1].as_str()?)))
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

/// Where a character begins; `at` may be the end.
fn place(text: &str, at: i64) -> Result<usize, EvalError> {
    let index = usize::try_from(at).map_err(|_| out_of_range(at))?;
    let mut places = text
        .char_indices()
        .map(|(place, _)| place)
        .chain(std::iter::once(text.len()));
    places.nth(index).ok_or_else(|| out_of_range(at))
}

fn char_at<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    meter.work(text.len() / WALKED)?;
    let rest = &text[place(text, args[1].as_int()?)?..];
    Ok(Value::string(
        rest.chars().next().map(String::from).unwrap_or_default(),
    ))
}

fn lower<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(args[0].as_str()?.to_ascii_lowercase()))
}

fn upper<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(args[0].as_str()?.to_ascii_uppercase()))
}

fn trim<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(args[0].as_str()?.trim()))
}

fn substring<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    let start = args[1].as_int()?;
    let from = place(text, start)?;
    let Some(end) = args.get(2) else {
        return Ok(Value::string(&text[from..]));
    };
    let end = end.as_int()?;
    if start > end {
        return Err(EvalError::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    Ok(Value::string(&text[from..place(text, end)?]))
}

fn replace<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, old, new) = (args[0].as_str()?, args[1].as_str()?, args[2].as_str()?);
    let count = match args.get(3) {
        Some(count) => usize::try_from(count.as_int()?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let found = if old.is_empty() {
        text.len() + 1
    } else {
        text.len() / old.len()
    };
    // Upstream charges by the text alone: what is put in can be much longer.
    meter.work(found.min(count).saturating_mul(new.len()) / 16)?;
    Ok(Value::string(text.replacen(old, new, count)))
}

fn split<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, separator) = (args[0].as_str()?, args[1].as_str()?);
    let count = match args.get(2) {
        Some(count) => usize::try_from(count.as_int()?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    if count == 0 {
        return Ok(Value::list(Vec::new()));
    }
    meter.work(text.len())?;
    if !separator.is_empty() {
        let parts = text.splitn(count, separator).map(Value::string);
        return Ok(Value::list(parts.collect()));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == count {
            parts.push(Value::string(rest));
            break;
        }
        parts.push(Value::string(&rest[..c.len_utf8()]));
        rest = &rest[c.len_utf8()..];
    }
    Ok(Value::list(parts))
}

fn join<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let separator = match args.get(1) {
        Some(separator) => separator.as_str()?,
        None => "",
    };
    let mut joined = String::new();
    for (at, part) in args[0].as_list()?.iter().enumerate() {
        let part = part?;
        let part = part.as_str()?;
        meter.work(1 + (part.len() + separator.len()) / 16)?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(part);
    }
    Ok(Value::string(joined))
}

fn quote<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(quoted(args[0].as_str()?)))
}

/// In double quotes, with escapes.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn escape_key<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let key = args[0].as_str()?;
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}

/// Where a text is in another, in characters: the first place from an offset on, or the last one up
/// to it. -1 is nowhere.
pub(super) fn place_of(text: &str, args: &[Value<'_>], last: bool) -> Result<i64, EvalError> {
    let part = args[0].as_str()?;
    let offset = args.get(1).map(Value::as_int).transpose()?;
    let count = |to: usize| i64::try_from(text[..to].chars().count()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(match offset {
            Some(offset) => offset,
            None if last => count(text.len()),
            None => 0,
        });
    }
    let found = match (offset, last) {
        (None, false) => text.find(part),
        (None, true) => text.rfind(part),
        (Some(offset), false) => {
            let from = place(text, offset)?;
            text[from..].find(part).map(|at| from + at)
        }
        (Some(offset), true) => {
            let from = place(text, offset)?;
            let mut places = (0..=from).rev();
            places.find(|at| text.is_char_boundary(*at) && text[*at..].starts_with(part))
        }
    };
    Ok(found.map_or(-1, count))
}
