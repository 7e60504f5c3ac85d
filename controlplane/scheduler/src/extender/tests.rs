//! Extenders that answer, err, lie and are silent, over real connections.

mod binding;
mod failing;
mod filtering;
mod preempting;
mod prioritizing;
mod server;
mod tls;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::server::{Reply, Server};
use super::*;
use crate::{
    cache::Cache,
    config::SchedulerConfig,
    framework::{CycleState, Diagnosis, Extenders, Failed, Framework, Nomination},
    plugins,
    schedule_one::{Algorithm, SchedulingFailure},
    testing::node,
};

/// By what `extenders` of the configuration says.
fn config(extenders: &Value) -> SchedulerConfig {
    let all = json!({"apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration", "extenders": extenders});
    SchedulerConfig::parse(&all.to_string()).unwrap()
}

fn extenders(config: &SchedulerConfig) -> Extenders {
    let all = config.extenders.iter();
    let all = all.map(|one| Box::new(HttpExtender::new(one.clone())) as _);
    Extenders::new(all.collect(), CancellationToken::new())
}

/// The default plugins, and these extenders.
fn framework(said: &Value) -> Arc<Framework> {
    let config = config(said);
    let parts = plugins::Parts {
        storage: &Arc::default(),
        client: None,
    };
    Arc::new(Framework {
        extenders: Arc::new(extenders(&config)),
        ..plugins::framework(&config.profiles[0], &parts)
    })
}

/// Nodes of so many CPUs, held whole.
fn cache(nodes: &[(&str, &str)]) -> Cache {
    let mut cache = Cache::default();
    for (name, cpu) in nodes {
        let node = Arc::new(node(name, cpu));
        cache.set_node(&node);
        cache.keep_object(node);
    }
    cache
}

/// Held whole; asks for these resources.
fn pod(name: &str, priority: i32, requests: &Value) -> PodInfo {
    let resources = json!({"requests": requests, "limits": requests});
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "annotations": {"a": "b"}},
        "spec": {"priority": priority, "containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    let object: Pod = serde_json::from_value(object).unwrap();
    PodInfo::whole(object).unwrap()
}

fn small(name: &str) -> PodInfo {
    pod(name, 0, &json!({"cpu": "1"}))
}

fn gpu(name: &str) -> PodInfo {
    pod(name, 0, &json!({"cpu": "1", "example.com/gpu": "1"}))
}

/// The node, or what is said of it that there is none.
fn place(framework: &Arc<Framework>, cache: &Cache, pod: &PodInfo) -> Result<String, String> {
    let mut algorithm = Algorithm::new(framework.clone().into());
    match algorithm.schedule(&mut CycleState::default(), pod, None, &cache.snapshot()) {
        Ok(node) => Ok(node.name.clone()),
        Err(SchedulingFailure::Unschedulable(diagnosis)) => Err(diagnosis.to_string()),
        Err(SchedulingFailure::Error(status)) => Err(format!("error: {}", status.message())),
    }
}

/// What of a list of whole nodes is left.
fn only(args: &Value, names: &[&str]) -> Value {
    let mut items = args["Nodes"]["items"].as_array().unwrap().clone();
    items.retain(|node| names.contains(&node["metadata"]["name"].as_str().unwrap()));
    json!({"items": items})
}
