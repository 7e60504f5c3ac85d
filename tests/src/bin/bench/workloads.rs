//! Controllers at work, without agents: how soon what a workload asks for is there, how soon all of
//! them work again after a start among many pods, and what they take and write while nothing is
//! asked for.
//!
//! Nodes are objects, and a few writers stand for their agents (`agents`).

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    agents::{self, within_cluster},
    client::{Connection, Lines, Target},
    cluster::{Bench, resident_mb},
    report::Row,
    scale_objects as objects,
};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// On a Node: where its volumes go.
const DIRECTORY: &str = "local-path.coracle.dev/directory";
/// A DaemonSet has a pod on each.
const NODES: usize = 100;
const REPLICAS: usize = 500;
const ORDINALS: usize = 20;
/// Pods that are there when the controllers start, and nodes with room for them.
const CROWD: usize = 20_000;
const CROWD_NODES: usize = 250;
/// Until nothing is left of what was done before.
const SETTLE: Duration = Duration::from_secs(10);
const IDLE_SPAN: Duration = Duration::from_secs(60);

impl Bench {
    pub(crate) fn workloads(&mut self) -> anyhow::Result<()> {
        let pid = self.start_server("workloads")?;
        let idle = self.within_of("workloads", "workloads-idle")?;
        let number = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let what = "server with all controllers, idle: resident";
        self.rows
            .push(Row::at_most(what, resident_mb(pid)?, "MB", 50.0));
        let what = "server, idle for 60 s: writes but Leases";
        self.rows
            .push(Row::at_most(what, number(&idle, "writes"), "", 0.0));
        let what = "server, idle for 60 s: Leases written";
        self.rows.push(Row::told(what, number(&idle, "leases"), ""));
        let value = self.within_of("workloads", "workloads")?;
        let what = format!("Deployment of {REPLICAS}: all pods made");
        self.rows
            .push(Row::at_most(what, number(&value, "deployment_s"), "s", 0.5));
        let what = format!("Deployment of {REPLICAS}: FailedCreate");
        self.rows
            .push(Row::at_most(what, number(&value, "failed"), "", 0.0));
        for (what, name) in [
            (
                format!("DaemonSet on {NODES} nodes: all pods Ready"),
                "daemonset_s",
            ),
            (
                format!("StatefulSet of {ORDINALS} with storage: all Ready"),
                "statefulset_s",
            ),
            ("the same, Parallel: all Ready".to_owned(), "parallel_s"),
        ] {
            self.rows.push(Row::told(what, number(&value, name), "s"));
        }
        self.within_of("workloads", "workloads-crowd")?;
        let begin = Instant::now();
        self.start_server("workloads")?;
        let ready = begin.elapsed().as_secs_f64();
        let back = self.within_of("workloads", "workloads-back")?;
        let what = format!("start among {CROWD} pods: exec to /readyz ok");
        self.rows.push(Row::told(what, ready, "s"));
        let what = format!("start among {CROWD} pods: exec to lost pods made again");
        let back = ready + number(&back, "back_s");
        self.rows.push(Row::at_most(what, back, "s", 2.0));
        self.stop_process();
        Ok(())
    }
}

/// A minute of nothing: the revisions that pass, and how many of them are Leases'.
pub(crate) async fn idle(kubeconfig: &str) -> anyhow::Result<Value> {
    tokio::time::sleep(SETTLE).await;
    let target = Target::load(kubeconfig)?;
    let leases = "/apis/coordination.k8s.io/v1/leases";
    let first = revision(&mut target.connect().await?, leases).await?;
    let path = format!("{leases}?watch=true&resourceVersion={first}");
    let mut shared = target.connect_shared().await?;
    let watch = shared.watch(&path).await?;
    let (mut events, mut changed) = (Lines::new(watch), 0);
    let end = tokio::time::Instant::now() + IDLE_SPAN;
    while let Ok(event) = tokio::time::timeout_at(end, events.next()).await {
        let kind = event?["type"].clone();
        ensure!(kind != "ERROR", "the watch of Leases has failed");
        changed += usize::from(kind != "BOOKMARK");
    }
    let last = revision(&mut target.connect().await?, leases).await?;
    let writes = last
        .saturating_sub(first)
        .saturating_sub(u64::try_from(changed)?);
    Ok(json!({"writes": writes, "leases": changed}))
}

async fn revision(connection: &mut Connection, path: &str) -> anyhow::Result<u64> {
    let list = connection
        .json(Method::GET, &format!("{path}?limit=1"), None)
        .await?;
    let version = list
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str);
    Ok(version.context("a list has a revision")?.parse()?)
}

/// One workload of each kind, after another.
pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    within_cluster(kubeconfig, async |target| {
        add_nodes(target, 0..NODES).await?;
        let deployment_s = make(
            target,
            "deployments",
            deployment("web", REPLICAS),
            Until::Made,
        )
        .await?;
        // Events are written a moment later.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let failed = failed_creates(target).await?;
        let daemonset_s = make(target, "daemonsets", daemon_set(), Until::Ready(NODES)).await?;
        let ordinals = Until::Ready(ORDINALS);
        let statefulset_s = make(
            target,
            "statefulsets",
            stateful_set("db", "OrderedReady"),
            ordinals,
        )
        .await?;
        let parallel_s = make(
            target,
            "statefulsets",
            stateful_set("queue", "Parallel"),
            ordinals,
        )
        .await?;
        let claims = target
            .connect()
            .await?
            .json(Method::GET, CLAIMS, None)
            .await?;
        let bound = claims["items"].as_array().into_iter().flatten();
        let bound = bound
            .filter(|claim| claim["status"]["phase"] == "Bound")
            .count();
        ensure!(bound == 2 * ORDINALS, "{bound} claims are bound");
        Ok(
            json!({"deployment_s": deployment_s, "failed": failed, "daemonset_s": daemonset_s,
            "statefulset_s": statefulset_s, "parallel_s": parallel_s}),
        )
    })
    .await
}

/// Deployments until there are as many pods as a start is to find.
pub(crate) async fn crowd(kubeconfig: &str) -> anyhow::Result<Value> {
    within_cluster(kubeconfig, async |target| {
        add_nodes(target, NODES..CROWD_NODES).await?;
        let already = REPLICAS + CROWD_NODES + 2 * ORDINALS;
        let many = (CROWD - already).div_ceil(REPLICAS);
        for number in 0..many {
            let name = format!("crowd-{number}");
            make(
                target,
                "deployments",
                deployment(&name, REPLICAS),
                Until::Made,
            )
            .await?;
        }
        // All have a node, or fit on none.
        tokio::time::sleep(SETTLE).await;
        Ok(json!({}))
    })
    .await
}

/// Deletes a pod of each kind of controller, and waits until each has made another.
pub(crate) async fn back(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let begin = Instant::now();
    let mut connection = target.connect().await?;
    let from = revision(&mut connection, objects::PODS).await?;
    let path = format!("{}?watch=true&resourceVersion={from}", objects::PODS);
    let mut shared = target.connect_shared().await?;
    let watch = shared.watch(&path).await?;
    let mut events = Lines::new(watch);
    let mut lost = Vec::new();
    for app in ["web", "agent", "db"] {
        let path = format!("{}?labelSelector=app%3D{app}&limit=1", objects::PODS);
        let list = connection.json(Method::GET, &path, None).await?;
        let name = list
            .pointer("/items/0/metadata/name")
            .and_then(Value::as_str);
        let name = name.with_context(|| format!("a pod of {app}"))?;
        let path = format!("{}/{name}?gracePeriodSeconds=0", objects::PODS);
        connection.drain(Method::DELETE, &path, None).await?;
        lost.push(app);
    }
    while !lost.is_empty() {
        let event = events.next().await?;
        if event["type"] == "ADDED" {
            let app = &event["object"]["metadata"]["labels"]["app"];
            lost.retain(|lost| app != lost);
        }
    }
    Ok(json!({"back_s": begin.elapsed().as_secs_f64()}))
}

async fn add_nodes(target: &Target, nodes: std::ops::Range<usize>) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    for node in nodes {
        let mut object = objects::node(node);
        object["metadata"]["annotations"] = json!({DIRECTORY: "/var/lib/volumes"});
        agents::join(&mut connection, node, &object).await?;
    }
    agents::all_ready(&mut connection).await
}

/// When a workload is there.
#[derive(Clone, Copy)]
enum Until {
    /// Its [`REPLICAS`] pods have been made.
    Made,
    /// So many of its pods are Ready.
    Ready(usize),
}

/// Creates a workload; how many seconds it takes.
async fn make(target: &Target, plural: &str, object: Value, until: Until) -> anyhow::Result<f64> {
    let name = object["metadata"]["name"]
        .as_str()
        .context("a name")?
        .to_owned();
    let mut connection = target.connect().await?;
    let from = revision(&mut connection, objects::PODS).await?;
    let path = format!(
        "{}?watch=true&labelSelector=app%3D{name}&resourceVersion={from}",
        objects::PODS
    );
    let mut shared = target.connect_shared().await?;
    let watch = shared.watch(&path).await?;
    let mut events = Lines::new(watch);
    let begin = Instant::now();
    connection
        .post(&format!("{APPS}/{plural}"), &object)
        .await?;
    let (mut made, mut ready) = (0, std::collections::BTreeSet::new());
    let is_there = |made: usize, ready: usize| match until {
        Until::Made => made >= REPLICAS,
        Until::Ready(count) => ready >= count,
    };
    while !is_there(made, ready.len()) {
        let event = events.next().await?;
        let pod = &event["object"];
        made += usize::from(event["type"] == "ADDED");
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        if conditions.any(|one| one["type"] == "Ready" && one["status"] == "True") {
            ready.insert(pod["metadata"]["name"].to_string());
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

async fn failed_creates(target: &Target) -> anyhow::Result<usize> {
    let path = "/api/v1/events?fieldSelector=reason%3DFailedCreate";
    let events = target
        .connect()
        .await?
        .json(Method::GET, path, None)
        .await?;
    Ok(events["items"].as_array().context("a list")?.len())
}

fn workload(kind: &str, name: &str, mut spec: Value) -> Value {
    let requests = json!({"requests": {"cpu": "50m", "memory": "64Mi"}});
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [
        {"name": "web", "image": "registry.example/shop/frontend:v1.27.3", "resources": requests}]}});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn deployment(name: &str, replicas: usize) -> Value {
    workload("Deployment", name, json!({"replicas": replicas}))
}

fn daemon_set() -> Value {
    workload("DaemonSet", "agent", json!({}))
}

fn stateful_set(name: &str, policy: &str) -> Value {
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let mut object = workload(
        "StatefulSet",
        name,
        json!({"replicas": ORDINALS, "serviceName": name, "podManagementPolicy": policy, "volumeClaimTemplates": [claim]}),
    );
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    object
}
