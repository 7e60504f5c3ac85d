//! CEL: whatever an expression is, it compiles or is refused, and what compiles has a value or an
//! error within its budget; its value is of the type that the checker found, and the same without
//! the checker.

use std::sync::LazyLock;

use coracle_cel::{
    Checked, Meter, Program, check, cost,
    env::Env,
    parse,
    schema::DeclType,
    types::Type,
    value::{EvalError, Value},
};
use serde_json::json;

/// Small enough that a run takes no time.
const BUDGET: u64 = 20_000;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::new()
        .variable("self", Type::Dyn)
        .variable("l", Type::list(Type::Int))
        .variable("s", Type::String)
        .variable("m", Type::map(Type::String, Type::Dyn))
        .variable("i", Type::Int)
});

static OBJECT: LazyLock<serde_json::Value> = LazyLock::new(
    || json!({"a": 1, "b": [1, "x", null, {"c": true}], "d": {"e": 1.5}, "f": "2024-02-29T00:00:00Z"}),
);

/// What expressions are made of: a byte of the input is a word.
const WORDS: [&str; 140] = [
    "self",
    "l",
    "s",
    "m",
    "i",
    "x",
    "y",
    "k",
    "v",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "1",
    "0",
    "7",
    "-1",
    "2u",
    "1.5",
    "'a'",
    "'1.2.3.4'",
    "b'a'",
    "true",
    "false",
    "null",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "?",
    "[?",
    ".?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    " in ",
    "all(x,",
    "exists(x,",
    "exists_one(x,",
    "map(x,",
    "filter(x,",
    "all(k, v,",
    "transformList(k, v,",
    "transformMap(k, v,",
    "transformMapEntry(k, v,",
    "optMap(y,",
    "optFlatMap(y,",
    "sortBy(x,",
    "has(self",
    "size(",
    "size()",
    "type(",
    "int(",
    "uint(",
    "double(",
    "string(",
    "bytes(",
    "bool(",
    "dyn(",
    "duration('1h')",
    "timestamp(",
    "getHours()",
    "getFullYear()",
    "startsWith(",
    "contains(",
    "matches(",
    "find(",
    "findAll('[0-9]+')",
    "replace(",
    "split(",
    "substring(",
    "indexOf(",
    "lastIndexOf(",
    "join(",
    "format(",
    "lowerAscii()",
    "trim()",
    "charAt(",
    "strings.quote(",
    "optional.of(",
    "optional.none()",
    "optional.ofNonZeroValue(",
    "value()",
    "hasValue()",
    "or(",
    "orValue(",
    "first()",
    "last()",
    "unwrapOpt()",
    "sets.contains(",
    "sets.equivalent(",
    "sum()",
    "min()",
    "max()",
    "isSorted()",
    "includes(",
    "slice(",
    "flatten()",
    "distinct()",
    "reverse()",
    "sort()",
    "lists.range(",
    "ip(",
    "cidr('10.0.0.0/8')",
    "isIP(",
    "containsIP(",
    "masked()",
    "quantity('1k')",
    "asInteger()",
    "add(",
    "sub(",
    "compareTo(",
    "isLessThan(",
    "semver('1.2.3')",
    "major()",
    "url('https://a:1/b?c=d')",
    "getQuery()",
    "format.named('uuid')",
    "validate(",
    "list",
    "map",
    "string",
];

/// An expression of words: deeper than one of letters.
pub(crate) fn words(data: &[u8]) {
    let words = data
        .iter()
        .map(|byte| WORDS[usize::from(*byte) % WORDS.len()]);
    expression(&words.collect::<String>());
}

fn variables() -> [Value<'static>; 5] {
    let object = DeclType::any()
        .value(&OBJECT)
        .expect("any value is dynamic");
    [
        object.clone(),
        Value::list((0..20).map(Value::Int).collect()),
        Value::string("a text, 1.2.3.4 and µ"),
        object,
        Value::Int(7),
    ]
}

/// An expression.
pub(crate) fn expression(text: &str) {
    let Ok(ast) = parse(text) else {
        return;
    };
    let Ok(unchecked) = Program::unchecked(&ast, &ENV) else {
        return;
    };
    let found = evaluate(&unchecked);
    let Ok(checked) = check(ast, &ENV) else {
        return;
    };
    let _ = cost::estimate(&checked, &|_, _| None);
    let Ok(program) = Program::new(&checked) else {
        return;
    };
    let expected = evaluate(&program);
    if let Ok(value) = &expected {
        assert_type(&checked, value);
    }
    let cancelled = [&found, &expected]
        .into_iter()
        .any(|value| value.as_ref().is_err_and(EvalError::is_cancelled));
    // A NaN is no other NaN, but both print alike.
    assert!(
        cancelled || format!("{found:?}") == format!("{expected:?}"),
        "{found:?} without the checker, {expected:?} with it"
    );
}

fn evaluate(program: &Program) -> Result<Value<'static>, EvalError> {
    let variables = variables();
    let mut meter = Meter::new(BUDGET);
    let value = program.evaluate(&mut meter, &variables);
    match value {
        Ok(Value::Bool(bool)) => Ok(Value::Bool(bool)),
        Ok(Value::Int(int)) => Ok(Value::Int(int)),
        Ok(Value::Null) => Ok(Value::Null),
        Ok(value) => Ok(Value::string(value.type_of().runtime_name())),
        Err(error) => Err(error),
    }
}

/// What was found to be a bool or an int is one.
fn assert_type(checked: &Checked, value: &Value<'_>) {
    let fits = match checked.result() {
        Type::Bool => matches!(value, Value::Bool(_)),
        Type::Int => matches!(value, Value::Int(_)),
        Type::String | Type::Double | Type::Uint | Type::Bytes => {
            matches!(value, Value::String(name) if **name == *checked.result().runtime_name())
        }
        _ => true,
    };
    assert!(fits, "{value:?} is no {}", checked.result());
}
