//! Request rates of the API server: sequential requests on each of N connections for a few seconds.

use std::time::{Duration, Instant};

use hyper::{Method, body::Bytes};
use serde_json::{Value, json};

use crate::{client::Target, report::percentile};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";
/// What the rates create lives apart: lists are measured beside a known number of objects.
const RATES: &str = "bench-rates";
/// How long a namespace with some ten thousand objects may take to end.
const NAMESPACE_END: Duration = Duration::from_secs(120);
/// Connections of the larger loads.
const CROWD: usize = 32;
const SPAN: Duration = Duration::from_secs(4);
pub(crate) const OBJECTS: usize = 13_000;

/// About 1 KB when it is stored.
pub(crate) fn config_map(metadata: Value) -> Bytes {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "x".repeat(700)}});
    Bytes::from(map.to_string())
}

/// What each request of a load is.
#[derive(Clone)]
enum Load {
    Get(String),
    Create(String),
    /// Each connection has an object of its own, and every request changes it, so that every one is
    /// a durable write.
    Update(String),
    /// As before, but all of one object: each has to win over all others.
    Contend(String),
}

impl Load {
    /// The request with that number, on a connection with a number.
    fn request(&self, number: usize, connection: usize) -> (Method, String, Option<Bytes>) {
        let put = |maps: &str, name: String| {
            let labels = json!({"app": "bench", "number": number.to_string()});
            (
                Method::PUT,
                format!("{maps}/{name}"),
                Some(config_map(json!({"name": name, "labels": labels}))),
            )
        };
        match self {
            Self::Get(path) => (Method::GET, path.clone(), None),
            Self::Create(maps) => {
                let map = config_map(json!({"generateName": "ab-", "labels": {"app": "bench"}}));
                (Method::POST, maps.clone(), Some(map))
            }
            Self::Update(maps) => put(maps, own(connection)),
            Self::Contend(maps) => put(maps, own(0)),
        }
    }
}

/// The object of a connection.
fn own(connection: usize) -> String {
    format!("bench-put-{connection}")
}

/// get, create and update on 1 and on 32 connections.
pub(crate) async fn rates(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RATES}});
    connection
        .json(Method::POST, NAMESPACES, Some(&namespace))
        .await?;
    let maps = format!("{NAMESPACES}/{RATES}/configmaps");
    for owner in 0..CROWD {
        connection
            .bytes(
                Method::POST,
                &maps,
                Some(config_map(json!({"name": own(owner)}))),
            )
            .await?;
    }
    let mut result = json!({});
    for connections in [1, CROWD] {
        for (name, what) in [
            ("get", Load::Get(format!("{maps}/{}", own(0)))),
            ("create", Load::Create(maps.clone())),
            ("update", Load::Update(maps.clone())),
        ] {
            result[format!("{name}_{connections}")] = load(&target, connections, &what).await?;
        }
    }
    result["contend_32"] = load(&target, CROWD, &Load::Contend(maps)).await?;
    let path = format!("{NAMESPACES}/{RATES}");
    connection.json(Method::DELETE, &path, None).await?;
    let deadline = Instant::now() + NAMESPACE_END;
    while connection.json(Method::GET, &path, None).await.is_ok() {
        anyhow::ensure!(Instant::now() < deadline, "namespace {RATES} does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(result)
}

/// Lists beside thirteen thousand objects of about 1 KB.
pub(crate) async fn many_objects(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let path = format!("{MAPS}?limit=1");
    let list = target
        .connect()
        .await?
        .json(Method::GET, &path, None)
        .await?;
    let present = list
        .pointer("/metadata/remainingItemCount")
        .and_then(Value::as_u64)
        .unwrap_or(0)
        + 1;
    let missing = OBJECTS.saturating_sub(usize::try_from(present)?);
    create_many(
        &target,
        MAPS,
        missing,
        config_map(json!({"generateName": "many-", "labels": {"app": "bench"}})),
    )
    .await?;
    Ok(json!({
        "objects": present.max(OBJECTS as u64),
        "list500_4": load(&target, 4, &Load::Get(format!("{MAPS}?limit=500"))).await?,
        "list_all_1": load(&target, 1, &Load::Get(format!("{MAPS}?resourceVersion=0"))).await?,
    }))
}

/// Creates `count` objects of one text, which has a `generateName`, on 32 connections.
pub(crate) async fn create_many(
    target: &Target,
    path: &str,
    count: usize,
    object: Bytes,
) -> anyhow::Result<()> {
    let tasks = (0..32).map(|k| {
        let (target, path, object) = (target.clone(), path.to_owned(), object.clone());
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            for _ in (k..count).step_by(32) {
                connection
                    .bytes(Method::POST, &path, Some(object.clone()))
                    .await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn load(target: &Target, connections: usize, what: &Load) -> anyhow::Result<Value> {
    let begin = Instant::now();
    let tasks = (0..connections).map(|first| {
        let (target, what) = (target.clone(), what.clone());
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            let mut times = Vec::new();
            for number in (first..).step_by(connections) {
                if begin.elapsed() >= SPAN {
                    break;
                }
                let (method, path, body) = what.request(number, first);
                let start = Instant::now();
                connection.drain(method, &path, body).await?;
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
    Ok(
        json!({"per_s": rate, "p50_ms": percentile(&mut times, 50), "p99_ms": percentile(&mut times, 99)}),
    )
}
