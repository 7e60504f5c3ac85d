//! Upstream's cases: `pkg/controller/volume/persistentvolume/index_test.go` at v1.37.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;

fn volume(name: &str, size: &str, more: Value) -> PersistentVolume {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Available"},
    });
    merge(&mut object, more);
    serde_json::from_value(object).expect("a volume")
}

fn claim(size: &str, more: Value) -> PersistentVolumeClaim {
    let mut object = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    });
    merge(&mut object, more);
    serde_json::from_value(object).expect("a claim")
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn found(
    claim: &PersistentVolumeClaim,
    volumes: &[PersistentVolume],
    search: Search<'_>,
) -> Option<String> {
    let found = find_matching(claim, volumes, search, &HashSet::<String>::new());
    found
        .expect("a selector")
        .and_then(|it| it.metadata.name.clone())
}

#[test]
fn the_smallest_that_fits_is_found() {
    let volumes = ["10Gi", "5Gi", "8Gi", "1Gi"].map(|size| volume(size, size, json!({})));
    for (asked, expect) in [
        ("2Gi", Some("5Gi")),
        ("5Gi", Some("5Gi")),
        ("6Gi", Some("8Gi")),
        ("9Gi", Some("10Gi")),
        ("11Gi", None),
    ] {
        let name = found(&claim(asked, json!({})), &volumes, Search::Immediate);
        assert_eq!(name.as_deref(), expect, "{asked}");
    }
    let taken = HashSet::from(["5Gi".to_owned()]);
    let claim = claim("2Gi", json!({}));
    let next = find_matching(&claim, &volumes, Search::Immediate, &taken).expect("a selector");
    assert_eq!(next.and_then(|it| it.metadata.name.as_deref()), Some("8Gi"));
}

#[test]
fn what_does_not_fit_is_left_out() {
    let plain = claim("1Gi", json!({}));
    let fast = claim("1Gi", json!({"spec": {"storageClassName": "fast"}}));
    let old = claim(
        "1Gi",
        json!({"metadata": {"annotations": {BETA_STORAGE_CLASS: "fast"}}, "spec": {"storageClassName": "slow"}}),
    );
    let block = claim("1Gi", json!({"spec": {"volumeMode": "Block"}}));
    let gold = claim(
        "1Gi",
        json!({"spec": {"volumeAttributesClassName": "gold"}}),
    );
    let ssd = claim(
        "1Gi",
        json!({"spec": {"selector": {"matchLabels": {"disk": "ssd"}}}}),
    );
    for (claim, more, expect) in [
        (&plain, json!({}), true),
        (&plain, json!({"status": {"phase": "Released"}}), false),
        (&plain, json!({"status": {"phase": "Pending"}}), false),
        (
            &plain,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            false,
        ),
        (&plain, json!({"spec": {"storageClassName": "fast"}}), false),
        (&fast, json!({"spec": {"storageClassName": "fast"}}), true),
        (&old, json!({"spec": {"storageClassName": "fast"}}), true),
        (
            &fast,
            json!({"metadata": {"annotations": {BETA_STORAGE_CLASS: "fast"}}}),
            true,
        ),
        (&plain, json!({"spec": {"volumeMode": "Filesystem"}}), true),
        (&plain, json!({"spec": {"volumeMode": "Block"}}), false),
        (&block, json!({"spec": {"volumeMode": "Block"}}), true),
        (&block, json!({}), false),
        (&gold, json!({}), false),
        (
            &gold,
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            true,
        ),
        (
            &plain,
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            false,
        ),
        (
            &plain,
            json!({"spec": {"volumeAttributesClassName": ""}}),
            true,
        ),
        (&ssd, json!({"metadata": {"labels": {"disk": "ssd"}}}), true),
        (
            &ssd,
            json!({"metadata": {"labels": {"disk": "hdd"}}}),
            false,
        ),
        (
            &plain,
            json!({"spec": {"claimRef": {"name": "other", "namespace": "ns"}}}),
            false,
        ),
        (
            &plain,
            json!({"spec": {"claimRef": {"name": "c", "namespace": "other"}}}),
            false,
        ),
        (
            &plain,
            json!({"spec": {"claimRef": {"name": "c", "namespace": "ns", "uid": "former"}}}),
            false,
        ),
        (
            &plain,
            json!({"spec": {"claimRef": {"name": "c", "namespace": "ns"}}}),
            true,
        ),
    ] {
        let volumes = [volume("v", "1Gi", more.clone())];
        let is_found = found(claim, &volumes, Search::Immediate).is_some();
        assert_eq!(is_found, expect, "{more}");
    }
}

#[test]
fn a_volume_kept_for_the_claim_goes_before_a_smaller_one() {
    let kept = json!({"spec": {"claimRef": {"name": "c", "namespace": "ns"}}, "status": {"phase": "Pending"}});
    let volumes = [
        volume("small", "1Gi", json!({})),
        volume("kept", "9Gi", kept.clone()),
    ];
    let asks = claim("1Gi", json!({}));
    for search in [Search::Immediate, Search::Delayed] {
        assert_eq!(found(&asks, &volumes, search).as_deref(), Some("kept"));
    }
    assert_eq!(
        found(&asks, &volumes[..1], Search::Delayed),
        None,
        "the scheduler chooses"
    );
    let more = claim("10Gi", json!({}));
    assert_eq!(
        found(&more, &volumes, Search::Immediate),
        None,
        "too small even so"
    );
}

#[test]
fn on_a_node_counts_what_is_reached_from_there_in_every_way_asked_for() {
    let on = |host: &str| {
        let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}}})
    };
    let labels = [("kubernetes.io/hostname".to_owned(), "n1".to_owned())].into();
    let node = Search::OnNode(NodeView {
        name: "n1",
        labels: &labels,
    });
    let volumes = [
        volume("there", "1Gi", on("n2")),
        volume("here", "2Gi", on("n1")),
    ];
    let asks = claim("1Gi", json!({}));
    assert_eq!(found(&asks, &volumes, node).as_deref(), Some("here"));
    assert_eq!(
        found(&asks, &volumes, Search::Immediate).as_deref(),
        Some("there")
    );
    let many = claim("1Gi", json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
    assert_eq!(found(&many, &volumes, node), None);
    let mut kept = on("n2");
    kept["spec"]["claimRef"] = json!({"name": "c", "namespace": "ns"});
    let volumes = [volume("here", "1Gi", on("n1")), volume("kept", "1Gi", kept)];
    assert_eq!(found(&asks, &volumes[1..], node), None);
    assert_eq!(found(&asks, &volumes[..1], node).as_deref(), Some("here"));
}

#[test]
fn a_named_volume_is_refused_for_one_reason() {
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (of_volume, of_claim, expect) in [
        (json!({}), json!({}), ""),
        (
            terminating,
            json!({}),
            "the volume is marked for deletion \"v\"",
        ),
        (
            json!({"spec": {"capacity": {"storage": "1Mi"}}}),
            json!({}),
            "requested PV is too small",
        ),
        (
            json!({}),
            json!({"spec": {"storageClassName": "fast"}}),
            "storageClassName does not match",
        ),
        (
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            json!({}),
            "volumeAttributesClassName does not match",
        ),
        (
            json!({"spec": {"volumeMode": "Block"}}),
            json!({}),
            "incompatible volumeMode",
        ),
        (
            json!({}),
            json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            "incompatible accessMode",
        ),
    ] {
        let (volume, claim) = (volume("v", "1Gi", of_volume), claim("1Gi", of_claim));
        let said =
            satisfies(&volume, &claim).map_or_else(|why| why.to_string(), |()| String::new());
        assert_eq!(said, expect);
    }
}

#[test]
fn the_youngest_default_class_is_the_default() {
    let class = |name: &str, created: &str, annotation: &str, value: &str| -> StorageClass {
        serde_json::from_value(json!({"provisioner": "p", "metadata": {"name": name,
            "creationTimestamp": created, "annotations": {annotation: value}}}))
        .expect("a class")
    };
    let (older, younger) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let mut classes = vec![
        class("a", older, "x", "true"),
        class("b", older, IS_DEFAULT_CLASS, "false"),
    ];
    assert_eq!(default_class(&classes), None);
    let name = |classes: &[StorageClass]| default_class(classes)?.metadata.name.clone();
    classes.push(class("c", older, BETA_IS_DEFAULT_CLASS, "true"));
    assert_eq!(name(&classes).as_deref(), Some("c"));
    classes.push(class("e", younger, IS_DEFAULT_CLASS, "true"));
    classes.push(class("d", younger, IS_DEFAULT_CLASS, "true"));
    assert_eq!(name(&classes).as_deref(), Some("d"));
}

#[test]
fn an_empty_class_is_said_too() {
    let none = claim("1Gi", json!({}));
    let empty = claim("1Gi", json!({"spec": {"storageClassName": ""}}));
    assert_eq!(
        (claim_says_class(&none), class_of_claim(&none)),
        (false, "")
    );
    assert_eq!(
        (claim_says_class(&empty), class_of_claim(&empty)),
        (true, "")
    );
}
