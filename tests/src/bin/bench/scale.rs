//! A cluster made of objects: nodes with their Leases, pods bound to them, and for each node the
//! watch of its pods that a kubelet has.
//!
//! `BENCH_NODES` and `BENCH_PODS` say how many. Each status that is written says when; the one
//! watcher whom it concerns has to get it, and nobody else: a lost or a strange event fails the
//! section.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use hyper::{Method, body::Incoming};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant as Alarm, sleep, sleep_until},
};

use crate::{
    agents,
    client::{Connection, Target},
    cluster::{PID_VARIABLE, cpu_ticks, resident_mb},
    report::percentile,
    scale_objects as objects,
};

/// Sizes without variables: what a `make bench` has time for.
const NODES: usize = 500;
const PODS: usize = 10_000;
/// For how long Leases and statuses are written.
const SPAN: Duration = Duration::from_secs(30);
const LEASE_PERIOD: Duration = Duration::from_secs(10);
const STATUSES_A_SECOND: u32 = 100;
const CONNECTIONS: usize = 16;
/// For the last event to reach its watcher.
const LAST_EVENT: Duration = Duration::from_secs(20);
const WATCHES_A_CONNECTION: usize = 100;
const LISTS: usize = 300;

/// What is made, and what has to be known of it.
struct Cluster {
    target: Target,
    pid: i32,
    nodes: usize,
    pods: usize,
}

pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    let size = |name: &str, default| -> anyhow::Result<usize> {
        std::env::var(name).map_or(Ok(default), |text| {
            text.parse().with_context(|| format!("{name}={text}"))
        })
    };
    let pid = std::env::var(PID_VARIABLE).with_context(|| format!("{PID_VARIABLE} is unset"))?;
    let cluster = Arc::new(Cluster {
        target: Target::load(kubeconfig)?,
        pid: pid.parse()?,
        nodes: size("BENCH_NODES", NODES)?,
        pods: size("BENCH_PODS", PODS)?,
    });
    let empty_mb = resident_mb(cluster.pid)?;
    let begin = Instant::now();
    cluster.make_nodes().await?;
    // From here on a node without a Lease would lose its pods.
    let (stop, stopped) = watch::channel(false);
    let leases = tokio::spawn(renew(Arc::clone(&cluster), stopped));
    let filled = async {
        cluster.make_pods().await?;
        let made_s = begin.elapsed().as_secs_f64();
        sleep(Duration::from_secs(3)).await;
        let pods_mb = resident_mb(cluster.pid)?;
        let mut result = cluster.work().await?;
        for (key, value) in [
            ("nodes", json!(cluster.nodes)),
            ("pods", json!(cluster.pods)),
            ("made_s", json!(made_s)),
            ("empty_mb", json!(empty_mb)),
            ("pods_mb", json!(pods_mb)),
        ] {
            result[key] = value;
        }
        cluster.lists(&mut result).await?;
        anyhow::Ok(result)
    };
    let result = filled.await;
    stop.send_replace(true);
    leases.await??;
    result
}

impl Cluster {
    async fn make_nodes(self: &Arc<Self>) -> anyhow::Result<()> {
        self.each(self.nodes, async |connection, node| {
            agents::join(connection, node, &objects::node(node)).await
        })
        .await
    }

    async fn make_pods(self: &Arc<Self>) -> anyhow::Result<()> {
        let nodes = self.nodes;
        self.each(self.pods, async move |connection, pod| {
            let object = objects::pod(pod, pod % nodes);
            connection.post(objects::PODS, &object).await?;
            let path = format!("{}/{}/status", objects::PODS, objects::pod_name(pod));
            connection.merge(&path, &objects::pod_status(pod)).await
        })
        .await
    }

    /// Does something for each number below `count`, on several connections.
    async fn each<F>(&self, count: usize, act: F) -> anyhow::Result<()>
    where
        F: AsyncFn(&mut Connection, usize) -> anyhow::Result<()>,
    {
        let lanes = (0..CONNECTIONS).map(async |lane| {
            let mut connection = self.target.connect().await?;
            for number in (lane..count).step_by(CONNECTIONS) {
                act(&mut connection, number).await?;
            }
            anyhow::Ok(())
        });
        for lane in futures::future::join_all(lanes).await {
            lane?;
        }
        Ok(())
    }

    /// Statuses beside Leases, with a watcher a node.
    async fn work(self: &Arc<Self>) -> anyhow::Result<Value> {
        let mut connection = self.target.connect().await?;
        let path = format!("{}?limit=1", objects::PODS);
        let list = connection.json(Method::GET, &path, None).await?;
        let version = list.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str).context("a version")?;
        let before = resident_mb(self.pid)?;
        let (stop, stopped) = watch::channel(false);
        let mut watchers = JoinSet::new();
        for first in (0..self.nodes).step_by(WATCHES_A_CONNECTION) {
            let mut shared = self.target.connect_shared().await?;
            for node in first..self.nodes.min(first + WATCHES_A_CONNECTION) {
                let name = objects::node_name(node);
                let path = format!(
                    "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=3000\
                     &fieldSelector=spec.nodeName%3D{name}&resourceVersion={version}"
                );
                let user = format!("system:node:{name}");
                let body = shared.watch_as(&path, &user, "system:nodes").await?;
                watchers.spawn(follow(body, name, stopped.clone()));
            }
        }
        sleep(Duration::from_secs(3)).await;
        let watchers_mb = resident_mb(self.pid)? - before;

        let (ticks, begin) = (cpu_ticks(self.pid)?, Instant::now());
        let (written, mut answers) = self.write_statuses().await?;
        let cpu = (cpu_ticks(self.pid)? - ticks) / begin.elapsed().as_secs_f64();
        sleep(LAST_EVENT.min(SPAN)).await;
        stop.send_replace(true);
        let mut delays = Vec::new();
        while let Some(seen) = watchers.join_next().await {
            delays.extend(seen??);
        }
        ensure!(
            delays.len() == written,
            "{} events for {written} statuses",
            delays.len()
        );
        Ok(json!({
            "cpu_percent": cpu, "watchers_mb": watchers_mb, "events": delays.len(),
            "work_mb": resident_mb(self.pid)?,
            "status_p50_ms": percentile(&mut answers, 50), "status_p99_ms": percentile(&mut answers, 99),
            "event_p50_ms": percentile(&mut delays, 50), "event_p99_ms": percentile(&mut delays, 99),
        }))
    }

    /// An even pace of statuses, each of another pod; how many, and how long each answer took.
    async fn write_statuses(self: &Arc<Self>) -> anyhow::Result<(usize, Vec<Duration>)> {
        let count = usize::try_from(u64::from(STATUSES_A_SECOND) * SPAN.as_secs())?;
        let begin = Alarm::now();
        let lanes = (0..CONNECTIONS).map(async |lane| {
            let mut connection = self.target.connect().await?;
            let mut answers = Vec::new();
            for number in (lane..count).step_by(CONNECTIONS) {
                let due = Duration::from_secs(1) * u32::try_from(number)? / STATUSES_A_SECOND;
                sleep_until(begin + due).await;
                // Far from each other, as what happens in a cluster is.
                let pod = number * 7919 % self.pods;
                let path = format!("{}/{}/status", objects::PODS, objects::pod_name(pod));
                let start = Instant::now();
                connection.merge(&path, &objects::stamp(now_us())).await?;
                answers.push(start.elapsed());
            }
            anyhow::Ok(answers)
        });
        let mut answers = Vec::new();
        for lane in futures::future::join_all(lanes).await {
            answers.extend(lane?);
        }
        Ok((answers.len(), answers))
    }

    /// What starting kubelets and curious people ask for.
    async fn lists(&self, result: &mut Value) -> anyhow::Result<()> {
        let mut connection = self.target.connect().await?;
        let mut times = Vec::new();
        for number in 0..LISTS {
            let name = objects::node_name(number * 31 % self.nodes);
            let path =
                format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}&resourceVersion=0");
            let start = Instant::now();
            connection.drain(Method::GET, &path, None).await?;
            times.push(start.elapsed());
        }
        result["list_node_p50_ms"] = json!(percentile(&mut times, 50));
        let table =
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.9".to_owned();
        for (name, accept) in [("table", table), ("json", "application/json".to_owned())] {
            let peak = Peak::begin(self.pid)?;
            let start = Instant::now();
            let bytes = connection.drain_as("/api/v1/pods", &accept).await?;
            result[format!("{name}_s")] = json!(start.elapsed().as_secs_f64());
            result[format!("{name}_bytes")] = json!(bytes);
            result[format!("{name}_peak_mb")] = json!(peak.end()?);
        }
        Ok(())
    }
}

/// How much more is resident at once, from now on.
struct Peak {
    pid: i32,
    before: f64,
}

impl Peak {
    fn begin(pid: i32) -> anyhow::Result<Self> {
        // 5: the kernel forgets the peak so far.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("forget the peak")?;
        let before = resident_mb(pid)?;
        Ok(Self { pid, before })
    }

    fn end(self) -> anyhow::Result<f64> {
        Ok(crate::cluster::peak_mb(self.pid)? - self.before)
    }
}

/// Renews the Leases of all nodes, evenly spread, until it is stopped.
async fn renew(cluster: Arc<Cluster>, mut stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
    let begin = Alarm::now();
    let lanes = (0..CONNECTIONS).map(async |lane| {
        let mut connection = cluster.target.connect().await?;
        for round in 0_u32.. {
            for node in (lane..cluster.nodes).step_by(CONNECTIONS) {
                let part = u32::try_from(node)? * 1000 / u32::try_from(cluster.nodes)?;
                let due = begin + LEASE_PERIOD * round + LEASE_PERIOD * part / 1000;
                sleep_until(due).await;
                let path = format!("{}/{}", objects::LEASES, objects::node_name(node));
                connection.merge(&path, &objects::renewal()).await?;
            }
        }
        anyhow::Ok(())
    });
    tokio::select! {
        ended = futures::future::try_join_all(lanes) => ended.map(drop),
        _ = stopped.wait_for(|is_over| *is_over) => Ok(()),
    }
}

/// Reads one node's watch until it is stopped; how long after it was written each status came.
async fn follow(
    mut body: Incoming,
    node: String,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<Vec<Duration>> {
    let (mut buffer, mut delays) = (Vec::new(), Vec::new());
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = stopped.wait_for(|is_over| *is_over) => return Ok(delays),
        };
        let frame = frame.with_context(|| format!("the watch of {node} has ended"))??;
        buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let at = now_us();
            let event: HashMap<String, Value> = serde_json::from_slice(&line)?;
            if event["type"] == "BOOKMARK" {
                continue;
            }
            let object = &event["object"];
            ensure!(
                event["type"] == "MODIFIED" && object["spec"]["nodeName"] == node.as_str(),
                "{node} was shown {} of {}",
                event["type"],
                object["metadata"]["name"]
            );
            let written = object["status"]["message"].as_str().context("a stamp")?;
            let age = at.saturating_sub(written.parse()?);
            delays.push(Duration::from_micros(age));
        }
    }
}

/// The wall clock: all of this is one machine.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
