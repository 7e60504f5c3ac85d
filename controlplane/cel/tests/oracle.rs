//! Another implementation as an oracle: expressions of a grammar have the value, or no value, that
//! Google's implementation for C++ finds. `tests/deps.sh` puts that beside the other tools, as the
//! Python package `cel-expr-python`.
//!
//! `CEL_EXPRESSIONS=1000000 CEL_SEED=7` asks for more, and for others.

#![expect(clippy::print_stdout, reason = "what is compared is told")]

#[path = "oracle/grammar.rs"]
mod grammar;
#[path = "oracle/known.rs"]
mod known;

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use coracle_cel::{
    Meter, Program, check,
    env::Env,
    parse,
    schema::DeclType,
    types::Type,
    value::{Key, List, Map, Value},
};
use serde_json::{Value as Json, json};

use self::grammar::Grammar;

/// A quarter of a minute.
const EXPRESSIONS: usize = 20_000;
const MOST_DEPTH: usize = 4;
const DEADLINE: &str = "600";

/// Variables, and the type of each.
fn variables() -> [(&'static str, Type); 8] {
    [
        ("f", Type::Bool),
        ("i", Type::Int),
        ("d", Type::Double),
        ("s", Type::String),
        ("l", Type::list(Type::Int)),
        ("t", Type::list(Type::String)),
        ("m", Type::map(Type::String, Type::Int)),
        ("x", Type::Dyn),
    ]
}

/// What they are.
fn inputs() -> Json {
    json!([
        {
            "f": true, "i": 7, "d": 2.5, "s": "abcabc", "l": [3, 1, 2], "t": ["b", "a"],
            "m": {"a": 1, "b": 2},
            "x": {
                "a": 1, "b": [1, "x", null, {"c": true}], "d": {"e": 1.5}, "n": null, "s": "é",
                "yes": true, "big": 9_007_199_254_740_993_i64,
            },
        },
        {
            "f": false, "i": -1, "d": -0.5, "s": "", "l": [], "t": [], "m": {},
            "x": {"a": "1", "b": {"a": 2}, "d": [], "yes": "true"},
        },
        {
            "f": false, "i": i64::MIN, "d": 1e300, "s": "Ünï 12 \u{1F600}", "l": [5, 5, -5, 0],
            "t": ["x", "", "x", "abc"], "m": {"": 3, "abc": -4, "é": 0},
            "x": [1, 2.5, "a", [], {}],
        },
        {
            "f": true, "i": 3, "d": 3.0, "s": "2024-02-29T12:00:00Z", "l": [1], "t": ["1h"],
            "m": {"1h": 1}, "x": "a text",
        },
    ])
}

/// What an implementation says of an expression.
pub(crate) enum Answer {
    /// It does not compile.
    Refused(String),
    /// It has no value.
    Error(String),
    /// In letters: `1`, `1u`, `double:` and its bits, `[1, "a"]`, `{"a": 1}`.
    Value(String),
}

/// An expression, and what both say.
pub(crate) struct Case {
    pub(crate) input: usize,
    pub(crate) expression: String,
    pub(crate) ours: Answer,
    pub(crate) theirs: Answer,
}

impl Case {
    fn agrees(&self) -> bool {
        match (&self.ours, &self.theirs) {
            (Answer::Refused(_), Answer::Refused(_)) | (Answer::Error(_), Answer::Error(_)) => true,
            (Answer::Value(ours), Answer::Value(theirs)) => ours == theirs,
            _ => false,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "refused: {}", why.lines().next().unwrap_or_default()),
            Self::Error(why) => write!(f, "no value: {why}"),
            Self::Value(value) => f.write_str(value),
        }
    }
}

fn number(variable: &str, otherwise: usize) -> usize {
    let set = std::env::var(variable).ok();
    set.map_or(otherwise, |text| text.parse().expect("it is a number"))
}

/// The other implementation, unless there are no tools.
fn other() -> Option<PathBuf> {
    let tools = std::env::var_os("CORACLE_TOOLS");
    let needed = tools.is_some();
    let tools = tools.map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools")),
        PathBuf::from,
    );
    let package = tools.join("python-cel");
    if package.exists() {
        return Some(package);
    }
    assert!(!needed, "no {}: `make deps` installs it", package.display());
    println!("SKIPPED: no {}", package.display());
    None
}

fn ask(package: &Path, asked: &Path, answers: &Path) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/answer.py");
    // At the same addresses, so that its maps have the same order every time.
    Command::new("timeout")
        .args([DEADLINE, "setarch", "-R", "/usr/bin/python3", script])
        .args([asked, answers])
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONHASHSEED", "0")
        .stdin(Stdio::null())
        .spawn()
        .expect("timeout and python3 are there")
}

/// Expressions with the input of each, the flat ones first: what differs is told with the least.
fn expressions(inputs: usize) -> Vec<(usize, String)> {
    let wanted = number("CEL_EXPRESSIONS", EXPRESSIONS);
    let mut grammar = Grammar::new(number("CEL_SEED", 1) as u64);
    let made = (0..wanted).map(|at| {
        let depth = 1 + at * MOST_DEPTH / wanted;
        (grammar.below(inputs), grammar.expression(depth))
    });
    // What is long takes long, and says no more.
    made.filter(|(_, expression)| expression.len() < 2_000)
        .collect()
}

/// `None` if evaluating was ended by its budget.
fn answer(env: &Env, expression: &str, input: &Json) -> Option<Answer> {
    let checked = match parse(expression).and_then(|ast| check(ast, env)) {
        Ok(checked) => checked,
        Err(issues) => return Some(Answer::Refused(issues.to_string())),
    };
    let program = match Program::new(&checked) {
        Ok(program) => program,
        Err(issues) => return Some(Answer::Refused(issues.to_string())),
    };
    let values: Result<Vec<_>, _> = env
        .variables()
        .map(|name| DeclType::any().value(&input[name]))
        .collect();
    let values = values.expect("any JSON is a value");
    match program.evaluate(&mut Meter::new(1_000_000), &values) {
        Ok(value) => Some(Answer::Value(written(&value))),
        Err(error) if error.is_cancelled() => None,
        Err(error) => Some(Answer::Error(error.to_string())),
    }
}

fn written(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) if double.is_nan() => "double:nan".to_owned(),
        Value::Double(double) => format!("double:{:016x}", double.to_bits()),
        Value::String(text) => text_of(text),
        Value::Bytes(bytes) => bytes.iter().fold("bytes:".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
        Value::List(list) => {
            let elements: Vec<String> = match list {
                List::Json(items, _) => items.iter().map(json_of).collect(),
                List::Owned(items) => items.iter().map(written).collect(),
            };
            format!("[{}]", elements.join(", "))
        }
        Value::Map(map) => map_of(map),
        Value::Timestamp(moment) => format!(
            "timestamp:{}",
            moment.seconds * 1_000_000 + i64::from(moment.nanos / 1_000)
        ),
        Value::Duration(nanos) => format!("duration:{}", nanos.div_euclid(1_000)),
        Value::Type(of) => format!("type:{}", of.runtime_name()),
        Value::Optional(_) | Value::Opaque(_) => "opaque".to_owned(),
    }
}

fn json_of(json: &Json) -> String {
    written(&DeclType::any().value(json).expect("any JSON is a value"))
}

fn text_of(text: &str) -> String {
    Json::String(text.to_owned()).to_string()
}

fn map_of(map: &Map<'_>) -> String {
    let mut entries: Vec<String> = match map {
        Map::Json(map, _) => map
            .iter()
            .map(|(key, value)| format!("{}: {}", text_of(key), json_of(value)))
            .collect(),
        Map::Owned(entries) | Map::Object(_, entries) => entries
            .iter()
            .map(|(key, value)| {
                let key = match key {
                    Key::Bool(bool) => bool.to_string(),
                    Key::Int(int, _) => int.to_string(),
                    Key::String(text) => text_of(text),
                };
                format!("{key}: {}", written(value))
            })
            .collect(),
    };
    entries.sort();
    format!("{{{}}}", entries.join(", "))
}

/// `None` if that implementation has an answer and cannot give it.
fn theirs(line: &str) -> Option<Answer> {
    let said: Vec<String> = serde_json::from_str(line).expect("each answer is a list of texts");
    match &said[..] {
        [verdict, why] if verdict == "refused" => Some(Answer::Refused(why.clone())),
        [verdict, _, why] if verdict == "error" => Some(Answer::Error(why.clone())),
        [verdict, _, value] if verdict == "value" => Some(Answer::Value(value.clone())),
        [verdict] if verdict == "unsaid" => None,
        _ => panic!("no answer: {line}"),
    }
}

#[test]
fn another_implementation_says_the_same() {
    let Some(package) = other() else {
        return;
    };
    let inputs = inputs();
    let expressions = expressions(inputs.as_array().map_or(0, Vec::len));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (asked, answers) = (directory.join("asked"), directory.join("answers"));
    let mut lines = format!("{inputs}\n");
    for (input, expression) in &expressions {
        let _ = writeln!(lines, "{}", json!([input, expression]));
    }
    let mut file = std::fs::File::create(&asked).expect("target/tmp can be written");
    file.write_all(lines.as_bytes()).expect("it is written");
    let mut other = ask(&package, &asked, &answers);

    let env = variables()
        .into_iter()
        .fold(Env::new().mixed_literals(), |env, (name, of)| {
            env.variable(name, of)
        });
    let ours: Vec<Option<Answer>> = expressions
        .iter()
        .map(|(input, expression)| answer(&env, expression, &inputs[*input]))
        .collect();
    let ended = other.wait().expect("it ends");
    assert!(ended.success(), "{}: {ended}", package.display());

    let said = std::fs::read_to_string(&answers).expect("it wrote its answers");
    let cases = expressions.into_iter().zip(ours).zip(said.lines());
    let cases = cases.filter_map(|(((input, expression), ours), line)| {
        let (ours, theirs) = (ours?, theirs(line)?);
        Some(Case {
            input,
            expression,
            ours,
            theirs,
        })
    });
    compare(cases.collect());
}

fn compare(cases: Vec<Case>) {
    let (mut values, mut refused, mut errors) = (0, 0, 0);
    for case in &cases {
        match case.theirs {
            Answer::Value(_) => values += 1,
            Answer::Refused(_) => refused += 1,
            Answer::Error(_) => errors += 1,
        }
    }
    println!(
        "{} expressions: {values} values, {errors} without, {refused} refused",
        cases.len()
    );
    let mut different: Vec<&Case> = cases.iter().filter(|case| !case.agrees()).collect();
    for known in known::DIFFERENCES {
        let before = different.len();
        different.retain(|case| !(known.is)(case));
        let found = before - different.len();
        println!("{found:6} {}", known.what);
    }
    for case in different.iter().take(40) {
        println!(
            "{}\n  input {}\n  ours   {}\n  theirs {}",
            case.expression, case.input, case.ours, case.theirs
        );
    }
    assert!(different.is_empty(), "{} differ", different.len());
    assert!(values > cases.len() / 3, "most of them have a value");
}
