//! The life of objects of admission, apps, batch, policy, scheduling, storage and the network, as
//! upstream's conformance goes through it kind by kind: made, read, listed here and everywhere,
//! watched, changed in part and as a whole, their state told apart, deleted by label.
//! `docs/conformance.md` says which test each one retells.

use coracle_registry::{
    kinds::all,
    strategy::{BuiltIn, Scope, Subresource},
};
use serde_json::{Value, json};

use super::{
    kinds::{collection, sent},
    raw::{PODS, Raw, admin, pod},
    watches::Events,
};

const GROUPS: [&str; 7] = [
    "admissionregistration.k8s.io",
    "apps",
    "batch",
    "discovery.k8s.io",
    "policy",
    "scheduling.k8s.io",
    "storage.k8s.io",
];
const OF_OTHERS: [&str; 9] = [
    "Endpoints",
    "Ingress",
    "IngressClass",
    "LimitRange",
    "NetworkPolicy",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ReplicationController",
    "Service",
];
const LABELLED: &str = "labelSelector=life%3Dyes";

#[tokio::test]
async fn objects_of_workloads_storage_and_network_live_their_lives() {
    let raw = admin().await;
    let mut lived = 0;
    for kind in all() {
        let info = kind.resource();
        if GROUPS.contains(&info.group) || OF_OTHERS.contains(&info.kind) {
            lives(&raw, *kind).await;
            lived += 1;
        }
    }
    assert!(lived >= 29, "{lived} kinds");
}

async fn lives(raw: &Raw, kind: &dyn BuiltIn) {
    let info = kind.resource();
    let here = collection(kind);
    let names = make(raw, kind).await;
    let own = format!("{here}/{}", names[0]);
    let everywhere = match info.scope {
        Scope::Namespaced => here.replace("/namespaces/default", ""),
        Scope::Cluster => here.clone(),
    };
    let (_, list) = raw.get(&format!("{everywhere}?{LABELLED}")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    let since = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{everywhere}?watch=true&{LABELLED}&resourceVersion={since}");
    let mut events = Events::at(raw, &path).await;

    let note = |text: &str| json!({"metadata": {"annotations": {"note": text}}});
    let (code, patched) = raw.merge(&own, note("patched")).await;
    assert_eq!(code, 200, "{patched}");
    events.expect("MODIFIED", &names[0]).await;
    let (_, mut object) = raw.get(&own).await;
    assert_eq!(object["metadata"]["annotations"]["note"], "patched");
    object["metadata"]["annotations"]["note"] = json!("updated");
    let (code, updated) = raw.put(&own, object).await;
    assert_eq!(code, 200, "{updated}");
    let seen = events.expect("MODIFIED", &names[0]).await;
    let note = &seen["object"]["metadata"]["annotations"]["note"];
    assert_eq!(note, "updated");
    if info.subresources.contains(&Subresource::Status) {
        its_state_is_told_apart(raw, info.kind, &own, &mut events, &names[0]).await;
    }
    goes_by_label(raw, &here, &mut events, &names).await;
}

/// Two that are labelled, and one that is not. What admission lets wait for others is let go.
async fn make(raw: &Raw, kind: &dyn BuiltIn) -> [String; 3] {
    let object = sent(kind);
    let name = object["metadata"]["name"].as_str().unwrap();
    let names = [name.to_owned(), format!("{name}-2"), format!("{name}-3")];
    for name in &names {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        if *name != names[2] {
            object["metadata"]["labels"] = json!({"life": "yes"});
        }
        let (code, made) = raw.post(&collection(kind), object).await;
        assert_eq!(code, 201, "{made}");
        let own = format!("{}/{name}", collection(kind));
        let (code, read) = raw.get(&own).await;
        assert_eq!((code, &read), (200, &made));
        if !made["metadata"]["finalizers"].is_null() {
            let free = json!({"metadata": {"finalizers": null}});
            assert_eq!(raw.merge(&own, free).await.0, 200);
        }
    }
    names
}

/// As a controller of the kind might tell it.
fn told(kind: &str) -> Value {
    let when = "2026-01-01T00:00:00Z";
    match kind {
        "CronJob" => json!({"lastScheduleTime": when}),
        "Ingress" => json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
        "PersistentVolume" => json!({"message": "told", "reason": "Told"}),
        "VolumeAttachment" => json!({"attached": true}),
        _ => json!({"conditions": [{
            "type": "Told", "status": "True", "reason": "Told", "message": "told", "lastTransitionTime": when,
        }]}),
    }
}

async fn its_state_is_told_apart(
    raw: &Raw,
    kind: &str,
    own: &str,
    events: &mut Events,
    name: &str,
) {
    let path = format!("{own}/status");
    let told = told(kind);
    let (code, patched) = raw.merge(&path, json!({"status": told})).await;
    assert_eq!(code, 200, "{kind}: {patched}");
    let seen = events.expect("MODIFIED", name).await;
    let (_, read) = raw.get(&path).await;
    for (field, value) in told.as_object().unwrap() {
        let (read, seen) = (&read["status"][field], &seen["object"]["status"][field]);
        assert!(!read.is_null() && read == seen, "{kind}: {read} {seen}");
        let same = match value.as_array() {
            Some(conditions) => read[0]["reason"] == conditions[0]["reason"],
            None => read == value,
        };
        assert!(same, "{kind}: {read} is not {value}");
    }
    let mut object = read;
    object["metadata"]["annotations"]["of"] = json!("the state");
    object["status"][told.as_object().unwrap().keys().next().unwrap()] = Value::Null;
    if kind == "VolumeAttachment" {
        object["status"]["attached"] = json!(false);
    }
    let (code, replaced) = raw.put(&path, object).await;
    assert_eq!(code, 200, "{kind}: {replaced}");
    events.expect("MODIFIED", name).await;
}

async fn goes_by_label(raw: &Raw, here: &str, events: &mut Events, names: &[String; 3]) {
    let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let (code, gone) = raw.delete(&format!("{here}?{LABELLED}"), now.clone()).await;
    assert_eq!(code, 200, "{gone}");
    for name in &names[..2] {
        events.expect("DELETED", name).await;
    }
    let (_, left) = raw.get(here).await;
    let left: Vec<_> = left["items"].as_array().unwrap().iter().collect();
    let named = |name: &str| left.iter().any(|one| one["metadata"]["name"] == name);
    assert!(named(&names[2]) && !named(&names[0]), "{left:?}");
    let (code, gone) = raw.delete(&format!("{here}/{}", names[2]), now).await;
    assert_eq!(code, 200, "{gone}");
}

/// A pod may name a driver for a volume that lives with it, whether the driver is there or not.
#[tokio::test]
async fn a_pod_may_name_a_driver_for_a_volume() {
    let raw = admin().await;
    let own = format!("{PODS}/inline");
    let mut object = pod("inline");
    let volume = json!({"name": "data", "csi": {"driver": "files.example.org", "readOnly": true,
        "fsType": "ext4", "volumeAttributes": {"a": "b"}}});
    object["spec"]["volumes"] = json!([volume]);
    let (code, made) = raw.post(PODS, object).await;
    assert_eq!(code, 201, "{made}");
    let note = json!({"metadata": {"annotations": {"note": "patched"}}});
    assert_eq!(raw.merge(&own, note).await.0, 200);
    let (_, list) = raw.get("/api/v1/pods?labelSelector=app%3Dinline").await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    let volumes = list["items"][0]["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.contains(&volume), "{volumes:?}");
    let (code, gone) = raw
        .delete(
            &format!("{PODS}?labelSelector=app%3Dinline"),
            json!({"gracePeriodSeconds": 0}),
        )
        .await;
    assert_eq!(code, 200, "{gone}");
    assert_eq!(raw.get(&own).await.0, 404);
}
