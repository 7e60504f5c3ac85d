//! Kinds that are defined at run time, on a cluster of the real binaries: a server that is killed
//! while definitions change serves what it acknowledged, and what the objects of such kinds are
//! asked for everywhere else works: owners, namespaces, quotas, watches.

use std::time::Duration;

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait,
};
use serde_json::{Value, json};

const GROUP: &str = "e2e.example.org";

fn definition(kind: &str, maximum: u32) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let spec =
        json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": maximum}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]},
    })
}

fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {"size": 1}})
}

fn apply(kubectl: &Kubectl, object: &Value) {
    kubectl.apply(&object.to_string());
}

fn established(kubectl: &Kubectl, definition: &Value) {
    apply(kubectl, definition);
    let name = definition["metadata"]["name"].as_str().expect("a name");
    kubectl.ok(&format!(
        "wait --for=condition=established --timeout=30s crd/{name}"
    ));
}

#[test]
fn kinds_that_are_defined_are_kinds_like_others() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(0, &[]);
    let kubectl = cluster.kubectl();
    established(&kubectl, &definition("Gadget", 10));
    an_owner_takes_its_objects_along(&kubectl);
    a_namespace_takes_its_objects_along(&kubectl);
    a_quota_counts_objects(&kubectl);
    a_killed_server_serves_what_was_defined(&mut cluster);
}

fn an_owner_takes_its_objects_along(kubectl: &Kubectl) {
    kubectl.ok("create configmap owner");
    let uid = kubectl.ok("get configmap owner -o jsonpath={.metadata.uid}");
    let mut owned = object("Gadget", "owned");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid.trim()}]);
    apply(kubectl, &owned);
    kubectl.ok("delete configmap owner");
    kubectl.count_is(&format!("gadgets.{GROUP}"), 0);
}

fn a_namespace_takes_its_objects_along(kubectl: &Kubectl) {
    kubectl.ok("create namespace passing");
    let mut one = object("Gadget", "one");
    one["metadata"]["namespace"] = "passing".into();
    apply(kubectl, &one);
    kubectl.ok("delete namespace passing --timeout=60s");
    kubectl.count_is(&format!("gadgets.{GROUP} -n passing"), 0);
}

fn a_quota_counts_objects(kubectl: &Kubectl) {
    kubectl.ok(&format!(
        "create quota gadgets --hard=count/gadgets.{GROUP}=1"
    ));
    let used = format!(
        "get quota gadgets -o jsonpath={{.status.used.count/gadgets\\.{}}}",
        GROUP.replace('.', "\\.")
    );
    wait::until("the quota is counted", PATIENCE, || {
        let used = kubectl.ok(&used);
        (used.trim() == "0").then_some(()).ok_or(used)
    });
    apply(kubectl, &object("Gadget", "first"));
    let second = kubectl.apply_text(&["create"], &object("Gadget", "second").to_string());
    assert_ne!(second.code, 0, "{second:?}");
    kubectl.ok("delete quota gadgets");
}

/// Definitions come and change while the server is killed again and again: what was acknowledged
/// is there and served as soon as there is an answer.
fn a_killed_server_serves_what_was_defined(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl();
    for round in 0..4_u32 {
        let kind = format!(
            "Thing{}",
            char::from(b'a' + u8::try_from(round).expect("few"))
        );
        apply(&kubectl, &definition(&kind, 10));
        apply(&kubectl, &definition("Gadget", 11 + round));
        cluster.server.as_mut().expect("a server").kill();
        cluster.start_server();
        let plural = format!("{}s", kind.to_lowercase());
        kubectl.ok(&format!(
            "wait --for=condition=established --timeout=30s crd/{plural}.{GROUP}"
        ));
        apply(&kubectl, &object(&kind, "one"));
        let there = kubectl.ok(&format!("get gadgets.{GROUP} -o name"));
        assert!(there.contains("/first"), "{there}");
    }
    let deleting = "delete crd --all --timeout=60s";
    kubectl.ok(deleting);
    wait::until("nothing is left", Duration::from_secs(30), || {
        let left = kubectl.ok("get crd -o name");
        left.trim().is_empty().then_some(()).ok_or(left)
    });
}
