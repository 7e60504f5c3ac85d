use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::decode::{ContentType, FieldValidation, decode};

fn back(object: &Value) -> Value {
    let encoded = protobuf(object.to_string().as_bytes()).expect("it has a protobuf form");
    let gvk = Gvk::from_api_version(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    decode(
        &encoded,
        ContentType::Protobuf,
        &gvk,
        FieldValidation::Ignore,
    )
    .expect("it is read back")
    .object
}

#[test]
fn objects_survive_the_way_there_and_back() {
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "7"},
            "data": {"k": "v", "empty": ""}, "binaryData": {"b": "AAEC"}, "immutable": true}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"terminationGracePeriodSeconds": -1, "containers": [{"name": "c", "image": "i",
                "resources": {"limits": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
                "readinessProbe": {"tcpSocket": {"port": 8080}}}]}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
            "spec": {"renewTime": "2026-01-02T03:04:05.678901Z", "leaseDurationSeconds": 40}}),
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "NotFound",
            "message": "no", "code": 404, "details": {"kind": "pods", "causes": [{"reason": "r"}]}}),
    ] {
        assert_eq!(back(&object), object);
    }
}

#[test]
fn lists_are_encoded_item_by_item() {
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}},
        {"metadata": {"name": "b"}},
    ]});
    let read = back(&list);
    assert_eq!(read["metadata"], list["metadata"]);
    assert_eq!(
        read["items"],
        json!([{"metadata": {"name": "a"}, "data": {"k": "v"}}, {"metadata": {"name": "b"}}])
    );
}

#[test]
fn kinds_without_a_protobuf_form_are_said_so() {
    for (version, kind) in [
        ("meta.k8s.io/v1", "Table"),
        ("example.com/v1", "Thing"),
        ("v1", "PodLust"),
    ] {
        let object = json!({"apiVersion": version, "kind": kind}).to_string();
        assert!(
            matches!(
                protobuf(object.as_bytes()),
                Err(EncodeError::UnknownKind { .. })
            ),
            "{kind}"
        );
    }
    assert!(protobuf(b"[]").is_err());
}

#[test]
fn metadata_alone_has_a_form_of_its_own() {
    let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "ab"}});
    let encoded = protobuf(partial.to_string().as_bytes()).unwrap();
    // Field 1 of the object: metadata, whose field 1 is the name.
    assert!(
        encoded
            .windows(6)
            .any(|window| window == [0x0a, 4, 0x0a, 2, b'a', b'b']),
        "{encoded:x?}"
    );
}

#[test]
fn events_of_a_watch_are_frames() {
    assert_eq!(
        watch_frame("ADDED", b"xy"),
        b"\0\0\0\x0d\x0a\x05ADDED\x12\x04\x0a\x02xy"
    );
}

/// Every kind that upstream's own data has: the same bytes.
#[test]
fn upstreams_own_objects_become_upstreams_own_bytes() {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    let golden = std::env::var_os("CORACLE_GOLDEN")
        .map_or(default, PathBuf::from)
        .join("kubernetes-api");
    let Ok(files) = std::fs::read_dir(&golden) else {
        eprintln!("skipped: no golden data in {}", golden.display());
        return;
    };
    let (mut same, mut differing) = (0, Vec::new());
    for path in files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
    {
        let json = std::fs::read(&path).unwrap();
        let value: Value = serde_json::from_slice(&json).unwrap();
        let (Some(version), Some(kind)) = (value["apiVersion"].as_str(), value["kind"].as_str())
        else {
            continue;
        };
        let gvk = Gvk::from_api_version(version, kind);
        if table().by_gvk(&gvk).is_none() {
            continue;
        }
        let expect = std::fs::read(path.with_extension("pb")).unwrap();
        let Ok(encoded) = protobuf(&json) else {
            differing.push(format!("{}: no form", path.display()));
            continue;
        };
        // Zeros that Go writes and JSON leaves out make other bytes of the same object.
        let read = |bytes: &[u8]| {
            decode(bytes, ContentType::Protobuf, &gvk, FieldValidation::Ignore)
                .unwrap()
                .object
        };
        if encoded == expect {
            same += 1;
        } else if read(&encoded) != read(&expect) {
            differing.push(path.display().to_string());
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
    assert!(
        same > 50,
        "{same} of upstream's objects have the same bytes"
    );
}
