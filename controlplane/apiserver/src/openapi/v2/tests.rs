use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::*;
use crate::tests::published;

/// Kubernetes' own document, or nothing (said aloud) where it is absent.
fn golden() -> Option<Value> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let dir = std::env::var_os("CORACLE_GOLDEN").map_or(default, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(dir.join("openapi-structure.json")) else {
        eprintln!("skipped: no golden data");
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn written(form: Form) -> Vec<u8> {
    document(&published(), form).whole()
}

fn parsed() -> Value {
    serde_json::from_slice(&written(Form::Json)).unwrap()
}

#[test]
fn old_and_new_names_of_the_protobuf_form_are_taken() {
    for (accept, expect) in [
        ("", Some(Form::Json)),
        ("application/json", Some(Form::Json)),
        ("*/*", Some(Form::Json)),
        (
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            Some(Form::Protobuf),
        ),
        (
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/json",
            Some(Form::Protobuf),
        ),
        ("application/xml", None),
    ] {
        assert_eq!(Form::negotiate(accept), expect, "{accept}");
    }
}

#[test]
fn every_reference_has_its_definition() {
    let text = String::from_utf8(written(Form::Json)).unwrap();
    let document = parsed();
    let definitions = document["definitions"].as_object().unwrap();
    for part in text.split(REF_PREFIX).skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(definitions.contains_key(name), "{name}");
    }
    assert!(!text.contains("#/components/"));
    eprintln!(
        "{} definitions, {} bytes of JSON, {} of protobuf",
        definitions.len(),
        text.len(),
        written(Form::Protobuf).len()
    );
}

/// What golden and document say of one property, words aside.
fn structure(property: &Value) -> Value {
    let mut property = property.clone();
    if let Some(members) = property.as_object_mut() {
        members.remove("description");
    }
    property
}

#[test]
fn definitions_are_structured_as_kubernetes_own() {
    let Some(golden) = golden() else { return };
    let (mut types, mut fields, mut wrong) = (0, 0, Vec::new());
    let document = parsed();
    for (name, ours) in document["definitions"].as_object().unwrap() {
        let Some(expect) = golden["definitions"].get(name) else {
            continue;
        };
        types += 1;
        if ours["type"] != expect["type"] || ours["format"] != expect["format"] {
            wrong.push(format!("{name}: {} {}", ours["type"], ours["format"]));
        }
        for (field, expect) in expect["properties"].as_object().into_iter().flatten() {
            let Some(have) = ours["properties"].get(field) else {
                continue;
            };
            fields += 1;
            let (have, expect) = (structure(have), structure(expect));
            if have != expect {
                wrong.push(format!("{name}.{field}: {have} not {expect}"));
            }
        }
    }
    eprintln!("{types} definitions with {fields} properties compared");
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(fields > 2200, "{fields}");
}

#[test]
fn operations_speak_of_the_same_kinds_as_kubernetes_own() {
    let Some(golden) = golden() else { return };
    let document = parsed();
    let (mut compared, mut wrong) = (0, Vec::new());
    for expect in golden["operations"].as_array().unwrap() {
        let (path, method) = (
            expect["path"].as_str().unwrap(),
            expect["method"].as_str().unwrap(),
        );
        let Some(ours) = document["paths"]
            .get(path)
            .and_then(|item| item.get(method))
        else {
            continue;
        };
        compared += 1;
        let parts = [
            ("x-kubernetes-action", "action"),
            ("x-kubernetes-group-version-kind", "gvk"),
        ];
        for (have, want) in parts {
            if ours[have] != expect[want] {
                wrong.push(format!(
                    "{method} {path}: {} not {}",
                    ours[have], expect[want]
                ));
            }
        }
        if expect["action"] != "patch" && ours["consumes"] != expect["consumes"] {
            wrong.push(format!("{method} {path}: consumes {}", ours["consumes"]));
        }
    }
    eprintln!("{compared} operations compared");
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(compared > 550, "{compared}");
}

#[test]
fn bodies_are_parameters() {
    let post = &parsed()["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    let body = &post["parameters"][0];
    assert_eq!(body["in"], "body");
    assert_eq!(
        body["schema"],
        json!({"$ref": "#/definitions/io.k8s.api.core.v1.Pod"})
    );
    assert_eq!(post["parameters"][1]["type"], "string");
    assert_eq!(
        post["responses"]["200"]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Pod"
    );
    assert!(post.get("requestBody").is_none());
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

/// A message as its fields: tag to contents in order.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Vec<u8>>> {
    let mut out: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        let content = match key & 7 {
            0 => value.to_le_bytes().to_vec(),
            2 => {
                let (content, rest) = bytes.split_at(usize::try_from(value).unwrap());
                bytes = rest;
                content.to_vec()
            }
            other => panic!("wire type {other}"),
        };
        out.entry(key >> 3).or_default().push(content);
    }
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A property's schema in protobuf says what it says in JSON.
fn check_property(schema: &BTreeMap<u64, Vec<Vec<u8>>>, expect: &Value) {
    let have = |tag| schema.get(&tag).map(|one| text(&one[0]));
    assert_eq!(have(1).as_deref(), expect["$ref"].as_str());
    assert_eq!(have(4).as_deref(), expect["description"].as_str());
    let ty = schema.get(&22).map(|one| text(&fields(&one[0])[&1][0]));
    assert_eq!(ty.as_deref(), expect["type"].as_str());
    let extensions = schema.get(&31).into_iter().flatten().map(|one| {
        let one = fields(one);
        let value = serde_yaml::from_slice(&fields(&one[&2][0])[&2][0]).unwrap();
        (text(&one[&1][0]), value)
    });
    let extensions: BTreeMap<String, Value> = extensions.collect();
    let expect = expect.as_object().unwrap().iter();
    let expect = expect.filter(|(name, _)| name.starts_with("x-"));
    assert_eq!(
        extensions,
        expect
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    );
}

#[test]
fn protobuf_form_says_what_the_json_form_says() {
    let json = parsed();
    let document = fields(&written(Form::Protobuf));
    assert_eq!(text(&document[&1][0]), "2.0");
    let members = |tag, inner| -> BTreeMap<String, BTreeMap<u64, Vec<Vec<u8>>>> {
        let all = fields(&document[&tag][0]);
        all[&inner]
            .iter()
            .map(|one| fields(one))
            .map(|one| (text(&one[&1][0]), fields(&one[&2][0])))
            .collect()
    };
    let paths = members(8, 2);
    assert_eq!(
        paths.keys().collect::<BTreeSet<_>>(),
        json["paths"].as_object().unwrap().keys().collect()
    );
    let definitions = members(9, 1);
    assert_eq!(
        definitions.keys().collect::<BTreeSet<_>>(),
        json["definitions"].as_object().unwrap().keys().collect()
    );
    let mut compared = 0;
    for (name, definition) in &definitions {
        let properties = definition
            .get(&25)
            .map(|all| fields(&all[0]))
            .unwrap_or_default();
        let properties = properties.get(&1).into_iter().flatten();
        for property in properties.map(|one| fields(one)) {
            let expect = &json["definitions"][name]["properties"][text(&property[&1][0])];
            check_property(&fields(&property[&2][0]), expect);
            compared += 1;
        }
    }
    let patch = fields(&paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"][&8][0]);
    let kinds: Vec<_> = patch[&13]
        .iter()
        .map(|one| text(&fields(one)[&1][0]))
        .collect();
    assert!(
        kinds
            .iter()
            .any(|name| name == "x-kubernetes-group-version-kind"),
        "{kinds:?}"
    );
    eprintln!(
        "{} paths, {} definitions, {compared} properties compared",
        paths.len(),
        definitions.len()
    );
}
