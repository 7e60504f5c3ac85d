//! What keeps an expression from taking the server with it: depth, size, budget, interruption.

use std::{cell::Cell, sync::Arc};

use coracle_cel::{
    Meter, Program, check,
    env::Env,
    parse,
    schema::{DeclKind, DeclType, ListKind},
    types::Type,
    value::Value,
};

/// What compiling says, or evaluating.
fn outcome(expr: &str) -> String {
    let env = Env::new().variable("l", Type::list(Type::Dyn));
    let checked = match parse(expr).and_then(|ast| check(ast, &env)) {
        Ok(checked) => checked,
        Err(issues) => return issues.to_string(),
    };
    let program = Program::new(&checked).expect("it has a program");
    let variables = [Value::list((0..1000).map(Value::Int).collect())];
    match program.evaluate(&mut Meter::new(1_000_000), &variables) {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

/// All that recurses does so on a stack of 2 MiB, as a worker has it.
#[test]
fn the_deepest_expressions_fit_a_workers_stack() {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let deep = |depth: usize| {
        vec![
            format!("{}1{}", "(".repeat(depth), ")".repeat(depth)),
            format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
            format!("{}1{}", "{1:".repeat(depth), "}".repeat(depth)),
            format!("{}1", "true ? 1 : ".repeat(depth)),
            format!("1{}", " + 1".repeat(depth)),
            format!("dyn({{}}){}", ".a".repeat(depth)),
            format!("{}l{}", "l.all(x, ".repeat(depth), ")".repeat(depth)),
            format!("{}1{}", "size([".repeat(depth), "])".repeat(depth)),
            format!("l{}", ".map(x, [x])".repeat(depth)),
            format!(
                "{}[1]{}",
                "[1].transformList(i, v, ".repeat(depth),
                ")".repeat(depth)
            ),
            format!(
                "{}optional.of(1){}",
                "optional.of(".repeat(depth),
                ")".repeat(depth)
            ),
            format!("true{}", " && true || false".repeat(depth)),
            format!("{}true", "!".repeat(depth)),
        ]
    };
    let ran = thread.spawn(move || {
        for depth in [10, 60, 100, 130, 200, 240, 249, 250, 251, 400, 10_000] {
            for expr in deep(depth) {
                let outcome = outcome(&expr);
                let refused = outcome.starts_with("ERROR: <input>:-1:0: ");
                if depth >= 400 {
                    let flat = expr.starts_with("true &&") || expr.starts_with("!!");
                    assert!(refused || flat, "{depth}: {}", &expr[..40]);
                }
            }
        }
    });
    ran.expect("a thread").join().expect("no expression panics");
}

#[test]
fn what_is_too_deep_or_too_long_is_refused_in_upstreams_words() {
    let nested = format!("{}1{}", "[".repeat(251), "]".repeat(251));
    let limit = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
    assert_eq!(outcome(&nested), limit);
    let chain = format!("1{}", " + 1".repeat(251));
    assert_eq!(
        outcome(&chain),
        "ERROR: <input>:-1:0: max recursion depth exceeded"
    );
    let long = format!("'{}'", "x".repeat(100_000));
    let limit = "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100002, \
                 limit 100000";
    assert_eq!(outcome(&long), limit);
}

#[test]
fn a_budget_ends_an_evaluation() {
    let exceeded = "operation cancelled: actual cost limit exceeded";
    assert_eq!(
        outcome("l.all(a, l.all(b, l.all(c, a + b + c >= 0)))"),
        exceeded
    );
    // No operator hides it.
    assert_eq!(
        outcome("l.all(a, l.all(b, l.all(c, a + b >= 0))) || true"),
        exceeded
    );
    assert_eq!(
        outcome("[1].exists(x, l.all(a, l.all(b, l.all(c, a + b >= 0)))) || true"),
        exceeded
    );
    assert_eq!(outcome("lists.range(10000000).size() > 0"), exceeded);
}

/// Costs of upstream do not see these; a server must not feel them.
#[test]
fn what_costs_little_and_takes_long_is_ended() {
    let exceeded = "operation cancelled: actual cost limit exceeded";
    let doubled = |times| format!("[l]{}.size() > 0", ".map(x, x + x)".repeat(times));
    assert_eq!(outcome(&doubled(100)), exceeded);
    // A list of a million elements takes 32 MB. It is no more than that before it ends.
    assert_eq!(outcome(&doubled(9)), "Bool(true)");
    assert_eq!(outcome(&doubled(11)), exceeded);
    let nested = ".map(x, [x, x])".repeat(60);
    assert_eq!(outcome(&format!("[1]{nested} == [1]{nested}")), exceeded);
    let longer = format!(
        "['x']{}.size() > 0",
        ".map(x, x.replace('', x + x))".repeat(20)
    );
    assert_eq!(outcome(&longer), exceeded);
}

#[test]
fn an_evaluation_can_be_interrupted() {
    let env = Env::new().variable("l", Type::list(Type::Int));
    let checked = parse("l.all(x, l.all(y, x + y >= 0))").and_then(|ast| check(ast, &env));
    let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
    let variables = [Value::list((0..1000).map(Value::Int).collect())];
    let asked = Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 10
    };
    let mut meter = Meter::new(u64::MAX).interrupt(&interrupted);
    let error = program
        .evaluate(&mut meter, &variables)
        .expect_err("it was interrupted");
    assert_eq!(error.to_string(), "operation interrupted");
    assert!(error.is_cancelled());
    assert_eq!(asked.get(), 10);
    // A hundred steps between two looks, of eight units each.
    assert!(meter.cost() < 10 * 100 * 8 + 100, "{}", meter.cost());
}

/// The objects an expression looks at are looked at where they are.
#[test]
fn texts_of_an_object_are_borrowed() {
    let data = serde_json::json!(["a text that is part of an object"]);
    let of = DeclType::new(DeclKind::List {
        element: Arc::new(DeclType::new(DeclKind::String)),
        list: ListKind::Atomic,
    });
    let env = Env::new().variable("self", of.checked());
    let checked = parse("self.filter(x, x.size() > 1)[0]").and_then(|ast| check(ast, &env));
    let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
    let variables = [of.value(&data).expect("a list")];
    let value = program.evaluate(&mut Meter::new(1000), &variables);
    let Ok(Value::String(text)) = value else {
        panic!("{value:?}");
    };
    assert!(std::ptr::eq(
        &raw const *text,
        std::ptr::from_ref(data[0].as_str().expect("a text"))
    ));
}

/// A macro that takes its target twice doubles it; a chain of them is no larger for it.
#[test]
fn macros_do_not_make_a_short_text_large() {
    let chain = format!("optional.of(1){}.value() == 1", ".optMap(y, y)".repeat(12));
    assert_eq!(outcome(&chain), "Bool(true)");
    let chain = format!("optional.of(1){}.value() == 1", ".optMap(y, y)".repeat(90));
    let refused = "ERROR: <input>:-1:0: expression too large: macros copy too much of it";
    assert_eq!(outcome(&chain), refused);
}

/// A message is no larger than what it is of.
#[test]
fn many_faults_are_told_in_few_words() {
    let faults = format!("[{}]", vec!["a"; 30_000].join(","));
    let outcome = outcome(&faults);
    assert!(outcome.len() < 10_000, "{} bytes", outcome.len());
    assert!(
        outcome.ends_with("\n29900 more errors were truncated"),
        "{outcome}"
    );
}

/// Who writes an object may choose the expression that a rule searches with.
#[test]
fn what_is_compiled_of_values_is_paid_for() {
    let env = Env::new()
        .variable("l", Type::list(Type::String))
        .variable("p", Type::String);
    let worked = |text: &str, patterns: Vec<&str>, p: &'static str| {
        let checked = parse(text).and_then(|ast| check(ast, &env));
        let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
        let list = patterns.into_iter().map(Value::string).collect();
        let mut meter = Meter::new(u64::MAX);
        let variables = [Value::list(list), Value::string(p)];
        let outcome = program.evaluate(&mut meter, &variables).map(drop);
        (
            outcome.map_err(|error| error.is_cancelled()),
            meter.worked(),
        )
    };
    // One that is asked again and again is made once.
    let (outcome, work) = worked("l.all(x, x.matches(p))", vec!["a"; 1000], r"\pL{15}|a");
    assert_eq!(outcome, Ok(()));
    assert!(work < 1_000_000, "{work}");
    // What takes long to refuse is not refused for nothing, and not without end.
    let other: Vec<String> = (0..1000).map(|at| format!(r"\pL{{99}}{at}")).collect();
    let other = other.iter().map(String::as_str).collect();
    let (outcome, _) = worked("l.all(x, p.matches(x))", other, "a");
    assert_eq!(outcome, Err(true));
}

/// What stays of a program is bounded.
#[test]
fn the_patterns_of_an_expression_have_a_size() {
    let program = |count: usize| {
        let all = (0..count).map(|at| format!(r"'a'.matches('\\pL{{15}}{at}')"));
        let text = all.collect::<Vec<_>>().join(" || ");
        let checked = parse(&text).and_then(|ast| check(ast, &Env::new()));
        let program = Program::new(&checked.expect("it compiles"));
        program.map(|program| program.patterns_size())
    };
    assert_eq!(program(2).ok(), Some(2 << 20));
    let refused = program(50).expect_err("they are too many").to_string();
    assert!(
        refused.contains("take more than 4194304 bytes together"),
        "{refused}"
    );
}

/// Walking along a long text is paid for, where upstream's costs do not see it.
#[test]
fn letters_are_looked_for_within_bounds() {
    let env = Env::new()
        .variable("l", Type::list(Type::Int))
        .variable("s", Type::String);
    for text in ["l.all(x, s.size() > x)", "l.all(x, s.charAt(x) == 'a')"] {
        let checked = parse(text).and_then(|ast| check(ast, &env));
        let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
        let list = Value::list((0..20_000).map(Value::Int).collect());
        let variables = [list, Value::string("a".repeat(500_000))];
        let outcome = program.evaluate(&mut Meter::new(1_000_000), &variables);
        assert!(outcome.is_err_and(|error| error.is_cancelled()), "{text}");
    }
}
