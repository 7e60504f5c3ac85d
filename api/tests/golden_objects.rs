//! Every kind of Kubernetes' own serialization data: JSON, YAML and protobuf decode to one object,
//! it is the same object as the JSON file, and it is encoded to the same JSON again.
//!
//! The data lie beside the project (`$CORACLE_GOLDEN`, else `../shared/golden`); without them the
//! test says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::path::PathBuf;

use coracle_api::{
    decode::{ContentType, FieldValidation, decode},
    meta,
    resource::Gvk,
    schema::table,
};
use serde_json::Value;

const SERVED: [&str; 19] = [
    "core",
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "networking.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "coordination.k8s.io",
    "rbac.authorization.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "admissionregistration.k8s.io",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "node.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
];

fn dir() -> PathBuf {
    std::env::var_os("CORACLE_GOLDEN")
        .map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden"),
            PathBuf::from,
        )
        .join("kubernetes-api")
}

/// Where two values differ.
fn differences(path: &str, a: &Value, b: &Value, out: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            for key in x.keys().chain(y.keys().filter(|k| !x.contains_key(*k))) {
                differences(&format!("{path}.{key}"), &a[key], &b[key], out);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (i, (a, b)) in x.iter().zip(y).enumerate() {
                differences(&format!("{path}[{i}]"), a, b, out);
            }
        }
        _ if a == b => {}
        _ => out.push(format!("{path}: {a} / {b}")),
    }
}

#[test]
fn every_kind_decodes_alike_from_its_three_encodings() {
    let Ok(entries) = std::fs::read_dir(dir()) else {
        eprintln!("skipped: {} is absent", dir().display());
        return;
    };
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    names.sort();
    let (mut served, mut others, mut bodies, mut unknown, mut wrong) =
        (0, 0, 0, Vec::new(), Vec::new());
    for path in &names {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let expect: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let gvk = Gvk::from_api_version(
            meta::get_str(&expect, &["apiVersion"]),
            meta::get_str(&expect, &["kind"]),
        );
        let group = if gvk.group.is_empty() {
            "core"
        } else {
            &gvk.group
        };
        let is_served = SERVED.contains(&group)
            && !gvk.version.contains("alpha")
            && !gvk.version.contains("beta");
        if table().by_gvk(&gvk).is_none() {
            unknown.push(stem.to_owned());
            // Options of core/v1 travel as query parameters, the others inside the server only.
            let no_body = gvk.kind.ends_with("Options")
                || [
                    "PodStatusResult",
                    "RangeAllocation",
                    "SerializedReference",
                    "",
                ]
                .contains(&&*gvk.kind);
            assert!(
                !is_served || no_body,
                "{stem} is served, but not in the table"
            );
            continue;
        }
        let mut found = Vec::new();
        let canonical = serde_json::to_string(&expect).unwrap();
        for (content, extension) in [
            (ContentType::Json, "json"),
            (ContentType::Yaml, "yaml"),
            (ContentType::Protobuf, "pb"),
        ] {
            let body = std::fs::read(path.with_extension(extension)).unwrap();
            match decode(&body, content, &gvk, FieldValidation::Strict) {
                Ok(decoded) => {
                    differences(extension, &decoded.object, &expect, &mut found);
                    // Members in order of their names: texts are equal exactly when nothing was
                    // lost or changed.
                    if serde_json::to_string(&decoded.object).unwrap() != canonical {
                        found.push(format!("{extension}: is encoded differently"));
                    }
                    bodies += 1;
                }
                Err(status) => found.push(format!("{extension}: {status}")),
            }
        }
        if is_served {
            served += 1;
            wrong.extend(found.into_iter().map(|f| format!("{stem} {f}")));
        } else if found.is_empty() {
            others += 1;
        } else {
            unknown.push(format!("{stem} ({})", found[0]));
        }
    }
    eprintln!(
        "{served} kinds of served versions and {others} of others decode from JSON, YAML and protobuf"
    );
    eprintln!(
        "{bodies} bodies decoded and encoded again, of {} kinds at hand",
        names.len()
    );
    eprintln!("not decoded, not served: {}", unknown.join(", "));
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(served > 60, "{served} kinds");
}

/// A generator of positions that is the same on every run.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap()
}

#[test]
fn damaged_bodies_decode_or_fail_without_panic() {
    let Ok(entries) = std::fs::read_dir(dir()) else {
        eprintln!("skipped: {} is absent", dir().display());
        return;
    };
    let (mut state, mut tried) = (7, 0);
    for path in entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
    {
        let expect: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let gvk = Gvk::from_api_version(
            meta::get_str(&expect, &["apiVersion"]),
            meta::get_str(&expect, &["kind"]),
        );
        if table().by_gvk(&gvk).is_none() {
            continue;
        }
        for (content, extension) in [
            (ContentType::Json, "json"),
            (ContentType::Yaml, "yaml"),
            (ContentType::Protobuf, "pb"),
        ] {
            let good = std::fs::read(path.with_extension(extension)).unwrap();
            for _ in 0..20 {
                let mut body = good.clone();
                for _ in 0..3 {
                    let at = next(&mut state) % body.len();
                    body[at] = u8::try_from(next(&mut state) & 255).unwrap();
                }
                body.truncate(body.len() - next(&mut state) % 8);
                let _ = decode(&body, content, &gvk, FieldValidation::Strict);
                tried += 1;
            }
        }
    }
    eprintln!("{tried} damaged bodies");
}
