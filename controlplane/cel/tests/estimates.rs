//! Estimates by schemas: upstream's `TestCostEstimation`, and those of its `cost_test.go`.

use std::sync::Arc;

use coracle_cel::{
    Meter, Program, authorizer, check,
    cost::{Range, estimate},
    env::Env,
    parse,
    schema::{DeclTypes, decl_type},
    types::Type,
};
use serde_json::{Value as Json, json};

/// The most that a rule on a schema costs.
fn most(schema: &Json, rule: &str) -> u64 {
    let of = decl_type(schema, "self", false).expect("a type");
    let env = Env::new()
        .variable("self", of.checked())
        .variable("oldSelf", of.checked())
        .types(Arc::new(DeclTypes::new([&of])));
    let checked = parse(rule).and_then(|ast| check(ast, &env));
    let checked = checked.unwrap_or_else(|issues| panic!("{issues}"));
    estimate(&checked, &|path, _| of.size_at(path)).max
}

fn schema_of(kind: &str) -> Json {
    match kind {
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        "duration" | "date" | "date-time" | "byte" => json!({"type": "string", "format": kind}),
        kind => json!({"type": kind}),
    }
}

fn array(items: Json, most: Option<i64>) -> Json {
    match most {
        Some(most) => json!({"type": "array", "items": items, "maxItems": most}),
        None => json!({"type": "array", "items": items}),
    }
}

fn map(values: Json, most: Option<i64>) -> Json {
    match most {
        Some(most) => {
            json!({"type": "object", "additionalProperties": values, "maxProperties": most})
        }
        None => json!({"type": "object", "additionalProperties": values}),
    }
}

fn text(most: Option<i64>) -> Json {
    match most {
        Some(most) => json!({"type": "string", "maxLength": most}),
        None => json!({"type": "string"}),
    }
}

#[test]
fn what_schemas_bound() {
    type Make = fn(Json, Option<i64>) -> Json;
    let tests: &[(Make, &str, &str, u64, i64, u64)] = &[
        (array, "number", "self.all(x, true)", 4_718_591, 10, 32),
        (
            array,
            "number",
            "self.all(x, x == 0.0)",
            6_291_454,
            6_291_456,
            25_165_826,
        ),
        (
            array,
            "int-or-string",
            "self.all(x, true)",
            4_718_591,
            10,
            32,
        ),
        (array, "int-or-string", "self[0] == 5", 3, 10, 3),
        (array, "boolean", "self[0] == false", 2, 25, 2),
        (array, "duration", "self.all(x, true)", 2_359_295, 5, 17),
        (array, "duration", "self[0].getHours() == 2", 4, 525, 4),
        (array, "date", "self.all(x, true)", 725_936, 15, 47),
        (array, "date", "self[2].getDayOfMonth() == 13", 4, 42, 4),
        (array, "date-time", "self.all(x, true)", 428_963, 25, 77),
        (map, "int-or-string", "self.all(x, true)", 1_348_169, 15, 47),
        (map, "duration", "self.all(x, true)", 1_048_577, 5, 17),
        (map, "date", "self.all(x, true)", 524_288, 10, 32),
        (map, "date-time", "self.all(x, true)", 349_526, 25, 77),
        (map, "number", "self[\"x\"] == 0.0", 2, 0, 2),
        (map, "integer", "oldSelf.size() == self.size()", 5, 10, 5),
        (map, "date-time", "self[\"a\"] == self[\"b\"]", 8, 7, 8),
        (map, "duration", "self[\"c\"] == self[\"d\"]", 8, 42, 8),
    ];
    for (make, of, rule, unbounded, most_elements, bounded) in tests {
        let found = most(&make(schema_of(of), None), rule);
        assert_eq!(found, *unbounded, "{rule} over {of}");
        let found = most(&make(schema_of(of), Some(*most_elements)), rule);
        assert_eq!(found, *bounded, "{rule} over {of} of {most_elements}");
    }
    assert_eq!(
        most(
            &array(array(schema_of("number"), None), None),
            "self[0][0] == -1.0"
        ),
        3
    );
    let maps = |bound| array(map(schema_of("number"), bound), bound);
    assert_eq!(most(&maps(None), "self.all(x, x.y == 25.2)"), 6_291_452);
    assert_eq!(most(&maps(Some(12)), "self.all(x, x.y == 25.2)"), 74);
    assert_eq!(most(&maps(None), "self[0].x > 2.0"), 4);
}

#[test]
fn what_texts_bound() {
    for (rule, unbounded, longest, bounded) in [
        ("self == \"x\"", 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629_147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
    ] {
        assert_eq!(most(&text(None), rule), unbounded, "{rule}");
        assert_eq!(most(&text(Some(longest)), rule), bounded, "{rule}");
    }
    let texts = |bound| array(text(bound), bound);
    for (rule, unbounded, bounded) in [
        ("self.join(' ') == 'aa bb'", 329_853_068_905, 43),
        ("self.isSorted() == true", 329_854_432_052, 52),
    ] {
        assert_eq!(most(&texts(None), rule), unbounded, "{rule}");
        assert_eq!(most(&texts(Some(10)), rule), bounded, "{rule}");
    }
    let object = |bound| {
        json!({"type": "object", "properties": {
            "str": text(bound), "separator": text(bound), "before": text(Some(2)), "after": text(Some(4)),
        }})
    };
    let replace = "self.str.replace(self.before, self.after) == 'does not matter'";
    assert_eq!(most(&object(None), replace), 629_154);
    assert_eq!(most(&object(Some(4)), replace), 12);
    let split = "self.str.split(self.separator) == []";
    assert_eq!(most(&object(None), split), 629_160);
    assert_eq!(most(&object(Some(10)), split), 22);
    let listed = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
    assert_eq!(most(&listed, "self.contains('A')"), 2);
}

struct Allows;

impl coracle_cel::Authorizer for Allows {
    fn authorize(&self, _: &coracle_cel::Check) -> coracle_cel::Decision {
        coracle_cel::Decision {
            allowed: true,
            ..coracle_cel::Decision::default()
        }
    }
}

/// Estimate and, where upstream's test computes nothing beforehand that a server does, cost.
fn libraries(table: &[(&str, u64, u64, Option<u64>)]) {
    let of = Type::object("kubernetes.authorization.Authorizer");
    let env = Env::new().mixed_literals().variable("authorizer", of);
    let mut wrong = Vec::new();
    for (expr, min, max, cost) in table {
        let checked = parse(expr).and_then(|ast| check(ast, &env));
        let checked = checked.unwrap_or_else(|issues| panic!("{issues}"));
        let found = estimate(&checked, &|_, of| {
            matches!(of, Type::String | Type::Bytes).then_some(Range { min: 0, max: 12 })
        });
        if found
            != (Range {
                min: *min,
                max: *max,
            })
        {
            wrong.push(format!("{expr}: {found:?}, not {min}..{max}"));
        }
        let program = Program::new(&checked).unwrap_or_else(|issues| panic!("{issues}"));
        let mut meter = Meter::new(10_000_000);
        let variables = [authorizer(Arc::new(Allows))];
        if let Err(error) = program.evaluate(&mut meter, &variables) {
            wrong.push(format!("{expr}: {error}"));
        }
        if cost.is_some_and(|cost| cost != meter.cost()) {
            wrong.push(format!("{expr}: costs {}", meter.cost()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lists_and_sets() {
    let ints = "[1, 2, 3, 4, 5]";
    let texts = "['012345678901', '012345678901', '012345678901', '012345678901', '012345678901']";
    let table: Vec<(String, u64, u64)> = [
        (format!("{ints}.sum()"), 15, 15),
        (format!("{ints}.isSorted()"), 15, 15),
        (format!("{texts}.max()"), 15, 25),
        (format!("{ints}.indexOf(3)"), 15, 15),
        (format!("{texts}.lastIndexOf('x')"), 15, 25),
        (
            "'01234567890123456789012345678901234567890123456789'.indexOf('123')".into(),
            5,
            5,
        ),
        ("sets.contains([], [])".into(), 21, 21),
        ("sets.contains([1, 2, 3, 4], [2, 3])".into(), 29, 29),
        ("sets.contains([1, 2.0, 3u], [1.0, 2u, 3])".into(), 30, 30),
        ("sets.contains([[1], [2, 3]], [[2, 3.0]])".into(), 53, 53),
        ("sets.equivalent([1, 2, 3], [3u, 2.0, 1])".into(), 39, 39),
        ("!sets.intersects([1], [\"1\", 2])".into(), 24, 24),
    ]
    .into();
    let table: Vec<_> = table
        .iter()
        .map(|(expr, min, max)| (&**expr, *min, *max, None))
        .collect();
    libraries(&table);
}

#[test]
fn texts() {
    libraries(&[
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii()", 3, 3, Some(3)),
        (
            "'ABCDEFGHIJ abcdefghij'.lowerAscii() == 'abcdefghij ABCDEFGHIJ'.lowerAscii()",
            7,
            9,
            Some(9),
        ),
        ("strings.quote('ABCDEFGHIJ abcdefghij')", 3, 3, Some(3)),
        (
            "strings.quote('ABCDEFGHIJ abcdefghij') == strings.quote('ABCDEFGHIJ abcdefghij')",
            7,
            11,
            Some(9),
        ),
        ("'abc 123 def 123'.replace('123', '456')", 3, 3, Some(3)),
        ("'abc 123 def 123'.replace('', 'x')", 3, 3, Some(3)),
        ("'abc 123 def 123'.split(' ', 1)", 3, 3, Some(3)),
        ("'abc 123 def 123'.substring(5, 8)", 2, 2, Some(2)),
        ("'  abc 123 def 123  '.trim()", 2, 2, Some(2)),
        (
            "['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join(' ')",
            11,
            23,
            Some(5),
        ),
        ("'abc 123 def 123'.find('123')", 2, 2, Some(2)),
        ("'abc 123 def 123'.findAll('123', 1)", 2, 2, Some(2)),
    ]);
}

#[test]
fn addresses() {
    libraries(&[
        ("url('https:://kubernetes.io/').getHost()", 4, 4, None),
        ("ip('192.168.0.1')", 2, 2, Some(2)),
        ("ip('192.168.0.1').family()", 3, 3, Some(3)),
        (
            "ip('2001:db8:3333:4444:5555:6666:7777:8888').isLoopback()",
            5,
            5,
            Some(5),
        ),
        ("ip.isCanonical('192.168.0.1')", 3, 3, Some(3)),
        (
            "ip.isCanonical('2001:db8:3333:4444:5555:6666:7777:8888')",
            8,
            8,
            Some(8),
        ),
        ("cidr('192.168.0.0/16')", 2, 2, Some(2)),
        ("cidr('192.168.0.0/16').masked()", 3, 3, Some(3)),
        ("cidr('192.168.0.0/16').ip()", 3, 3, Some(3)),
        (
            "cidr('192.168.0.0/16').containsCIDR(cidr('192.0.0.0/30'))",
            7,
            11,
            Some(7),
        ),
        (
            "cidr('192.168.0.0/16').containsCIDR('192.0.0.0/30')",
            7,
            11,
            Some(7),
        ),
        (
            "cidr('192.168.0.0/16').containsIP(ip('192.0.0.1'))",
            4,
            7,
            Some(4),
        ),
        (
            "cidr('192.168.0.0/16').containsIP('192.169.0.1')",
            5,
            8,
            Some(5),
        ),
        (
            "cidr('2001:db8::/32').containsIP(ip('2001:db8::1'))",
            5,
            8,
            Some(5),
        ),
        (
            "cidr('2001:db8::/32').containsCIDR('2001:db8::/126')",
            7,
            11,
            Some(7),
        ),
    ]);
}

#[test]
fn authorization_and_quantities() {
    let resource = "authorizer.group('apps').resource('deployments').subresource('status')\
                    .namespace('test').name('backend')";
    let check = format!("{resource}.check('create').allowed()");
    libraries(&[
        ("authorizer.path('/healthz')", 2, 2, Some(2)),
        (resource, 6, 6, Some(6)),
        (
            "authorizer.path('/healthz').check('get').allowed()",
            350_003,
            350_003,
            Some(350_003),
        ),
        (&check, 350_007, 350_007, Some(350_007)),
        ("quantity(\"12Mi\")", 1, 1, Some(1)),
        ("isQuantity(\"20M\")", 1, 1, Some(1)),
        (
            "quantity(\"50M\").isLessThan(quantity(\"50Mi\"))",
            3,
            3,
            Some(3),
        ),
        (
            "quantity(\"50k\").add(20).sub(quantity(\"100k\")).asInteger() < 0",
            6,
            6,
            Some(6),
        ),
        (
            "quantity(\"50.703k\").asApproximateFloat() > 0.0",
            3,
            3,
            Some(3),
        ),
    ]);
}
