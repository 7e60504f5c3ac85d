//! The specification's own vectors, those that are of no protocol buffers and of no extension that
//! Kubernetes leaves out. `tests/deps.sh` puts them beside the other tools.

#![expect(clippy::print_stdout, reason = "what is left out is told")]

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use coracle_cel::{
    Meter, Program, check,
    env::Env,
    parse,
    types::Type,
    value::{Key, Map, Text, Value},
};
use serde_json::Value as Json;

/// Suites, or sections of them, that Kubernetes' language is not concerned with.
const LEFT_OUT: &[&str] = &[
    "bindings_ext",
    "block_ext",
    "encoders_ext",
    "enums",
    "fields",
    "math_ext",
    "namespace",
    "proto2",
    "proto2_ext",
    "proto3",
    // Of a later version of the extension than Kubernetes takes.
    "string_ext/format",
    "type_deductions/wrappers",
    "wrappers",
];

fn vectors(name: &str) -> Option<Json> {
    let tools = std::env::var_os("CORACLE_TOOLS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools")),
        PathBuf::from,
    );
    let path = tools.join("cel-spec").join(format!("{name}.json"));
    let Ok(text) = std::fs::read(&path) else {
        println!("SKIPPED: no {}", path.display());
        return None;
    };
    Some(serde_json::from_slice(&text).expect("vectors are JSON"))
}

fn walk<'a>(suite: &'a Json, path: &str, found: &mut Vec<(String, &'a Json)>) {
    for test in suite["tests"].as_array().into_iter().flatten() {
        found.push((path.to_owned(), test));
    }
    for inner in suite["suites"].as_array().into_iter().flatten() {
        let name = inner["name"].as_str().unwrap_or("");
        let path = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}/{name}")
        };
        walk(inner, &path, found);
    }
}

/// A value of the vectors; `None` if it is one of protocol buffers.
fn value(json: &Json) -> Option<Value<'static>> {
    let (kind, of) = json.as_object()?.iter().next()?;
    Some(match &**kind {
        "nullValue" => Value::Null,
        "boolValue" => Value::Bool(of.as_bool()?),
        "int64Value" => Value::Int(of.as_str()?.parse().ok()?),
        "uint64Value" => Value::Uint(of.as_str()?.parse().ok()?),
        "doubleValue" => Value::Double(match of {
            Json::String(text) => match &**text {
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => f64::NAN,
            },
            number => number.as_f64()?,
        }),
        "stringValue" => Value::string(of.as_str()?),
        "bytesValue" => {
            let decoded =
                base64::Engine::decode(&base64::engine::general_purpose::STANDARD, of.as_str()?);
            Value::Bytes(decoded.ok()?.into())
        }
        "typeValue" => Value::Type(named(of.as_str()?)?),
        "listValue" => {
            let values = of["values"].as_array().cloned().unwrap_or_default();
            Value::list(values.iter().map(value).collect::<Option<_>>()?)
        }
        "mapValue" => {
            let mut entries = BTreeMap::new();
            for entry in of["entries"].as_array().into_iter().flatten() {
                let key = match value(&entry["key"])? {
                    Value::Bool(bool) => Key::Bool(bool),
                    Value::Int(int) => Key::Int(int.into(), false),
                    Value::Uint(uint) => Key::Int(uint.into(), true),
                    Value::String(text) => Key::String(Text::Owned((&*text).into())),
                    _ => return None,
                };
                entries.insert(key, value(&entry["value"])?);
            }
            Value::Map(Map::Owned(Arc::new(entries)))
        }
        "objectValue" => {
            let text = of["value"].as_str().unwrap_or("");
            let expr = match of["@type"].as_str()? {
                "type.googleapis.com/google.protobuf.Duration" => format!("duration('{text}')"),
                "type.googleapis.com/google.protobuf.Timestamp" => format!("timestamp('{text}')"),
                _ => return None,
            };
            let ast = parse(&expr).ok()?;
            let program = Box::leak(Box::new(Program::unchecked(&ast, &Env::new()).ok()?));
            program.evaluate(&mut Meter::new(100), &[]).ok()?
        }
        _ => return None,
    })
}

fn named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        _ => return None,
    })
}

/// A declared type of the vectors.
fn declared(json: &Json) -> Option<Type> {
    let (kind, of) = json.as_object()?.iter().next()?;
    Some(match (&**kind, of.as_str().unwrap_or("")) {
        ("primitive", "BOOL") => Type::Bool,
        ("primitive", "BYTES") => Type::Bytes,
        ("primitive", "DOUBLE") => Type::Double,
        ("primitive", "INT64") => Type::Int,
        ("primitive", "STRING") => Type::String,
        ("primitive", "UINT64") => Type::Uint,
        ("null", _) => Type::Null,
        ("dyn", _) => Type::Dyn,
        ("wellKnown", "TIMESTAMP") => Type::Timestamp,
        ("wellKnown", "DURATION") => Type::Duration,
        ("typeParam", name) => Type::Param(name.into()),
        ("listType", _) if of.get("elemType").is_none() => Type::list(Type::Dyn),
        ("listType", _) => Type::list(declared(&of["elemType"])?),
        ("mapType", _) if of.get("keyType").is_none() => Type::map(Type::Dyn, Type::Dyn),
        ("mapType", _) => Type::map(declared(&of["keyType"])?, declared(&of["valueType"])?),
        ("type", _) => match declared(of) {
            Some(of) => of.of(),
            None => Type::Type(None),
        },
        ("abstractType", _) if of["name"] == "optional_type" => {
            Type::optional(declared(&of["parameterTypes"][0])?)
        }
        _ => return None,
    })
}

/// Whether what was evaluated is what was expected; a NaN is a NaN.
fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
    if let (Value::Double(a), Value::Double(b)) = (a, b) {
        return a == b || (a.is_nan() && b.is_nan());
    }
    if let (Value::Type(a), Value::Type(b)) = (a, b) {
        return a.runtime_name() == b.runtime_name();
    }
    format!("{a:?}").replace("Borrowed", "Owned") == format!("{b:?}").replace("Borrowed", "Owned")
}

enum Ran {
    LeftOut,
    Right,
    Wrong(String),
}

fn environment(test: &Json) -> Option<Env> {
    let mut env = Env::new().mixed_literals();
    for declaration in test["typeEnv"].as_array().into_iter().flatten() {
        let of = declared(declaration["ident"].get("type")?)?;
        env = env.variable(declaration["name"].as_str()?, of);
    }
    for name in test["bindings"].as_object().into_iter().flatten() {
        if !env.variables().any(|known| known == name.0) {
            env = env.variable(name.0, Type::Dyn);
        }
    }
    Some(env)
}

fn run(test: &Json) -> Ran {
    let expr = test["expr"].as_str().unwrap_or("");
    let foreign = [
        "TestAllTypes",
        "google.protobuf.",
        "math.",
        "NullValue",
        "GlobalEnum",
        "proto",
    ];
    let of_time = expr
        .replace("google.protobuf.Timestamp", "")
        .replace("google.protobuf.Duration", "");
    if foreign.iter().any(|word| of_time.contains(word)) || expr.contains('`') {
        return Ran::LeftOut;
    }
    let Some(env) = environment(test) else {
        return Ran::LeftOut;
    };
    let expected = match (test.get("value"), test.get("typedResult")) {
        (Some(of), _) => match value(of) {
            Some(value) => Some(value),
            None => return Ran::LeftOut,
        },
        (None, Some(of)) if of.get("result").is_some() => match value(&of["result"]) {
            Some(value) => Some(value),
            None => return Ran::LeftOut,
        },
        _ => None,
    };
    let fails = test.get("evalError").is_some();
    let compiled = parse(expr).and_then(|ast| {
        if test["disableCheck"] == true {
            return Program::unchecked(&ast, &env);
        }
        let checked = check(ast, &env)?;
        if let Some(of) = test["typedResult"].get("deducedType").and_then(declared)
            && of.to_string() != checked.result().to_string()
        {
            println!("{expr}: {} is not {of}", checked.result());
        }
        Program::new(&checked)
    });
    if test["checkOnly"] == true {
        return match compiled {
            Ok(_) => Ran::Right,
            Err(issues) => Ran::Wrong(issues.to_string()),
        };
    }
    let program = match compiled {
        Ok(program) => program,
        Err(_) if fails => return Ran::Right,
        Err(issues) => return Ran::Wrong(issues.to_string()),
    };
    let mut variables = Vec::new();
    for name in env.variables() {
        let Some(bound) = test["bindings"].get(name) else {
            break;
        };
        match value(&bound["value"]) {
            Some(bound) => variables.push(bound),
            None => return Ran::LeftOut,
        }
    }
    match (
        program.evaluate(&mut Meter::new(10_000_000), &variables),
        expected,
    ) {
        (Ok(found), Some(expected)) if same(&found, &expected) => Ran::Right,
        (Ok(found), Some(expected)) => Ran::Wrong(format!("{found:?} is not {expected:?}")),
        (Err(_), None) if fails => Ran::Right,
        (Ok(Value::Bool(true)), None) if !fails => Ran::Right,
        (found, _) => Ran::Wrong(format!("{found:?}, but {:?}", test.get("evalError"))),
    }
}

#[test]
fn conformance() {
    let Some(vectors) = vectors("conformance") else {
        return;
    };
    let mut tests = Vec::new();
    walk(&vectors, "", &mut tests);
    let (mut right, mut left_out, mut wrong) = (0, 0, Vec::new());
    for (path, test) in &tests {
        let test = &test["original"];
        if LEFT_OUT.iter().any(|suite| path.starts_with(suite)) {
            left_out += 1;
            continue;
        }
        match run(test) {
            Ran::LeftOut => left_out += 1,
            Ran::Right => right += 1,
            Ran::Wrong(why) => wrong.push(format!("{path}: {}: {why}", test["expr"])),
        }
    }
    println!("{right} right, {left_out} left out, {} wrong", wrong.len());
    for line in &wrong {
        println!("{line}");
    }
    assert!(wrong.is_empty());
}

/// Expressions that Kubernetes takes and these vectors do not, by what they say: optional syntax,
/// numbers compared across types, a bound of 32, and messages.
const OTHERWISE: &[&str] = &[
    "unsupported syntax",
    "limit exceeded",
    "recursion depth",
    "`",
];

/// What vectors of cel-go's parser and checker say of an expression that is wrong. After a fault in
/// the grammar cel-go goes on and finds more; the first one counts.
fn messages(name: &str, wanted: usize) {
    let Some(vectors) = vectors(name) else {
        return;
    };
    let mut tests = Vec::new();
    walk(&vectors, "", &mut tests);
    let (mut right, mut wrong) = (0, Vec::new());
    for (_, test) in &tests {
        let Some(expected) = test["error"].as_str() else {
            continue;
        };
        let expr = test["original"]["expr"].as_str().unwrap_or("");
        let compared = ["<", ">"].iter().any(|sign| expr.contains(sign)) && expr.contains("1.0");
        let otherwise = OTHERWISE.iter().any(|word| expected.contains(word));
        if otherwise || compared || expr.contains("TestAllTypes") {
            continue;
        }
        let Some(env) = environment(&test["original"]) else {
            continue;
        };
        let expected = expected.replace("ERROR: :", "ERROR: <input>:");
        let expected = expected.split("\nERROR").next().unwrap_or("").trim_end();
        let found = match parse(expr).and_then(|ast| check(ast, &env)) {
            Ok(checked) => format!("{}", checked.result()),
            Err(issues) => issues.to_string(),
        };
        let first = found.split("\nERROR").next().unwrap_or("").trim_end();
        if first == expected {
            right += 1;
        } else {
            wrong.push(format!(
                "{expr:?}\n  wanted {expected:?}\n  found  {first:?}"
            ));
        }
    }
    println!("{name}: {right} right, {} wrong", wrong.len());
    for line in &wrong {
        println!("{line}");
    }
    assert!(right >= wanted);
}

#[test]
fn messages_of_the_parser() {
    messages("parsing", 117);
}

#[test]
fn messages_of_the_checker() {
    messages("checking", 11);
}
