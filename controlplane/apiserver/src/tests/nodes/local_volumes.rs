//! Volumes that are directories of nodes: which of them a node sees and lets go of.

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::{Raw, World};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const LABEL: &str = "local-path.coracle.dev/node";
const FINALIZER: &str = "local-path.coracle.dev/directory";
const OTHERS: &str = "example.org/mine";

fn volume(name: &str, node: &str) -> Value {
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]);
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
    "metadata": {
        "name": name, "labels": {LABEL: node}, "finalizers": [FINALIZER, OTHERS],
        "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"},
    },
    "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "local": {"path": format!("/var/lib/coracle/agent/storage/{name}_default_data")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
    }})
}

/// With a volume of the node `evil`, and one of another node, that go.
async fn world() -> World {
    let world = World::new().await;
    for (name, node) in [("own", "evil"), ("other", "good")] {
        let (code, made) = world.admin.post(VOLUMES, volume(name, node)).await;
        assert_eq!(code, 201, "{made}");
        let path = format!("{VOLUMES}/{name}");
        let (code, answer) = world.admin.send("DELETE", &path, "", "").await;
        assert_eq!(code, 200, "{answer}");
    }
    world
}

async fn finalizers(world: &World, name: &str) -> Vec<String> {
    let (_, volume) = world.admin.get(&format!("{VOLUMES}/{name}")).await;
    let finalizers = volume["metadata"]["finalizers"].clone();
    let mut all: Vec<String> = serde_json::from_value(finalizers).unwrap_or_default();
    all.retain(|one| !one.starts_with("kubernetes.io/"));
    all
}

#[tokio::test]
async fn a_node_sees_volumes_that_are_its_directories_and_no_others() {
    let world = world().await;
    let own = format!("{LABEL}=evil")
        .replace('/', "%2F")
        .replace('=', "%3D");
    let other = format!("{LABEL}=good")
        .replace('/', "%2F")
        .replace('=', "%3D");
    let either = format!("{LABEL} in (evil,good)")
        .replace('/', "%2F")
        .replace(' ', "%20");
    let list = async |selector: &str| {
        let path = format!("{VOLUMES}?labelSelector={selector}");
        world.node.get(&path).await
    };
    let (code, found) = list(&own).await;
    assert_eq!(code, 200, "{found}");
    let names: Vec<_> = found["items"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(names[0]["metadata"]["name"], "own");
    let narrowed = list(&format!("{own}%2Ca%3Db")).await;
    assert_eq!(narrowed.0, 200, "{}", narrowed.1);
    for selector in [
        other.as_str(),
        &either,
        "",
        LABEL,
        "a%3Db",
        &format!("{LABEL}!%3Devil"),
    ] {
        let (code, answer) = list(selector).await;
        assert_eq!(code, 403, "{selector}: {answer}");
    }
    let twice = format!("{VOLUMES}?labelSelector={other}&labelSelector={own}");
    assert_eq!(world.node.get(&twice).await.0, 403);
    for verb in ["own", "other"] {
        let (code, answer) = world.node.get(&format!("{VOLUMES}/{verb}")).await;
        assert_eq!(code, 403, "no pod of the node has it: {answer}");
    }
    let all = world
        .node
        .send("DELETE", &format!("{VOLUMES}?labelSelector={own}"), "", "")
        .await;
    assert_eq!(all.0, 403, "{}", all.1);
}

#[tokio::test]
async fn a_node_takes_its_finalizer_off_a_volume_that_goes_and_changes_nothing_else() {
    let world = world().await;
    let patch =
        async |name: &str, body: Value| world.node.merge(&format!("{VOLUMES}/{name}"), body).await;
    let rest = async |name: &str| {
        let mut rest = {
            let (_, volume) = world.admin.get(&format!("{VOLUMES}/{name}")).await;
            let all = volume["metadata"]["finalizers"].clone();
            serde_json::from_value::<Vec<String>>(all).unwrap()
        };
        rest.retain(|one| one != FINALIZER);
        rest
    };
    let own = rest("own").await;
    for body in [
        json!({"metadata": {"finalizers": []}}),
        json!({"metadata": {"finalizers": own, "labels": {LABEL: "good"}}}),
        json!({"metadata": {"finalizers": own, "annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": own}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
        json!({"metadata": {"finalizers": own}, "spec": {"capacity": {"storage": "9Gi"}}}),
        json!({"spec": {"claimRef": {"name": "c", "namespace": "default"}}}),
    ] {
        let (code, answer) = patch("own", body.clone()).await;
        assert_eq!(code, 403, "{body}: {answer}");
    }
    let status = format!("{VOLUMES}/own/status");
    let (code, answer) = world
        .node
        .merge(&status, json!({"status": {"phase": "Failed"}}))
        .await;
    assert_eq!(code, 403, "{answer}");
    let (code, answer) = patch(
        "other",
        json!({"metadata": {"finalizers": rest("other").await}}),
    )
    .await;
    assert_eq!(code, 403, "{answer}");
    for name in ["own", "other"] {
        assert_eq!(
            finalizers(&world, name).await,
            [FINALIZER, OTHERS],
            "{name}"
        );
    }
    let (code, answer) = patch("own", json!({"metadata": {"finalizers": own}})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(finalizers(&world, "own").await, [OTHERS]);
}

#[tokio::test]
async fn what_looks_like_a_directory_of_the_node_by_its_label_alone_stays_as_it_is() {
    let world = World::new().await;
    let mut foreign = volume("foreign", "good");
    foreign["metadata"]["labels"][LABEL] = "evil".into();
    let mut bare = volume("bare", "evil");
    bare["metadata"]["annotations"] = json!({});
    let kept = volume("kept", "evil");
    for object in [foreign, bare, kept] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(world.admin.post(VOLUMES, object).await.0, 201);
        let path = format!("{VOLUMES}/{name}");
        // The last one is not being deleted.
        if name != "kept" {
            assert_eq!(world.admin.send("DELETE", &path, "", "").await.0, 200);
        }
        let (code, answer) = world
            .node
            .merge(&path, json!({"metadata": {"finalizers": [OTHERS]}}))
            .await;
        assert_eq!(code, 403, "{name}: {answer}");
        assert_eq!(finalizers(&world, &name).await, [FINALIZER, OTHERS]);
    }
    let mut own = volume("made", "evil");
    own["metadata"]["name"] = "made".into();
    assert_eq!(world.node.post(VOLUMES, own).await.0, 403);
    let stranger = Raw::of(&world.server, UserInfo::node("good"));
    let (code, answer) = stranger
        .merge(
            &format!("{VOLUMES}/kept"),
            json!({"metadata": {"finalizers": []}}),
        )
        .await;
    assert_eq!(code, 403, "{answer}");
}
