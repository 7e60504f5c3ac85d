//! `metrics.k8s.io`: what nodes and pods use now, asked of the nodes' agents when somebody asks
//! here.
//!
//! Nothing of it is stored. A node that does not answer is left out, as metrics-server does.
//!
//! Source: `k8s.io/metrics/pkg/apis/metrics/v1beta1/types.go` at v1.37.

mod openapi;
mod summary;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_api::{meta, status::Status};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Resource,
    store::cache_status,
    strategy::{ResourceInfo, Scope},
    watch_cache::{Entry, ListRequest},
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{
    catalog::{Call, Virtual},
    list_options,
    published::Definitions,
    reply::Reply,
    request_info::Verb,
    state::State,
};
use summary::Summary;

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// For one node's answer: it may take half a second to measure.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);
/// Nodes asked at once.
const AT_ONCE: usize = 16;

const INFO: ResourceInfo = ResourceInfo {
    verbs: &["get", "list"],
    ..ResourceInfo::in_group(GROUP, VERSION)
};

static RESOURCES: [ResourceInfo; 2] = [
    ResourceInfo {
        kind: "NodeMetrics",
        plural: "nodes",
        scope: Scope::Cluster,
        ..INFO
    },
    ResourceInfo {
        kind: "PodMetrics",
        plural: "pods",
        ..INFO
    },
];

/// One of these.
struct Metrics {
    info: Arc<ApiResource>,
    definitions: Arc<Definitions>,
}

/// All of them.
pub(crate) fn resources() -> Vec<Arc<dyn Virtual<State>>> {
    let resource = |info: &'static ResourceInfo| -> Arc<dyn Virtual<State>> {
        Arc::new(Metrics {
            info: Arc::new(info.into()),
            definitions: Arc::new(openapi::definitions(info.kind)),
        })
    };
    RESOURCES.iter().map(resource).collect()
}

#[async_trait]
impl Virtual<State> for Metrics {
    fn info(&self) -> &Arc<ApiResource> {
        &self.info
    }

    fn definitions(&self) -> Option<Arc<Definitions>> {
        Some(Arc::clone(&self.definitions))
    }

    async fn serve(&self, call: Call<'_, State>) -> Result<Reply, Status> {
        serve(&self.info, call).await
    }
}

async fn serve(about: &ApiResource, call: Call<'_, State>) -> Result<Reply, Status> {
    let Call {
        server,
        info,
        query,
        ..
    } = call;
    let group_resource = about.group_resource();
    if !matches!(info.verb, Verb::Get | Verb::List) {
        return Err(Status::method_not_supported(
            &group_resource,
            info.verb.as_str(),
        ));
    }
    let resource = server
        .registry
        .core(&about.plural)
        .ok_or_else(Status::no_such_path)?;
    server.store.cache.catch_up().await.map_err(cache_status)?;
    let objects = match info.verb {
        Verb::Get => {
            let found = resource
                .cache
                .get(&resource.key(&info.namespace, &info.name));
            vec![found.ok_or_else(|| Status::not_found(&group_resource, &info.name))?]
        }
        _ => {
            let selection = list_options::selection(resource, info, query)?;
            resource
                .cache
                .list(&ListRequest::all(selection))
                .map_err(cache_status)?
                .entries
        }
    };
    let items = if about.plural == "nodes" {
        nodes(server, &objects).await
    } else {
        pods(server, &objects).await?
    };
    if info.verb == Verb::Get {
        // As metrics-server: what is not measured yet, or whose node is silent, is not found.
        let mut item = items
            .into_iter()
            .next()
            .ok_or_else(|| Status::not_found(&group_resource, &info.name))?;
        item["kind"] = (*about.kind).into();
        item["apiVersion"] = format!("{GROUP}/{VERSION}").into();
        return Ok(Reply::value(&item));
    }
    Ok(Reply::value(&json!({
        "kind": format!("{}List", about.kind),
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {},
        "items": items,
    })))
}

async fn nodes(server: &Arc<State>, nodes: &[Arc<Entry>]) -> Vec<Value> {
    let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    let summaries = summaries(server, &names).await;
    let items = nodes.iter().filter_map(|node| {
        let summary = summaries.get(node.name())?;
        let mut item = summary.timed(summary.node());
        item["metadata"] = metadata(node);
        Some(item)
    });
    items.collect()
}

/// The running pods among these, with their nodes.
fn placed(pods: &[Arc<Entry>]) -> Vec<(&Arc<Entry>, String)> {
    let node_of = |pod: &Arc<Entry>| {
        let object = serde_json::from_slice::<Value>(&pod.unmanaged()).ok()?;
        let node = meta::get_str(&object, &["spec", "nodeName"]);
        let is_running =
            !node.is_empty() && meta::get_str(&object, &["status", "phase"]) == "Running";
        is_running.then(|| node.to_owned())
    };
    pods.iter()
        .filter_map(|pod| Some((pod, node_of(pod)?)))
        .collect()
}

async fn pods(server: &Arc<State>, pods: &[Arc<Entry>]) -> Result<Vec<Value>, Status> {
    let placed: Vec<_> = server
        .limits
        .beside(pods.iter().map(|pod| pod.json_len()).sum(), || placed(pods))
        .await?;
    let mut names: Vec<&str> = placed.iter().map(|(_, node)| node.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let summaries = summaries(server, &names).await;
    let items = placed.iter().filter_map(|(pod, node)| {
        let summary = summaries.get(node)?;
        let mut item = summary.timed(summary.pod(pod.uid())?);
        item["metadata"] = metadata(pod);
        Some(item)
    });
    Ok(items.collect())
}

fn metadata(entry: &Entry) -> Value {
    let labels: serde_json::Map<String, Value> = entry
        .labels()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let mut metadata = json!({"name": entry.name(), "creationTimestamp": meta::now()});
    if let Some(namespace) = entry.namespace() {
        metadata["namespace"] = namespace.into();
    }
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    metadata
}

/// What those of the nodes say that answer in time.
async fn summaries(server: &Arc<State>, names: &[&str]) -> HashMap<String, Summary> {
    let nodes: Option<&Arc<Resource>> = server.registry.core("nodes");
    let asked = names.iter().filter_map(|name| {
        let entry = nodes.and_then(|nodes| nodes.cache.get(&nodes.key("", name)))?;
        let (name, server) = ((*name).to_owned(), Arc::clone(server));
        Some(async move {
            match tokio::time::timeout(NODE_TIMEOUT, Summary::fetch(&server, &entry.unmanaged()))
                .await
            {
                Ok(Ok(summary)) => Some((name, summary)),
                Ok(Err(status)) => {
                    tracing::debug!(node = name, error = %status, "ask a node for its metrics");
                    None
                }
                Err(_) => None,
            }
        })
    });
    let asked: Vec<_> = asked.collect();
    futures::stream::iter(asked)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await
}
