//! Pod latency: from the POST to Running and Ready in a watch, by this client's clock.

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    client::{Connection, Lines, Target},
    report::percentile,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERIAL: usize = 40;
const BURST: usize = 50;
const STAGED: usize = 40;
const CONNECTIONS: usize = 8;
const START_DEADLINE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    pod_of("any", name)
}

/// One of a group, by its label.
fn pod_of(group: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "group": group}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "c",
                "image": "docker.io/library/busybox:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "1000000"],
            }],
        },
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready
        && pod
            .pointer("/status/phase")
            .is_some_and(|phase| phase == "Running")
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Seen {
    Scheduled,
    Ready,
    Gone,
}

fn seen(event: &Value) -> Option<Seen> {
    let pod = &event["object"];
    if event["type"] == "DELETED" {
        Some(Seen::Gone)
    } else if is_ready(pod) {
        Some(Seen::Ready)
    } else {
        pod.pointer("/spec/nodeName").map(|_| Seen::Scheduled)
    }
}

/// The watch of this benchmark's pods: tells when which pod was first seen how.
struct PodWatch {
    events: mpsc::UnboundedReceiver<(String, Seen, Instant)>,
    first: HashMap<(String, Seen), Instant>,
}

impl PodWatch {
    async fn start(target: &Target) -> anyhow::Result<Self> {
        let mut connection = target.connect().await?;
        let list = connection
            .json(
                Method::GET,
                &format!("{PODS}?labelSelector=app%3Dbench"),
                None,
            )
            .await?;
        let revision = list["metadata"]["resourceVersion"]
            .as_str()
            .context("the list has a resourceVersion")?;
        let path = format!(
            "{PODS}?watch=1&labelSelector=app%3Dbench&resourceVersion={revision}&timeoutSeconds=3600"
        );
        let response = connection.send(Method::GET, &path, None).await?;
        let (sender, events) = mpsc::unbounded_channel();
        drop(tokio::spawn(async move {
            // Keeps the connection open as long as the watch is read.
            let _connection = connection;
            let mut lines = Lines::new(response.into_body());
            while let Ok(event) = lines.next().await {
                let now = Instant::now();
                let name = event["object"]["metadata"]["name"]
                    .as_str()
                    .unwrap_or("")
                    .to_owned();
                if let Some(seen) = seen(&event)
                    && sender.send((name, seen, now)).is_err()
                {
                    return;
                }
            }
        }));
        Ok(Self {
            events,
            first: HashMap::new(),
        })
    }

    async fn wait(&mut self, names: &[String], what: Seen) -> anyhow::Result<Instant> {
        loop {
            let times: Vec<_> = names
                .iter()
                .filter_map(|name| self.first.get(&(name.clone(), what)))
                .collect();
            if times.len() == names.len() {
                return Ok(*times.into_iter().max().context("there are names")?);
            }
            let next = tokio::time::timeout(START_DEADLINE, self.events.recv()).await;
            let Ok(Some((name, seen, at))) = next else {
                bail!(
                    "{} of {} pods are missing",
                    names.len() - times.len(),
                    names.len()
                );
            };
            self.first.entry((name, seen)).or_insert(at);
        }
    }
}

/// When `/readyz` first says ok, in nanoseconds since the epoch: another process knows when the
/// server was started.
pub(crate) async fn until_ready(kubeconfig: &str) -> anyhow::Result<Value> {
    let deadline = Instant::now() + START_DEADLINE;
    loop {
        if is_api_ready(kubeconfig).await.unwrap_or(false) {
            return Ok(json!({"at_ns": epoch_ns()?}));
        }
        if Instant::now() > deadline {
            bail!("not ready within {START_DEADLINE:?}");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn is_api_ready(kubeconfig: &str) -> anyhow::Result<bool> {
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    Ok(connection.bytes(Method::GET, "/readyz", None).await? == "ok")
}

/// As [`until_ready`], then a pod: when it is Ready.
pub(crate) async fn first_pod(kubeconfig: &str) -> anyhow::Result<Value> {
    until_ready(kubeconfig).await?;
    let target = Target::load(kubeconfig)?;
    let mut watch = PodWatch::start(&target).await?;
    let name = format!("first-{}", epoch_ns()? % 1_000_000);
    // The default service account may be a moment away.
    let mut connection = target.connect().await?;
    let deadline = Instant::now() + START_DEADLINE;
    while let Err(error) = connection.json(Method::POST, PODS, Some(&pod(&name))).await {
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    watch.wait(std::slice::from_ref(&name), Seen::Ready).await?;
    let at_ns = epoch_ns()?;
    connection
        .json(Method::DELETE, &format!("{PODS}/{name}"), None)
        .await?;
    watch.wait(&[name], Seen::Gone).await?;
    Ok(json!({"at_ns": at_ns}))
}

/// How long pods take to start and to go, one after another.
pub(crate) async fn serial(
    target: &Target,
    prefix: &str,
    count: usize,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let mut turns = Turns::start(target).await?;
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for k in 0..count {
        let (start, end) = turns.one("any", &format!("{prefix}-{k}")).await?;
        starts.push(start);
        ends.push(end);
    }
    Ok((starts, ends))
}

/// How much longer pods of a group take to start than others do, in milliseconds, each beside its
/// neighbour in time: a machine gets faster and slower. A pod of the group is there.
pub(crate) async fn longer(target: &Target, group: &str, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut turns = Turns::start(target).await?;
    turns.start_one(group, "resident").await?;
    let mut longer = Vec::new();
    for k in 0..count {
        let mut of = [Duration::ZERO; 2];
        // Who is first in a pair is not always the same.
        for at in [k % 2, (k + 1) % 2] {
            let group = [group, "any"][at];
            (of[at], _) = turns.one(group, &format!("{group}-{k}")).await?;
        }
        longer.push((of[0].as_secs_f64() - of[1].as_secs_f64()) * 1e3);
    }
    turns.end_one("resident").await?;
    Ok(longer)
}

/// Starts and ends pods one after another.
struct Turns {
    watch: PodWatch,
    connection: Connection,
}

impl Turns {
    async fn start(target: &Target) -> anyhow::Result<Self> {
        Ok(Self {
            watch: PodWatch::start(target).await?,
            connection: target.connect().await?,
        })
    }

    async fn one(&mut self, group: &str, name: &str) -> anyhow::Result<(Duration, Duration)> {
        Ok((
            self.start_one(group, name).await?,
            self.end_one(name).await?,
        ))
    }

    async fn start_one(&mut self, group: &str, name: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let pod = pod_of(group, name);
        self.connection.json(Method::POST, PODS, Some(&pod)).await?;
        Ok(self.watch.wait(&[name.to_owned()], Seen::Ready).await? - begin)
    }

    async fn end_one(&mut self, name: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.connection
            .json(Method::DELETE, &format!("{PODS}/{name}"), None)
            .await?;
        Ok(self.watch.wait(&[name.to_owned()], Seen::Gone).await? - begin)
    }
}

/// Pods one after another, then many at once; the burst's pods stay.
pub(crate) async fn serial_and_burst(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let (mut starts, mut ends) = serial(&target, "serial", SERIAL).await?;
    let mut watch = PodWatch::start(&target).await?;
    let names: Vec<String> = (0..BURST).map(|k| format!("burst-{k}")).collect();
    let begin = Instant::now();
    fan_out(&target, &names, Method::POST).await?;
    let burst = watch.wait(&names, Seen::Ready).await? - begin;
    Ok(json!({
        "start_p50_ms": percentile(&mut starts, 50),
        "start_p99_ms": percentile(&mut starts, 99),
        "delete_p50_ms": percentile(&mut ends, 50),
        "burst_ms": burst.as_secs_f64() * 1e3,
    }))
}

/// A few pods one after another, for a server that tells of its spans; what of them this client
/// sees, in milliseconds.
pub(crate) async fn staged(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut watch = PodWatch::start(&target).await?;
    let mut connection = target.connect().await?;
    let (mut api, mut scheduling, mut total) = (Vec::new(), Vec::new(), Vec::new());
    for k in 0..STAGED {
        let name = format!("staged-{k}");
        let begin = Instant::now();
        connection
            .json(Method::POST, PODS, Some(&pod(&name)))
            .await?;
        let created = Instant::now();
        let ready = watch.wait(std::slice::from_ref(&name), Seen::Ready).await?;
        let scheduled = watch
            .first
            .get(&(name.clone(), Seen::Scheduled))
            .copied()
            .unwrap_or(created);
        api.push(created - begin);
        scheduling.push(scheduled.saturating_duration_since(created));
        total.push(ready - begin);
        connection
            .json(Method::DELETE, &format!("{PODS}/{name}"), None)
            .await?;
        watch.wait(&[name], Seen::Gone).await?;
    }
    let told = |times: &mut Vec<Duration>| json!({"p50": percentile(times, 50), "p99": percentile(times, 99)});
    Ok(
        json!({"api": told(&mut api), "scheduling": told(&mut scheduling), "total": told(&mut total)}),
    )
}

/// Deletes the burst's pods; how long until the last is gone.
pub(crate) async fn delete_all(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut watch = PodWatch::start(&target).await?;
    let names: Vec<String> = (0..BURST).map(|k| format!("burst-{k}")).collect();
    let begin = Instant::now();
    fan_out(&target, &names, Method::DELETE).await?;
    let gone = watch.wait(&names, Seen::Gone).await? - begin;
    Ok(json!({"gone_ms": gone.as_secs_f64() * 1e3}))
}

async fn fan_out(target: &Target, names: &[String], method: Method) -> anyhow::Result<()> {
    let tasks = (0..CONNECTIONS).map(|k| {
        let mine: Vec<String> = names.iter().skip(k).step_by(CONNECTIONS).cloned().collect();
        let (target, method) = (target.clone(), method.clone());
        tokio::spawn(async move {
            let mut connection: Connection = target.connect().await?;
            for name in mine {
                if method == Method::POST {
                    connection
                        .json(Method::POST, PODS, Some(&pod(&name)))
                        .await?;
                } else {
                    connection
                        .json(Method::DELETE, &format!("{PODS}/{name}"), None)
                        .await?;
                }
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

pub(crate) fn epoch_ns() -> anyhow::Result<u64> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos(),
    )?)
}
