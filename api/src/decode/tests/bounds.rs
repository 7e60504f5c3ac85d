use super::*;

#[test]
fn hostile_yaml_is_refused_before_anything_is_built_of_it() {
    let alias = format!(
        "kind: Pod\nmetadata:\n  name: &a \"{}\"\n  annotations:\n",
        "x".repeat(100_000)
    );
    let aliases: String = (0..20_000).map(|at| format!("    k{at}: *a\n")).collect();
    let table = [
        ("{a: ".repeat(150_000), "exceeded max depth"),
        ("[".repeat(3 << 20), "exceeded max depth"),
        ("- ".repeat(1 << 20), "exceeded max depth"),
        (alias + &aliases, "document contains excessive aliasing"),
    ];
    for (body, why) in table {
        for validation in [FieldValidation::Warn, FieldValidation::Strict] {
            let refused =
                decode(body.as_bytes(), ContentType::Yaml, &pod(), validation).expect_err(why);
            assert_eq!(refused.code, 400);
            let expect = format!("error converting YAML to JSON: yaml: {why}");
            assert!(refused.message.contains(&expect), "{refused}");
        }
    }
}

#[test]
fn deep_json_is_refused() {
    for open in ["[", r#"{"a":"#] {
        let body = open.repeat((3 << 20) / open.len());
        let refused = decode(
            body.as_bytes(),
            ContentType::Json,
            &pod(),
            FieldValidation::Warn,
        )
        .expect_err(open);
        assert_eq!(refused.code, 400, "{refused}");
    }
}

#[test]
fn a_body_of_nothings_is_not_a_million_values() {
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n > 0x7f {
            out.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
            n >>= 7;
        }
        out.push(u8::try_from(n).unwrap());
        out
    };
    let message = |inner: Vec<u8>| [vec![0x12], varint(inner.len()), inner].concat();
    // Empty containers in a spec in the envelope.
    let protobuf =
        |items: usize| [b"k8s\0".to_vec(), message(message([0x12, 0].repeat(items)))].concat();
    let json = |items: usize| {
        format!(
            r#"{{"spec":{{"containers":[{}{{}}]}}}}"#,
            "{},".repeat(items - 1)
        )
        .into_bytes()
    };
    let bodies: [(_, &dyn Fn(usize) -> Vec<u8>); 2] = [
        (ContentType::Protobuf, &protobuf),
        (ContentType::Json, &json),
    ];
    for (content, body) in bodies {
        let read = |items| decode(&body(items), content, &pod(), FieldValidation::Warn);
        assert_eq!(
            read(190_000).unwrap().object["spec"]["containers"]
                .as_array()
                .unwrap()
                .len(),
            190_000
        );
        let refused = read(210_000).unwrap_err();
        assert_eq!(refused.code, 400);
        assert!(
            refused
                .message
                .contains("document contains more than 200000 nodes"),
            "{refused}"
        );
    }
}
