//! Expressions of admission: what they may name, variables, budgets, patches.

use std::sync::Arc;

use coracle_cel::{
    Authorizer, Check, Decision,
    admission::{
        Activation, Budget, Compiler, Expression, Inputs, Names, OutOfBudget, Sort, Variable,
        namespace_type, request_type,
    },
    authorizer, resource_check,
    schema::DeclType,
    types::Type,
    value::{Value, json::Integers},
};
use serde_json::{Value as Json, json};

const ANY: Sort<'static> = Sort {
    results: &[],
    has_authorizer: true,
    has_patches: true,
};

struct Allowing;

impl Authorizer for Allowing {
    fn authorize(&self, check: &Check) -> Decision {
        Decision {
            allowed: check.verb == "get" && check.resource == "pods",
            ..Decision::default()
        }
    }
}

struct Request {
    object: Json,
    request: Json,
    namespace: Json,
}

fn request() -> Request {
    Request {
        object: json!({"metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "names": ["a", "b"]}}),
        request: json!({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "namespace": "n", "operation": "CREATE", "dryRun": false,
            "userInfo": {"username": "u", "groups": ["g"]}}),
        namespace: json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"env": "prod"}}}),
    }
}

fn compiled(variables: &[(&str, &str)], text: &str) -> (Vec<Variable>, Expression) {
    let mut compiler = Compiler::new(Names::dynamic(true));
    for (name, text) in variables {
        compiler.add_variable(name, text, true);
    }
    let expression = compiler.compile(text, ANY);
    (compiler.into_variables(), expression)
}

type Outcome = Result<Result<Json, String>, OutOfBudget>;

fn evaluated(variables: &[(&str, &str)], text: &str, budget: &mut Budget) -> Outcome {
    let (variables, expression) = compiled(variables, text);
    let given = request();
    let any = DeclType::any();
    let allowing: Arc<dyn Authorizer> = Arc::new(Allowing);
    let values = Inputs {
        object: any.value(&given.object).expect("an object"),
        old_object: Value::Null,
        namespace_object: namespace_type()
            .value(&given.namespace)
            .expect("a namespace"),
        request: request_type().value(&given.request).expect("a request"),
        params: Value::Null,
        authorizer: Some([
            authorizer(Arc::clone(&allowing)),
            resource_check(
                allowing,
                Check {
                    resource: "pods".into(),
                    ..Check::default()
                },
            ),
        ]),
    }
    .values();
    let activation = Activation::new(&values, &variables);
    let found = activation.evaluate(&expression, budget)?;
    Ok(found.and_then(|value| value.to_json(Integers::SafeNumbers)))
}

fn check(variables: &[(&str, &str)], text: &str, expect: &Json) {
    let found = evaluated(variables, text, &mut Budget::POLICY.clone());
    assert_eq!(found, Ok(Ok(expect.clone())), "{text}");
}

fn fails(variables: &[(&str, &str)], text: &str, expect: &str) {
    let found = evaluated(variables, text, &mut Budget::POLICY.clone());
    let why = found.expect(text).expect_err(text);
    assert!(why.contains(expect), "{text}: {why}");
}

#[test]
fn requests_and_namespaces_have_types() {
    check(
        &[],
        "request.namespace == 'n' && request.operation == 'CREATE'",
        &json!(true),
    );
    check(&[], "has(request.name)", &json!(false));
    check(&[], "'g' in request.userInfo.groups", &json!(true));
    check(
        &[],
        "namespaceObject.metadata.creationTimestamp.getFullYear()",
        &json!(2026),
    );
    check(
        &[],
        "namespaceObject.metadata.labels.env == 'prod'",
        &json!(true),
    );
    check(&[], "object.spec.replicas + 1", &json!(4));
    check(&[], "oldObject == null && params == null", &json!(true));
    check(
        &[],
        "authorizer.group('').resource('pods').check('get').allowed()",
        &json!(true),
    );
    check(
        &[],
        "authorizer.requestResource.check('list').allowed()",
        &json!(false),
    );
    fails(&[], "request.object", "undefined field 'object'");
    fails(
        &[],
        "request.userInfo.name",
        "compilation error: compilation failed: ERROR: <input>:1:17: undefined field 'name'",
    );
    fails(
        &[],
        "object.spec.missing > 1",
        "expression 'object.spec.missing > 1' resulted in error: no such key: missing",
    );
}

#[test]
fn names_that_are_not_there_are_not_known() {
    let compiler = Compiler::without_variables(Names::dynamic(false));
    let sort = Sort {
        results: &[Type::Bool],
        has_authorizer: false,
        has_patches: false,
    };
    for (text, why) in [
        (
            "params.a",
            "undeclared reference to 'params' (in container '')",
        ),
        (
            "authorizer.path('/').check('get').allowed()",
            "undeclared reference to 'authorizer'",
        ),
        ("variables.a", "undeclared reference to 'variables'"),
        ("Object{} == null", "undeclared reference to 'Object'"),
        ("1", "must evaluate to bool but got int"),
        (
            "[object.metadata]",
            "must evaluate to bool but got list(dyn)",
        ),
        ("null", "must evaluate to bool but got null_type"),
        (
            "timestamp('2026-01-02T03:04:05Z')",
            "got google.protobuf.Timestamp",
        ),
    ] {
        let expression = compiler.compile(text, sort);
        let why_not = expression.fault().expect(text).to_string();
        assert!(why_not.contains(why), "{text}: {why_not}");
    }
    let sort = Sort {
        results: &[Type::String, Type::Null],
        ..sort
    };
    let expression = compiler.compile("1", sort);
    assert_eq!(
        expression.fault().unwrap().to_string(),
        "must evaluate to one of [string null_type] but got int"
    );
}

#[test]
fn variables_are_typed_and_see_those_before_them() {
    let variables = [
        ("replicas", "object.spec.replicas"),
        ("names", "['a', 'b']"),
        ("twice", "variables.replicas * 2"),
        ("user", "request.userInfo"),
    ];
    check(&variables, "variables.twice", &json!(6));
    check(
        &variables,
        "variables.names.all(n, n.size() == 1)",
        &json!(true),
    );
    check(&variables, "has(variables.names)", &json!(true));
    check(&variables, "variables.user.username", &json!("u"));
    fails(
        &variables,
        "variables.names + 1",
        "found no matching overload for '_+_' applied to '(list(string), int)'",
    );
    fails(&variables, "variables.absent", "undefined field 'absent'");
    fails(
        &[("first", "variables.second"), ("second", "1")],
        "variables.first",
        "composited variable \"first\" fails to compile: compilation failed: ERROR: <input>:1:10: \
         undefined field 'second'",
    );
    fails(
        &[("a", "object.spec.missing")],
        "variables.a == 1",
        "expression 'variables.a == 1' resulted in error: composited variable \"a\" fails to evaluate: \
         no such key: missing",
    );
}

#[test]
fn variables_are_evaluated_once_and_only_if_they_are_asked_for() {
    let dear = "'x'.matches('x') && [1, 2, 3].all(i, [1, 2, 3].all(j, i * j < 10))";
    let cost = |variables: &[(&str, &str)], text: &str| {
        let mut budget = Budget::POLICY;
        evaluated(variables, text, &mut budget).unwrap().unwrap();
        Budget::POLICY.left() - budget.left()
    };
    let alone = cost(&[], dear);
    assert_eq!(cost(&[("dear", dear)], "true"), 0);
    // A name and a look into it cost one unit each.
    let once = cost(&[("dear", dear)], "variables.dear");
    assert_eq!(once, alone + 2);
    assert_eq!(
        cost(&[("dear", dear)], "variables.dear && variables.dear"),
        alone + 4
    );
    check(
        &[("wrong", "object.missing")],
        "true || variables.wrong",
        &json!(true),
    );
}

#[test]
fn what_costs_too_much_ends_the_policy() {
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let loops = |depth: usize| {
        let names: Vec<String> = (0..depth).map(|at| format!("v{at}")).collect();
        let open: String = names
            .iter()
            .map(|name| format!("{list}.all({name}, "))
            .collect();
        format!("{open}true{}", ")".repeat(depth))
    };
    fails(
        &[],
        &loops(6),
        "resulted in error: operation cancelled: actual cost limit exceeded",
    );
    // Each variable ends at its own limit; together they are more than there is.
    let dear = loops(6);
    let names: Vec<String> = (0..40).map(|at| format!("v{at}")).collect();
    let variables: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), dear.as_str()))
        .collect();
    let all = names.iter().map(|name| format!("variables.{name}"));
    let text = all.collect::<Vec<_>>().join(" || ");
    let found = evaluated(&variables, &text, &mut Budget::POLICY.clone());
    assert_eq!(found, Err(OutOfBudget));
}

/// Each variable names the one before it: evaluated on a stack of 2 MiB, as a worker has it.
#[test]
fn variables_within_variables_fit_a_workers_stack() {
    let deep = |count: usize| {
        let names: Vec<String> = (0..count).map(|at| format!("v{at}")).collect();
        let texts = (0..count).map(|at| match at {
            0 => "1".to_owned(),
            at => format!("variables.v{} + 1", at - 1),
        });
        let texts: Vec<String> = texts.collect();
        let variables = names.iter().zip(&texts);
        let variables: Vec<(&str, &str)> = variables
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let asked = format!("variables.v{}", count - 1);
        evaluated(&variables, &asked, &mut Budget::POLICY.clone()).unwrap()
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let ran = thread.spawn(move || {
        assert_eq!(deep(50), Ok(json!(50)));
        let why = deep(1000).unwrap_err();
        assert!(why.contains("nested"), "{why}");
    });
    ran.unwrap().join().unwrap();
}

#[test]
fn patches_become_json() {
    check(
        &[],
        "Object{metadata: Object.metadata{labels: {'a': 'b'}}, spec: Object.spec{replicas: object.spec.replicas, \
         containers: [Object.spec.containers{name: 'side', ?image: optional.none()}]}}",
        &json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"replicas": 3, "containers": [{"name": "side"}]}}),
    );
    check(
        &[],
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 1.0}]",
        &json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": 1}]),
    );
    check(
        &[],
        "[JSONPatch{op: 'add', path: '/spec/a', value: [Object.spec.a{name: 'x', b: Object.spec.a.b{}}]}]",
        &json!([{"op": "add", "path": "/spec/a", "value": [{"name": "x", "b": {}}]}]),
    );
    check(
        &[],
        "dyn([object.spec, b'ab', 9007199254740993, duration('1s')])",
        &json!([{"replicas": 3, "names": ["a", "b"]}, "YWI=", "9007199254740993", "1s"]),
    );
    fails(
        &[],
        "Object{spec: Object.wrong{}}",
        "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches \
         field name path from root Object type",
    );
    fails(
        &[],
        "JSONPatch{op: 1}",
        "expected type of field 'op' is 'string' but provided type is 'int'",
    );
    fails(&[], "JSONPatch{other: 1}", "undefined field 'other'");
}

#[test]
fn a_patch_that_is_in_itself_many_times_is_bounded() {
    let names: Vec<String> = (0..40).map(|at| format!("v{at}")).collect();
    let texts = (0..40).map(|at| match at {
        0 => "['0123456789']".to_owned(),
        at => format!("dyn([variables.v{0}, variables.v{0}])", at - 1),
    });
    let texts: Vec<String> = texts.collect();
    let variables = names.iter().zip(&texts);
    let variables: Vec<(&str, &str)> = variables
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    fails(
        &variables,
        "Object{spec: variables.v39}",
        "larger than 3145728 bytes",
    );
}
