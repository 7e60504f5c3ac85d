//! Fills a fresh server, for its memory to be read from outside.

use std::time::Duration;

use hyper::{Method, body::Bytes};
use serde_json::{Value, json};

use crate::{
    api::{self, create_many},
    client::Target,
};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const PODS: usize = 100_000;
/// Until the memory is read: what the last requests used has been given back.
const SETTLE: Duration = Duration::from_secs(3);

/// 13,000 ConfigMaps of about 1 KB.
pub(crate) async fn of_config_maps(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let object = api::config_map(json!({"generateName": "many-", "labels": {"app": "bench"}}));
    create_many(
        &target,
        &format!("{NAMESPACE}/configmaps"),
        api::OBJECTS,
        object,
    )
    .await?;
    tokio::time::sleep(SETTLE).await;
    Ok(json!({"objects": api::OBJECTS}))
}

/// 100,000 Pods as a Deployment makes them, but left alone by the scheduler: what is measured is
/// Pods, not the Event and the status that each of them gets where there is no node for it.
pub(crate) async fn of_pods(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let path = format!("{NAMESPACE}/pods");
    create_many(&target, &path, PODS, pod()).await?;
    let list = target
        .connect()
        .await?
        .bytes(Method::GET, &format!("{path}?limit=100"), None)
        .await?;
    tokio::time::sleep(SETTLE).await;
    Ok(json!({"objects": PODS, "json_bytes": list.len() / 100}))
}

fn pod() -> Bytes {
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "shop-frontend-7d4b9c6f58-",
            "labels": {"app": "shop", "tier": "frontend", "pod-template-hash": "7d4b9c6f58"},
        },
        "spec": {"schedulerName": "none", "containers": [{
            "name": "web", "image": "registry.example/shop/frontend:v1.27.3",
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "DATABASE", "value": "postgres.data.svc"}],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "readinessProbe": probe, "livenessProbe": probe,
        }]},
    });
    Bytes::from(pod.to_string())
}
