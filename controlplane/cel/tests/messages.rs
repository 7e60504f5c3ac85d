//! What is said of names, types and data that are not there or not as they should be.

use std::sync::Arc;

use coracle_cel::{
    Meter, Program, check,
    env::Env,
    parse,
    schema::{DeclTypes, decl_type},
    types::Type,
    value::{Map, Value},
};
use serde_json::json;

/// Data that is not of its schema's type says so where it is looked at, in upstream's words.
#[test]
fn data_of_another_type_is_told() {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "d": {"type": "string", "format": "duration"}, "x": {"x-kubernetes-int-or-string": true},
    }});
    let data = json!({"i": 1.5, "s": 1, "l": ["a", null], "m": [], "d": "soon", "x": true});
    let of = decl_type(&schema, "self", false).expect("an object");
    let types = Arc::new(DeclTypes::new([&of]));
    let env = Env::new().variable("self", of.checked()).types(types);
    let wrong = "invalid data, ";
    for (expr, message) in [
        ("self.i == 1", "expected int, got float64"),
        ("self.s == ''", "expected string, got int64"),
        ("self.l[1] == ''", "got null for schema with nullable=false"),
        (
            "self.m == {}",
            "expected a map for the provided schema with type=object",
        ),
        (
            "self.x == 1",
            "expected XIntOrString value to be either a string or integer",
        ),
    ] {
        let checked = parse(expr).and_then(|ast| check(ast, &env));
        let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
        let variables = [of.value(&data).expect("an object")];
        let error = program.evaluate(&mut Meter::new(100), &variables);
        let error = error.expect_err("it is of another type").to_string();
        assert_eq!(error, format!("{wrong}{message}"), "{expr}");
    }
}

/// What upstream says of names, types and values that are not there.
#[test]
fn messages() {
    let of = Type::map(Type::String, Type::Int);
    let env = Env::new()
        .variable("m", of)
        .variable("l", Type::list(Type::Int));
    let compiled = |expr: &str| parse(expr).and_then(|ast| check(ast, &env));
    for (expr, message) in [
        (
            "m.a == x",
            "ERROR: <input>:1:8: undeclared reference to 'x' (in container '')\n | m.a == x\n | .......^",
        ),
        (
            "1 + 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        (
            "1.startsWith('a')",
            "ERROR: <input>:1:13: found no matching overload for 'startsWith' applied to 'int.(string)'\n | 1.startsWith('a')\n | ............^",
        ),
        (
            "[1, 'a']",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
        ),
        (
            "1 && true",
            "ERROR: <input>:1:1: expected type 'bool' but found 'int'\n | 1 && true\n | ^",
        ),
        (
            "duration('1x') > duration('1s')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('1x') > duration('1s')\n | .........^",
        ),
    ] {
        let found = compiled(expr).expect_err(expr).to_string();
        assert_eq!(found, message, "{expr}");
    }
    for (expr, message) in [
        ("m.a == 1", "no such key: a"),
        ("m['b'] == 1", "no such key: b"),
        ("l[3] == 1", "index out of bounds: 3"),
        (
            "dyn(l)['a'] == 1",
            "unsupported index type 'string' in list",
        ),
        ("dyn(1) + dyn('a') == 1", "no such overload"),
        ("1 / (l[0] - 1) == 1", "division by zero"),
        ("9223372036854775807 + l[0] == 1", "integer overflow"),
        (
            "optional.none().value() == 1",
            "optional.none() dereference",
        ),
    ] {
        let program = Program::new(&compiled(expr).expect(expr)).expect("it has a program");
        let map = Value::Map(Map::Owned(Arc::default()));
        let variables = [map, Value::list(vec![Value::Int(1)])];
        let error = program.evaluate(&mut Meter::new(100), &variables);
        assert_eq!(error.expect_err(expr).to_string(), message, "{expr}");
    }
}

/// Properties whose names no expression could have, by their escaped names.
#[test]
fn properties_are_selected_by_escaped_names() {
    let int = json!({"type": "integer"});
    let names = ["a-b", "c.d/e", "f__g", "namespace", "in", "self"];
    let properties: serde_json::Map<_, _> = names
        .map(|name| (name.to_owned(), int.clone()))
        .into_iter()
        .collect();
    let schema = json!({"type": "object", "properties": properties});
    let data: serde_json::Map<_, _> = names
        .iter()
        .map(|name| (name.to_string(), json!(1)))
        .collect();
    let data = json!(data);
    let of = decl_type(&schema, "self", false).expect("an object");
    let types = Arc::new(DeclTypes::new([&of]));
    let env = Env::new().variable("self", of.checked()).types(types);
    let expr = "self.a__dash__b + self.c__dot__d__slash__e + self.f__underscores__g + \
                self.__namespace__ + self.namespace + self.__in__ + self.self == 7";
    let checked = parse(expr).and_then(|ast| check(ast, &env));
    let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
    let variables = [of.value(&data).expect("an object")];
    let value = program.evaluate(&mut Meter::new(100), &variables);
    assert!(matches!(value, Ok(Value::Bool(true))), "{value:?}");
}

#[test]
fn signs_of_both_kinds_stand_together_only_before_a_number() {
    for expr in ["!-x", "-!x", "!!-x", "!-(1)", "--!true"] {
        let error = parse(expr).expect_err(expr).to_string();
        assert!(error.starts_with("ERROR: <input>:1:"), "{expr}: {error}");
    }
    for expr in ["!!x", "--x", "!-1", "- -1", "!(-x)", "-(!x)"] {
        parse(expr).expect(expr);
    }
}
