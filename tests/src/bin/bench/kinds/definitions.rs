//! A thousand definitions: what they keep resident, and the documents that tell of them.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::Method;
use serde_json::{Value, json};

use super::{definition, server};
use crate::{
    client::{Connection, Target},
    cluster::anonymous_kb,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COUNT: usize = 1000;
const IN_A_GROUP: usize = 10;
const ASKED: usize = 20;
const ESTABLISHED: Duration = Duration::from_secs(120);
const SETTLE: Duration = Duration::from_secs(5);

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    let all: Vec<Value> = (0..COUNT).map(one).collect();
    let begin = Instant::now();
    define(&mut connection, &all).await?;
    let made_s = begin.elapsed().as_secs_f64();
    tokio::time::sleep(SETTLE).await;
    let pid = server()?;
    let made_kb = anonymous_kb(pid)?;
    let mut result = json!({"definitions": COUNT, "made_s": made_s, "made_kb": made_kb,
        "json_bytes": all[0].to_string().len()});
    let group = format!("/openapi/v3/apis/{}/v1", group(0));
    for (name, path, accept) in [
        ("discovery_ms", "/apis", DISCOVERY),
        ("openapi_v3_index_ms", "/openapi/v3", "application/json"),
        ("openapi_v3_ms", &group, "application/json"),
        ("openapi_v2_ms", "/openapi/v2", "application/json"),
    ] {
        let (first, warm) = asked(&mut connection, path, accept).await?;
        result["first"][name] = first.into();
        result[name] = warm.into();
    }
    tokio::time::sleep(SETTLE).await;
    result["asked_kb"] = anonymous_kb(pid)?.into();
    Ok(result)
}

/// The first time, and the least of the following, in milliseconds.
async fn asked(
    connection: &mut Connection,
    path: &str,
    accept: &str,
) -> anyhow::Result<(f64, f64)> {
    let mut times = Vec::new();
    for _ in 0..=ASKED {
        let begin = Instant::now();
        connection.drain_as(path, accept).await?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let warm = times[1..].iter().copied().fold(f64::INFINITY, f64::min);
    Ok((times[0], warm))
}

/// Creates definitions and waits until the last of them is established, which is told in turn.
pub(super) async fn define(connection: &mut Connection, all: &[Value]) -> anyhow::Result<()> {
    for one in all {
        connection.post(DEFINITIONS, one).await?;
    }
    let deadline = Instant::now() + ESTABLISHED;
    for one in all {
        let name = one["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{DEFINITIONS}/{name}");
        while !is_established(&connection.json(Method::GET, &path, None).await?) {
            ensure!(Instant::now() < deadline, "{name} is not established");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

fn group(at: usize) -> String {
    format!("g{}.example.org", at / IN_A_GROUP)
}

/// As operators write them: some dozen fields with descriptions, conditions in the status.
fn one(at: usize) -> Value {
    let described = |kind: &str, of: &str| json!({"type": kind, "description": format!("The {of} that is wanted; if it is not set, one is chosen by the operator.")});
    let texts =
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": described("string", "type"), "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": described("string", "reason"), "message": described("string", "message"),
        "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let spec = json!({"type": "object", "required": ["image"], "properties": {
        "image": described("string", "image"), "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "paused": described("boolean", "pause"), "tags": texts,
        "storage": {"type": "object", "properties": {
            "size": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "class": described("string", "class")}},
        "env": {"type": "array", "items": {"type": "object", "properties": {
            "name": described("string", "name"), "value": described("string", "value")}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}});
    let status = json!({"type": "object", "properties": {"ready": {"type": "integer"},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": condition}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    definition(&group(at), &format!("Kind{at}"), &schema)
}
