//! What each library's functions are worth, and what they say of arguments that they cannot take.

use std::sync::{Arc, Mutex};

use coracle_cel::{
    Authorizer, Check, Decision, Meter, Program, authorizer, check, env::Env, parse, types::Type,
    value::Value,
};

fn evaluate(expr: &str) -> Result<bool, String> {
    let checked = parse(expr).and_then(|ast| check(ast, &Env::new().mixed_literals()));
    let checked = checked.map_err(|issues| issues.to_string())?;
    let program = Program::new(&checked).map_err(|issues| issues.to_string())?;
    let value = program.evaluate(&mut Meter::new(1_000_000), &[]);
    match value.map_err(|error| error.to_string())? {
        Value::Bool(bool) => Ok(bool),
        other => Err(format!("{other:?}")),
    }
}

fn hold(table: &[&str]) {
    let wrong = table.iter().map(|expr| (expr, evaluate(expr)));
    let wrong: Vec<_> = wrong.filter(|(_, value)| *value != Ok(true)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn fail(table: &[(&str, &str)]) {
    for (expr, message) in table {
        let expr = format!("[{expr}].size() == 1");
        let found = evaluate(&expr).expect_err(&expr);
        assert_eq!(found, *message, "{expr}");
    }
}

#[test]
fn texts() {
    hold(&[
        "'tacocat'.charAt(3) == 'o'",
        "'tacocat'.charAt(7) == ''",
        "'hello mellow'.indexOf('ello', 2) == 7",
        "'hello mellow'.lastIndexOf('ello', 6) == 1",
        "'hello mellow'.lastIndexOf('') == 12",
        "'hello mellow'.indexOf('jello') == -1",
        "'©αT'.indexOf('T') == 2",
        "'TacoCÆt Xii'.lowerAscii() == 'tacocÆt xii'",
        "'hello hello'.replace('he', 'we', 1) == 'wello hello'",
        "'ab'.replace('', '_') == '_a_b_'",
        "'hello hello hello'.split(' ', 2) == ['hello', 'hello hello']",
        "'abc'.split('') == ['a', 'b', 'c']",
        "'abc'.split('b', 0) == []",
        "'tacocat'.substring(0, 4) == 'taco'",
        "['x', 'y'].join('-') == 'x-y'",
        "strings.quote('a\\n\"b') == '\"a\\\\n\\\\\"b\"'",
        "'  x '.trim() == 'x'",
        "jsonpatch.escapeKey('k8s.io/my~label') == 'k8s.io~1my~0label'",
    ]);
    fail(&[
        ("'ab'.charAt(5)", "index out of range: 5"),
        (
            "'ab'.substring(2, 1)",
            "invalid substring range. start: 2, end: 1",
        ),
        ("'ab'.substring(-1)", "index out of range: -1"),
    ]);
}

#[test]
fn numbers_are_read_and_written_as_in_go() {
    hold(&[
        "string(123456.0) == '123456'",
        "string(1000000.0) == '1e+06'",
        "string(-1234567.5) == '-1.2345675e+06'",
        "string(0.0001) == '0.0001' && string(0.00001) == '1e-05'",
        "double('+Inf') > 1e308 && double('1e308') == 1e308",
        "uint(-0.0) == 0u && int('+5') == 5",
    ]);
    for refused in ["uint('+5')", "uint(-0.5)", "double('1e400')"] {
        evaluate(&format!("dyn({refused}) == 0")).expect_err(refused);
    }
}

#[test]
fn moments_are_in_every_zone_to_the_end() {
    hold(&[
        "timestamp('9999-12-31T23:59:59Z').getFullYear('+02:00') == 10000",
        "timestamp('9999-12-31T23:59:59Z').getDayOfWeek('+02:00') == 6",
        "timestamp('9999-12-31T23:59:59Z').getHours('+02:00') == 1",
        "timestamp('9999-12-31T23:59:59Z').getFullYear() == 9999",
        "timestamp('0001-01-01T00:00:00Z').getFullYear('-02:00') == 0",
    ]);
    evaluate("timestamp('2024-02-29t00:00:00z') == timestamp(0)").expect_err("small letters");
}

#[test]
fn regular_expressions_are_read_as_in_go() {
    hold(&[
        r"!'\u0664'.matches('\\d') && !'\u00e9'.matches('\\w')",
        r"'\u00e9a'.matches('\\ba') && !'\u00a0'.matches('\\s')",
        r"'a{02}'.matches('^a{02}$') && 'a&b'.matches('^[a&&b]+$')",
        r"'a.b'.matches('^\\Qa.b\\E$') && !'axb'.matches('^\\Qa.b\\E$')",
    ]);
    for refused in [
        "'a'.matches('a**')",
        "'a'.matches('(?x)a')",
        "'a'.find('a{1001}') == ''",
    ] {
        evaluate(refused).expect_err(refused);
    }
}

#[test]
fn formatted() {
    hold(&[
        "'%s is %d, %s and %s'.format(['x', 5, [1, 'a'], {'k': 1.5}]) == 'x is 5, [1, \"a\"] and {\"k\":1.500000}'",
        "'%.3f %x %X %o %b %%'.format([1234.5, 255, 'hi', 8, true]) == '1,234.500 ff 6869 10 1 %'",
        "'%s'.format([duration('1h')]) == '3600s'",
        "'%s'.format([[timestamp('2023-02-03T23:31:20Z')]]) == '[timestamp(\"2023-02-03T23:31:20Z\")]'",
    ]);
    fail(&[
        (
            "'%d'.format(['x'])",
            "error during formatting: integer clause can only be used on integers, was given string",
        ),
        ("'%s %s'.format(['x'])", "index 1 out of range"),
        ("'%z'.format(['x'])", "unrecognized formatting clause \"z\""),
    ]);
}

#[test]
fn lists_and_sets() {
    hold(&[
        "[1, 2, 3].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
        "[1, 3].sum() == 4 && [1.0, 3.0].sum() == 4.0 && [].sum() == 0",
        "[duration('1m'), duration('1s')].sum() == duration('61s')",
        "[1, 3].min() == 1 && ['a', 'b'].max() == 'b'",
        "[1, 2, 2, 3].indexOf(2) == 1 && ['a', 'b', 'b'].lastIndexOf('b') == 2",
        "[1, 2].includes(2) && 'a'.includes('a') && !'a'.includes('b')",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
        "[[1], [2, [3]]].flatten() == [1, 2, [3]] && [1, [2, [3, [4]]]].flatten(2) == [1, 2, 3, [4]]",
        "lists.range(3) == [0, 1, 2] && [1, 2].reverse() == [2, 1]",
        "[1, 1.0, 2].distinct() == [1, 2] && [3, 1, 2].sort() == [1, 2, 3]",
        "[{'n': 'b', 'o': 2}, {'n': 'a', 'o': 1}].sortBy(e, e.o).map(e, e.n) == ['a', 'b']",
        "sets.contains([1, 2.0, 3u], [1.0, 2u, 3]) && !sets.contains([1], [2])",
        "sets.equivalent([1], [1, 1]) && sets.intersects([[1], [2, 3]], [[1, 2], [2, 3.0]])",
        "[1, 2].first().value() == 1 && [].last() == optional.none()",
        "[1, 2].exists(i, v, i == 1 && v == 2) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "['a', 'b'].transformList(i, v, i > 0, v + '!') == ['b!']",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "['x', 'y'].transformMapEntry(i, v, {v: i}) == {'x': 0, 'y': 1}",
    ]);
    fail(&[
        ("[1].filter(x, x > 1).min()", "min called on empty list"),
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
        (
            "lists.range(-1)",
            "lists.range: size must be non-negative, got -1",
        ),
        (
            "['x', 'x'].transformMapEntry(i, v, {v: i})",
            "insert failed: key x already exists",
        ),
    ]);
}

#[test]
fn regular_expressions() {
    hold(&[
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'123 abc 456'.findAll('[0-9]+') == ['123', '456']",
        "'123 abc 456'.findAll('[0-9]+', 1) == ['123'] && 'abc'.findAll('[0-9]+') == []",
        "'hubba'.matches('ubb') && matches('hubba', '^hub')",
    ]);
    let found = evaluate("'a'.matches('(')").expect_err("no expression");
    assert!(
        found.starts_with("ERROR: <input>:1:13: invalid matches argument\n"),
        "{found}"
    );
}

#[test]
fn urls() {
    hold(&[
        "url('https://example.com:80/path?k1=a&k2=b&k2=c').getHost() == 'example.com:80'",
        "url('https://example.com:80/').getHostname() == 'example.com'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
        "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
        "url('https://example.com/?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
        "url('/path').getScheme() == '' && url('HTTPS://example.com').getScheme() == 'https'",
        "isURL('https://user:pass@example.com:80/') && isURL('/absolute-path')",
        "!isURL('https://a:b:c/') && !isURL('../relative-path') && !isURL('')",
    ]);
    fail(&[(
        "url('../relative-path')",
        "URL parse error during conversion from string: parse \"../relative-path\": invalid URI for \
         request",
    )]);
}

#[test]
fn addresses() {
    hold(&[
        "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP(':::1')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
        "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6 && ip('::1').isLoopback()",
        "ip('0.0.0.0').isUnspecified() && ip('224.0.0.1').isLinkLocalMulticast()",
        "ip('fe80::1').isLinkLocalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "string(ip('192.168.0.1')) == '192.168.0.1' && ip('::1') == ip('0:0::1')",
        "type(ip('::1')) == net.IP && type(cidr('::1/128')) == net.CIDR",
        "isCIDR('192.168.0.0/16') && !isCIDR('192.168.0.0/33') && !isCIDR('192.168.0.0')",
        "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('10.0.0.0/8').containsIP(ip('::1'))",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')",
        "!cidr('192.168.1.0/24').containsCIDR(cidr('192.168.0.0/16'))",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::1/128').prefixLength() == 128",
        "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && string(cidr('::1/128')) == '::1/128'",
    ]);
    fail(&[
        (
            "ip('::ffff:1.2.3.4')",
            "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed",
        ),
        (
            "ip('fe80::1%en0')",
            "IP address \"fe80::1%en0\" with zone value is not allowed",
        ),
    ]);
}

#[test]
fn quantities() {
    hold(&[
        "isQuantity('1.3G') && !isQuantity('1,3G') && !isQuantity('Three')",
        "quantity('200M') == quantity('0.2G') && quantity('50M').isLessThan(quantity('50Mi'))",
        "quantity('50k').add(20).sub(quantity('100k')).sub(-50000).asInteger() == 20",
        "!quantity('1.5').isInteger() && quantity('-1').sign() == -1",
        "quantity('50.703k').asApproximateFloat() == 50703.0 && quantity('1').compareTo(quantity('2')) == -1",
    ]);
    fail(&[(
        "quantity('1.5').asInteger()",
        "cannot convert value to integer",
    )]);
}

#[test]
fn versions() {
    hold(&[
        "isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('1.0.0.0')",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.2.3-alpha.1').isLessThan(semver('1.2.3')) && semver('1.2.3+a') == semver('1.2.3+b')",
        "semver('v01.1', true).compareTo(semver('1.1.0')) == 0 && semver('2.0.0').isGreaterThan(semver('1.9.9'))",
    ]);
    fail(&[
        ("semver('v1')", "No Major.Minor.Patch elements found"),
        (
            "semver('1.02.3')",
            "Minor number must not contain leading zeroes \"02\"",
        ),
    ]);
}

#[test]
fn named_formats() {
    hold(&[
        "!format.dns1123Label().validate('my-label-name').hasValue()",
        "format.dns1123Label().validate('My').value().size() == 1",
        "!format.dns1123LabelPrefix().validate('my-label-').hasValue()",
        "!format.qualifiedName().validate('apiextensions.k8s.io/v1beta1').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('*').hasValue()",
        "!format.date().validate('2021-01-01').hasValue() && format.date().validate('2021-13-01').hasValue()",
        "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
        "!format.uri().validate('http://example.com').hasValue()",
        "format.named('dns1123Label').value() == format.dns1123Label()",
        "!format.named('x').hasValue()",
    ]);
}

#[derive(Default)]
struct Asked(Mutex<Vec<Check>>);

impl Authorizer for Asked {
    fn authorize(&self, check: &Check) -> Decision {
        self.0.lock().expect("nobody panics").push(check.clone());
        Decision {
            allowed: check.verb == "get",
            reason: "because".into(),
            error: None,
        }
    }
}

#[test]
fn an_authorizer_is_asked_what_was_said() {
    let of = Type::object("kubernetes.authorization.Authorizer");
    let env = Env::new().variable("authorizer", of);
    let expr = "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments')\
                .subresource('scale').namespace('here').name('x').labelSelector('a=b').check('get')\
                .allowed() && !authorizer.path('/healthz').check('post').allowed()";
    let checked = parse(expr).and_then(|ast| check(ast, &env));
    let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
    let asked = Arc::new(Asked::default());
    let variables = [authorizer(asked.clone())];
    let value = program.evaluate(&mut Meter::new(1_000_000), &variables);
    assert!(matches!(value, Ok(Value::Bool(true))), "{value:?}");
    let expected = Check {
        service_account: Some(("ns".into(), "sa".into())),
        group: "apps".into(),
        resource: "deployments".into(),
        subresource: "scale".into(),
        namespace: "here".into(),
        name: "x".into(),
        label_selector: "a=b".into(),
        verb: "get".into(),
        ..Check::default()
    };
    let asked = asked.0.lock().expect("nobody panics");
    assert_eq!(asked[0], expected);
    assert_eq!((&*asked[1].path, &*asked[1].verb), ("/healthz", "post"));
}

#[test]
fn an_expression_asks_no_more_than_twice() {
    let of = Type::object("kubernetes.authorization.Authorizer");
    let env = Env::new().variable("authorizer", of);
    let check_once = "authorizer.path('/healthz').check('get').allowed()";
    let expr = [check_once; 3].join(" && ");
    let checked = parse(&expr).and_then(|ast| check(ast, &env));
    let program = Program::new(&checked.expect("it compiles")).expect("it has a program");
    let variables = [authorizer(Arc::new(Asked::default()))];
    let value = program.evaluate(&mut Meter::new(1_000_000), &variables);
    assert!(value.expect_err("a third is too many").is_cancelled());
}
