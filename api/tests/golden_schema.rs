//! The schema table against Kubernetes' own OpenAPI document and protobuf definitions.
//!
//! Both are reference data beside the project (`$CORACLE_GOLDEN`, else `../shared/golden`); without
//! them the tests say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::path::PathBuf;

use coracle_api::schema::{Element, Field, FieldKind, ListType, Type, openapi_v3_schema, table};
use serde_json::Value;

fn golden(file: &str) -> Option<Value> {
    let dir = std::env::var_os("CORACLE_GOLDEN").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden"),
        PathBuf::from,
    );
    let path = dir.join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(_) => {
            eprintln!("skipped: {} is absent", path.display());
            None
        }
    }
}

/// Types whose required fields differ between v1.37, which the table follows, and the older
/// reference.
const REQUIRED_CHANGED: [&str; 19] = [
    "apps.v1.ControllerRevision",
    "apps.v1.DaemonSet",
    "apps.v1.DaemonSetCondition",
    "apps.v1.Deployment",
    "apps.v1.DeploymentCondition",
    "apps.v1.ReplicaSet",
    "apps.v1.ReplicaSetCondition",
    "apps.v1.StatefulSet",
    "apps.v1.StatefulSetCondition",
    "core.v1.NodeAllocatableResourceClaimStatus",
    "flowcontrol.v1.FlowSchema",
    "flowcontrol.v1.FlowSchemaCondition",
    "flowcontrol.v1.LimitedPriorityLevelConfiguration",
    "flowcontrol.v1.PriorityLevelConfiguration",
    "flowcontrol.v1.PriorityLevelConfigurationCondition",
    "resource.v1.DeviceClass",
    "resource.v1.ResourceClaim",
    "resource.v1.ResourceClaimTemplate",
    "resource.v1.ResourceClaimTemplateSpec",
];

/// What the older reference has and v1.37 has no longer.
const REMOVED: [&str; 3] = [
    "resource.v1.NodeAllocatableResourceMapping",
    "resource.v1.Device.nodeAllocatableResourceMappings",
    "core.v1.NodeAllocatableResourceClaimStatus.resources",
];

/// Fields of v1.37 whose numbers are in no source at hand: protobuf does not carry them.
const UNNUMBERED: [&str; 5] = [
    "runningInUserNamespace",
    "nodeAllocatableResources",
    "compatibilityGroups",
    "derivedAttributes",
    "attestations",
];

/// Packages of the versions that a server of v1.37 serves by default.
fn is_served(name: &str) -> bool {
    let Some((package, _)) = name.rsplit_once('.') else {
        return false;
    };
    let version = package.rsplit_once('.').map_or("", |(_, v)| v);
    matches!(version, "v1" | "v2")
        && !name.contains(".apiextensions")
        && !name.contains(".kube-aggregator.")
}

/// What was compared, and what differs.
#[derive(Default)]
struct Comparison {
    fields: usize,
    facts: usize,
    newer: usize,
    wrong: Vec<String>,
}

impl Comparison {
    fn fact(&mut self, what: &str, have: &Value, expect: &Value) {
        let sorted = |v: &Value| {
            let mut items = v.as_array().cloned().unwrap_or_default();
            items.sort_by_key(Value::to_string);
            if v.is_array() {
                Value::Array(items)
            } else {
                v.clone()
            }
        };
        self.facts += 1;
        if sorted(have) != sorted(expect) {
            self.wrong.push(format!("{what} is {have} not {expect}"));
        }
    }

    fn ty(&mut self, ty: Type, definition: &Value) {
        let name = ty.name().strip_prefix("io.k8s.api.").unwrap_or(ty.name());
        let Some(properties) = definition["properties"].as_object() else {
            return;
        };
        let schema = openapi_v3_schema(ty, "#/definitions/");
        let key = "x-kubernetes-map-type";
        self.fact(&format!("{name}: {key}"), &schema[key], &definition[key]);
        if !REQUIRED_CHANGED.contains(&name) {
            self.fact(
                &format!("{name}: required"),
                &schema["required"],
                &definition["required"],
            );
        }
        for field in properties.keys().filter(|f| ty.field(f).is_none()) {
            let absent = format!("{name}.{field}");
            if !REMOVED.contains(&absent.as_str()) {
                self.wrong.push(format!("{absent}: absent"));
            }
        }
        for field in ty.fields() {
            let Some(expect) = properties.get(field.json_name) else {
                self.newer += 1;
                continue;
            };
            self.fields += 1;
            let have = &schema["properties"][field.json_name];
            let at = format!("{name}.{}", field.json_name);
            self.fact(
                &format!("{at}: $ref"),
                &have["allOf"][0]["$ref"],
                &expect["$ref"],
            );
            for key in ["type", "format", "items", "additionalProperties"] {
                self.fact(&format!("{at}: {key}"), &have[key], &expect[key]);
            }
            for key in [
                "list-type",
                "list-map-keys",
                "patch-strategy",
                "patch-merge-key",
                "map-type",
            ] {
                let key = format!("x-kubernetes-{key}");
                self.fact(&format!("{at}: {key}"), &have[&key], &expect[&key]);
            }
        }
    }
}

#[test]
fn table_agrees_with_the_openapi_document() {
    let Some(document) = golden("openapi-structure.json") else {
        return;
    };
    let (mut served, mut others) = ((0, Comparison::default()), (0, Comparison::default()));
    for (name, definition) in document["definitions"].as_object().unwrap() {
        let (count, comparison) = if is_served(name) {
            &mut served
        } else {
            &mut others
        };
        match table().by_name(name) {
            Some(ty) => {
                *count += 1;
                comparison.ty(ty, definition);
            }
            None if REMOVED.iter().any(|r| name.ends_with(r)) => {}
            None => comparison.wrong.push(format!("{name}: absent")),
        }
    }
    for (which, (types, c)) in [("served", &served), ("other", &others)] {
        let (fields, facts, newer, wrong) = (c.fields, c.facts, c.newer, c.wrong.len());
        eprintln!(
            "OpenAPI, {which} versions: {types} types, {fields} fields, {facts} facts compared, {wrong} differ; {newer} fields are newer"
        );
    }
    let wrong = served.1.wrong;
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn proto_name(ty: Type) -> String {
    ty.name()
        .replace("io.k8s.", "k8s.io.")
        .replace("apiextensions-apiserver", "apiextensions_apiserver")
        .replace("kube-aggregator", "kube_aggregator")
}

/// The golden entry `[tag, type, label]` of a field, through the messages that embed it.
fn proto_field<'a>(messages: &'a Value, message: &str, field: &Field) -> Option<&'a Value> {
    let mut at = message.to_owned();
    for via in field.via.iter().filter(|v| **v != 0) {
        let (_, outer) = messages[&at]
            .as_object()?
            .iter()
            .find(|(_, f)| f[0] == *via)?;
        at = absolute(&at, outer[1].as_str()?);
    }
    messages[&at]
        .as_object()?
        .values()
        .find(|f| f[0] == field.tag)
}

fn absolute(from: &str, name: &str) -> String {
    match name.strip_prefix('.') {
        Some(name) => name.to_owned(),
        None => format!("{}.{name}", from.rsplit_once('.').unwrap().0),
    }
}

fn kind_fits(field: &Field, entry: &Value) -> bool {
    let (ty, label) = (entry[1].as_str().unwrap(), entry[2].as_str().unwrap());
    let shape = match field.kind {
        FieldKind::One(Element::StringList) => "one",
        FieldKind::One(_) => "one",
        FieldKind::List(_) => "repeated",
        FieldKind::Map(_) => "map",
    };
    if label != shape {
        // `verbs` of APIResource and the like: a message that holds the list.
        return label == "one" && shape == "repeated";
    }
    let ty = ty
        .strip_prefix("map<string, ")
        .and_then(|t| t.strip_suffix('>'))
        .unwrap_or(ty);
    let last = ty.rsplit('.').next().unwrap();
    match field.kind.element() {
        Element::Bool => last == "bool",
        Element::Int32 => last == "int32" || last == "uint32",
        Element::Int64 => last == "int64" || last == "uint64",
        Element::Double => last == "double",
        Element::String => last == "string",
        Element::Bytes => last == "bytes",
        Element::Time => last == "Time",
        Element::MicroTime => last == "MicroTime",
        Element::Quantity => last == "Quantity",
        Element::IntOrString => last == "IntOrString",
        Element::RawExtension => last == "RawExtension",
        Element::FieldsV1 => last == "FieldsV1",
        Element::Json => last == "JSON",
        Element::Object(ty) => last == ty.short_name(),
        _ => true,
    }
}

#[test]
fn table_agrees_with_the_protobuf_definitions() {
    let Some(messages) = golden("protobuf-fields.json") else {
        return;
    };
    let (mut types, mut fields) = (0, 0);
    let mut wrong = Vec::new();
    for ty in table().types() {
        let name = proto_name(ty);
        let Some(message) = messages[&name].as_object() else {
            continue;
        };
        types += 1;
        for field in ty.fields() {
            if field.tag == 0 {
                if UNNUMBERED.contains(&field.json_name) {
                    continue;
                }
                if !matches!(field.json_name, "apiVersion" | "kind")
                    || message.contains_key(field.json_name)
                {
                    wrong.push(format!(
                        "field {} {} : no tag, golden {:?}",
                        ty.name(),
                        field.json_name,
                        message.get(field.json_name)
                    ));
                }
                continue;
            }
            fields += 1;
            match proto_field(&messages, &name, &field) {
                Some(entry) if kind_fits(&field, entry) => {}
                // The reference has the names of maps cut to their last letter, and so loses some.
                None if matches!(field.kind, FieldKind::Map(_)) => {}
                other => wrong.push(format!(
                    "{} {} {:?}: {other:?}",
                    ty.name(),
                    field.json_name,
                    field.kind
                )),
            }
            let by_name = message.get(field.json_name);
            if by_name.is_some_and(|f| f[0] != field.tag) && field.via[0] == 0 {
                wrong.push(format!(
                    "{} {}: tag {} not {}",
                    ty.name(),
                    field.json_name,
                    field.tag,
                    by_name.unwrap()[0]
                ));
            }
        }
        for (field, entry) in message {
            let tag = u16::try_from(entry[0].as_u64().unwrap()).unwrap();
            let known = ty
                .fields()
                .any(|f| f.via[0] == tag || (f.via[0] == 0 && f.tag == tag));
            if !known && ty.fields().len() > 0 {
                wrong.push(format!(
                    "{} {field}: golden {entry}, not in the table",
                    ty.name()
                ));
            }
        }
    }
    wrong.retain(|w| !w.contains("alpha") && !w.contains("beta"));
    eprintln!("compared with protobuf: {types} types, {fields} fields");
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn list_keys_are_fields_of_the_elements() {
    for ty in table().types() {
        for field in ty.fields() {
            assert_eq!(
                field.list_type == Some(ListType::Map),
                !field.list_keys.is_empty(),
                "{} {}",
                ty.name(),
                field.json_name
            );
            let Some(element) = field.object_type() else {
                continue;
            };
            for key in field.list_map_keys().chain(field.patch_merge_key) {
                assert!(
                    element.field(key).is_some(),
                    "{} {}: {key}",
                    ty.name(),
                    field.json_name
                );
            }
        }
    }
}
