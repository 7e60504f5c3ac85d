//! Request rates of the API server: sequential requests on each of N connections for a few seconds.

use std::time::{Duration, Instant};

use hyper::{Method, body::Bytes};
use serde_json::{Value, json};

use crate::{client::Target, report::percentile};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SPAN: Duration = Duration::from_secs(4);
const OBJECTS: usize = 13_000;

fn config_map(metadata: Value) -> Bytes {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "x".repeat(700)}});
    Bytes::from(map.to_string())
}

/// get, create and update on 1 and on 32 connections.
pub(crate) async fn rates(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let one = format!("{MAPS}/bench-put");
    let put = config_map(json!({"name": "bench-put", "labels": {"app": "bench"}}));
    target.connect().await?.bytes(Method::POST, MAPS, Some(put.clone())).await?;
    let create = config_map(json!({"generateName": "ab-", "labels": {"app": "bench"}}));
    let mut result = json!({});
    for connections in [1, 32] {
        for (name, method, path, body) in [
            ("get", Method::GET, one.as_str(), None),
            ("create", Method::POST, MAPS, Some(&create)),
            ("update", Method::PUT, one.as_str(), Some(&put)),
        ] {
            result[format!("{name}_{connections}")] = load(&target, connections, method, path, body).await?;
        }
    }
    Ok(result)
}

/// Lists beside thirteen thousand objects of about 1 KB.
pub(crate) async fn many_objects(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let path = format!("{MAPS}?limit=1");
    let list = target.connect().await?.json(Method::GET, &path, None).await?;
    let present = list.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0) + 1;
    let missing = OBJECTS.saturating_sub(usize::try_from(present)?);
    let create = config_map(json!({"generateName": "many-", "labels": {"app": "bench"}}));
    let tasks = (0..32).map(|k| {
        let (target, create) = (target.clone(), create.clone());
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            for _ in (k..missing).step_by(32) {
                connection.bytes(Method::POST, MAPS, Some(create.clone())).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(json!({
        "objects": present.max(OBJECTS as u64),
        "list500_4": load(&target, 4, Method::GET, &format!("{MAPS}?limit=500"), None).await?,
        "list_all_1": load(&target, 1, Method::GET, &format!("{MAPS}?resourceVersion=0"), None).await?,
    }))
}

async fn load(
    target: &Target,
    connections: usize,
    method: Method,
    path: &str,
    body: Option<&Bytes>,
) -> anyhow::Result<Value> {
    let begin = Instant::now();
    let tasks = (0..connections).map(|_| {
        let (target, method, path, body) = (target.clone(), method.clone(), path.to_owned(), body.cloned());
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            let mut times = Vec::new();
            while begin.elapsed() < SPAN {
                let start = Instant::now();
                connection.bytes(method.clone(), &path, body.clone()).await?;
                times.push(start.elapsed());
            }
            anyhow::Ok(times)
        })
    });
    let mut times = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        times.extend(task.await??);
    }
    let rate = times.len() as f64 / begin.elapsed().as_secs_f64();
    Ok(json!({"per_s": rate, "p50_ms": percentile(&mut times, 50), "p99_ms": percentile(&mut times, 99)}))
}
