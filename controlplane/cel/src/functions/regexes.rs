//! Functions of regular expressions.

use regex::Regex;

use crate::{
    function::{Function, function, size},
    meter::Meter,
    patterns::{LARGEST, compile},
    range::{factor, traversal},
    value::{EvalError, Evaluated, Value},
};

/// Bytes that are made in the time of one step.
const MADE: usize = 4;
/// Bytes that are gone through in the time of one step, for each byte of the text: a few states of
/// those that an expression has are asked at a time.
const ASKED: usize = 2048;

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

/// Compiles an expression that comes of values. Those that were asked last are known: one is asked
/// for each element of a list.
fn compiled(
    meter: &mut Meter<'_>,
    text: &Value<'_>,
    pattern: &Value<'_>,
) -> Result<Regex, EvalError> {
    let (text, pattern) = (text.as_str()?, pattern.as_str()?);
    let known = match meter.patterns.find(pattern) {
        Some(known) => known,
        None => {
            // Compiling takes far longer than the search that upstream charges for.
            meter.work(1000 + pattern.len() * 100)?;
            let made = compile(pattern);
            meter.work(made.as_ref().map_or(LARGEST, |made| made.size) / MADE)?;
            meter.patterns.keep(pattern, made)
        }
    };
    let known = known.map_err(|error| EvalError::new(format!("Illegal regex: {error}")))?;
    meter.work(text.len().saturating_mul(known.size) / ASKED)?;
    Ok(known.regex)
}

fn matches<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let pattern = compiled(meter, &args[0], &args[1])?;
    Ok(Value::Bool(pattern.is_match(args[0].as_str()?)))
}

fn find<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let pattern = compiled(meter, &args[0], &args[1])?;
    call("find", &pattern, args)
}

fn find_all<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let pattern = compiled(meter, &args[0], &args[1])?;
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
