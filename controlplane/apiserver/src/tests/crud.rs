use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::testing;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap()
}

#[tokio::test]
async fn object_lives_its_life() {
    let api: Api<ConfigMap> = Api::namespaced(testing::client().await, "default");
    let made = api.create(&PostParams::default(), &config_map("x")).await.unwrap();
    assert!(made.metadata.uid.is_some() && made.metadata.resource_version.is_some());
    let read = api.get("x").await.unwrap();
    assert_eq!(read, made);
    let mut changed = read.clone();
    changed.data.as_mut().unwrap().insert("c".into(), "d".into());
    let changed = api.replace("x", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(changed.metadata.resource_version, made.metadata.resource_version);
    let patch = Patch::Merge(json!({"data": {"a": null}}));
    let patched = api.patch("x", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 1);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("x", &DeleteParams::default()).await.unwrap();
    assert_eq!(api.get_opt("x").await.unwrap(), None);
}

#[tokio::test]
async fn cluster_starts_with_its_namespaces() {
    let api: Api<Namespace> = Api::all(testing::client().await);
    let names: Vec<_> = api.list(&ListParams::default()).await.unwrap().items.into_iter().filter_map(|n| n.metadata.name).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}
