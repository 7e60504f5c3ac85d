//! Regular expressions. Like Go's, those of the `regex` crate take time that is linear in the text.

use regex::{Regex, RegexBuilder};

use crate::{
    function::{Function, function, size},
    meter::Meter,
    range::{factor, traversal},
    value::{EvalError, Evaluated, Value},
};

/// Bytes that a compiled expression may take.
const MAX_COMPILED: usize = 1 << 20;

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "matches",
        matches,
        &[
            ("matches", "string, string -> bool"),
            ("matches_string", ".string, string -> bool"),
        ],
    )
    .named(searched),
    function(
        "find",
        find,
        &[("string_find_string", ".string, string -> string")],
    )
    .named(searched),
    function(
        "findAll",
        find_all,
        &[
            ("string_find_all_string", ".string, string -> list(string)"),
            (
                "string_find_all_string_int",
                ".string, string, int -> list(string)",
            ),
        ],
    )
    .named(searched),
];

fn searched(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    let text = traversal(size(args, 0).saturating_add(1));
    text.saturating_mul(factor(size(args, 1), 0.25))
}

/// Compiles an expression.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED);
    builder.build().map_err(|error| error.to_string())
}

fn compiled(meter: &mut Meter<'_>, pattern: &Value<'_>) -> Result<Regex, EvalError> {
    let pattern = pattern.as_str()?;
    // Compiling takes far longer than the search that upstream charges for.
    meter.work(1000 + pattern.len() * 100)?;
    compile(pattern).map_err(|error| EvalError::new(format!("Illegal regex: {error}")))
}

fn matches<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    let pattern = compiled(meter, &args[1])?;
    Ok(Value::Bool(pattern.is_match(text)))
}

fn find<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let pattern = compiled(meter, &args[1])?;
    call("find", &pattern, args)
}

fn find_all<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let pattern = compiled(meter, &args[1])?;
    call("findAll", &pattern, args)
}

/// One of these functions with an expression that was compiled before.
pub(crate) fn call<'v>(function: &str, pattern: &Regex, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    match function {
        "matches" => Ok(Value::Bool(pattern.is_match(text))),
        "find" => {
            let found = pattern.find(text).map_or("", |found| found.as_str());
            Ok(Value::string(found))
        }
        _ => {
            let count = match args.get(2) {
                Some(count) => usize::try_from(count.as_int()?).unwrap_or(usize::MAX),
                None => usize::MAX,
            };
            let found = pattern.find_iter(text).take(count);
            let found = found.map(|found| Value::string(found.as_str()));
            Ok(Value::list(found.collect()))
        }
    }
}
