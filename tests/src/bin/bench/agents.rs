//! What the agents of nodes that are objects would do: Leases are renewed, and a pod that has a
//! node is Running and Ready a moment later.

use std::time::Duration;

use anyhow::Context;
use hyper::Method;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    client::{Connection, Lines, Target},
    scale_objects as objects,
};

/// As many writers as act for all agents.
const WRITERS: usize = 8;
/// Pods that wait for them.
const WAITING_MAX: usize = 20_000;
const LEASE_PERIOD: Duration = Duration::from_secs(10);

/// A node joins: its object, its status and its Lease.
pub(crate) async fn join(
    connection: &mut Connection,
    node: usize,
    object: &Value,
) -> anyhow::Result<()> {
    connection.post("/api/v1/nodes", object).await?;
    let path = format!("/api/v1/nodes/{}/status", objects::node_name(node));
    connection.merge(&path, &objects::node_status(node)).await?;
    connection
        .post(objects::LEASES, &objects::lease(node))
        .await
}

/// Until no node has the taint of new ones any more.
pub(crate) async fn all_ready(connection: &mut Connection) -> anyhow::Result<()> {
    loop {
        let nodes = connection.json(Method::GET, "/api/v1/nodes", None).await?;
        let mut all = nodes["items"].as_array().into_iter().flatten();
        if all.all(|node| node["spec"]["taints"].is_null()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// While `work` is done, nodes renew their Leases, and nothing else.
pub(crate) async fn with_leases<F>(kubeconfig: &str, work: F) -> anyhow::Result<Value>
where
    F: AsyncFnOnce(&Target) -> anyhow::Result<Value>,
{
    let target = Target::load(kubeconfig)?;
    let mut renewing = JoinSet::new();
    renewing.spawn(renew(target.clone()));
    tokio::select! {
        result = work(&target) => result,
        Some(ended) = renewing.join_next() => {
            ended??;
            anyhow::bail!("Leases are not renewed any more")
        }
    }
}

/// While `work` is done, nodes renew their Leases and pods get ready.
pub(crate) async fn within_cluster<F>(kubeconfig: &str, work: F) -> anyhow::Result<Value>
where
    F: AsyncFnOnce(&Target) -> anyhow::Result<Value>,
{
    let target = Target::load(kubeconfig)?;
    let (stop, stopped) = watch::channel(false);
    let mut agents = JoinSet::new();
    agents.spawn(until(stopped.clone(), renew(target.clone())));
    let (pods, bound) = mpsc::channel(WAITING_MAX);
    agents.spawn(until(stopped.clone(), follow_pods(target.clone(), pods)));
    agents.spawn(until(stopped, act(target.clone(), bound)));
    let result = tokio::select! {
        result = work(&target) => result?,
        Some(ended) = agents.join_next() => {
            ended??;
            anyhow::bail!("an agent has ended")
        }
    };
    stop.send_replace(true);
    while let Some(ended) = agents.join_next().await {
        ended??;
    }
    Ok(result)
}

async fn until(
    mut stopped: watch::Receiver<bool>,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = work => ended,
        _ = stopped.wait_for(|is_over| *is_over) => Ok(()),
    }
}

async fn renew(target: Target) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    loop {
        let nodes = connection.json(Method::GET, objects::LEASES, None).await?;
        for lease in nodes["items"].as_array().into_iter().flatten() {
            let name = lease["metadata"]["name"].as_str().context("a name")?;
            let path = format!("{}/{name}", objects::LEASES);
            connection.merge(&path, &objects::renewal()).await?;
        }
        tokio::time::sleep(LEASE_PERIOD).await;
    }
}

/// Sends the name of each pod that has a node and does not run yet.
async fn follow_pods(target: Target, pods: mpsc::Sender<String>) -> anyhow::Result<()> {
    let path = format!("{}?watch=true", objects::PODS);
    let mut shared = target.connect_shared().await?;
    let watch = shared.watch(&path).await?;
    let mut events = Lines::new(watch);
    loop {
        let event = events.next().await?;
        let pod = &event["object"];
        let is_bound = pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Pending";
        if event["type"] != "DELETED" && is_bound {
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            pods.send(name.to_owned()).await?;
        }
    }
}

/// Lets pods run.
async fn act(target: Target, pods: mpsc::Receiver<String>) -> anyhow::Result<()> {
    let pods = tokio::sync::Mutex::new(pods);
    let lanes = (0..WRITERS).map(async |lane| {
        let mut connection = target.connect().await?;
        for number in 0.. {
            let Some(name) = pods.lock().await.recv().await else {
                break;
            };
            let path = format!("{}/{name}/status", objects::PODS);
            let status = objects::pod_status(number * WRITERS + lane);
            // It may be gone.
            if let Err(error) = connection.merge(&path, &status).await
                && !error.to_string().contains("404")
            {
                return Err(error);
            }
        }
        Ok(())
    });
    futures::future::try_join_all(lanes).await.map(drop)
}
