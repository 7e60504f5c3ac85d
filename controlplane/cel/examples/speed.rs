//! How long expressions take to compile and to evaluate, in time of the processor:
//! `cargo run --release -p coracle-cel --example speed`.

#![expect(clippy::print_stdout, reason = "it is what this is for")]

use std::{sync::Arc, time::Duration};

use coracle_cel::{
    Checked, Meter, Program, check,
    env::Env,
    parse,
    schema::{DeclTypes, decl_type},
};
use serde_json::{Value as Json, json};

const EXPRESSIONS: [&str; 5] = [
    "self.l.all(x, x >= 0 && x < 1000)",
    "self.ports.all(p, p.port < 70 && p.name.startsWith('p') && p.name != 'zzzz')",
    "self.l.map(x, x * 2).filter(x, x > 10).size() > 5",
    "self.ports.exists(p, p.name == 'p59')",
    "self.replicas >= self.min && self.name.matches('^[a-z]+$')",
];

const ROUNDS: u32 = 10_000;

fn main() {
    let int = json!({"type": "integer"});
    let text = json!({"type": "string"});
    let port = json!({"type": "object", "properties": {"name": text, "port": int}});
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": int}, "ports": {"type": "array", "items": port},
        "replicas": int, "min": int, "name": text,
    }});
    let ports = (0..60).map(|at| json!({"name": format!("p{at}"), "port": at}));
    let object = json!({
        "l": (0..125).collect::<Vec<_>>(), "ports": ports.collect::<Vec<_>>(),
        "replicas": 5, "min": 3, "name": "abc",
    });
    for expression in EXPRESSIONS {
        measure(&schema, &object, expression);
    }
}

/// What this thread has had of a processor.
fn now() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("the first number"))
}

fn compiled(env: &Env, expression: &str) -> Checked {
    let checked = parse(expression).and_then(|ast| check(ast, env));
    checked.unwrap_or_else(|issues| panic!("{issues}"))
}

fn measure(schema: &Json, object: &Json, expression: &str) {
    let of = decl_type(schema, "self", true).expect("the schema describes an object");
    let types = Arc::new(DeclTypes::new([&of]));
    let env = Env::new().variable("self", of.checked()).types(types);
    let start = now();
    for _ in 0..ROUNDS / 100 {
        Program::new(&compiled(&env, expression)).expect("it has a program");
    }
    let compiling = (now() - start) / (ROUNDS / 100);
    let program = Program::new(&compiled(&env, expression)).expect("it has a program");
    let (mut cost, start) = (0, now());
    for _ in 0..ROUNDS {
        let variables = [of.value(object).expect("the object is of the schema")];
        let mut meter = Meter::new(1_000_000);
        program
            .evaluate(&mut meter, &variables)
            .expect("it has a value");
        cost = meter.cost();
    }
    let each = (now() - start) / ROUNDS;
    println!("{expression}: compiled in {compiling:?}, costs {cost}, {each:?}");
}
