//! A thousand watchers of one resource: what each of them receives in a second, and what it costs
//! the server.
//!
//! The watched object is as small as those that change most often (Leases, EndpointSlices): some
//! 400 bytes an event. Watches share connections, 100 on each, as those of Go's client do; each
//! reads every event whole, and counts.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use hyper::{Method, body::Incoming};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    client::Target,
    cluster::{PID_VARIABLE, anonymous_kb},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const WATCHERS: usize = 1000;
const WATCHERS_A_CONNECTION: usize = 100;
const WRITERS: usize = 16;
/// A little faster than the goal, so that it can be seen to be met.
const UPDATES_PER_S: u32 = 1200;
const UPDATES: usize = 6000;
/// Until memory is read, and until all watches have begun.
const SETTLE: Duration = Duration::from_secs(2);
/// For the last event to reach the last watcher.
const DEADLINE: Duration = Duration::from_secs(60);

/// 1,000 watches on shared connections: memory, then delivery.
pub(crate) async fn delivery(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let path = prepare(&target).await?;
    let before = server_kb()?;
    let mut bodies = Vec::new();
    for _ in 0..WATCHERS / WATCHERS_A_CONNECTION {
        let mut shared = target.connect_shared().await?;
        for _ in 0..WATCHERS_A_CONNECTION {
            bodies.push(shared.watch(&path).await?);
        }
    }
    tokio::time::sleep(SETTLE).await;
    let watcher_kb = (server_kb()? - before) / WATCHERS as f64;
    let begin = Instant::now();
    let mut watchers = JoinSet::new();
    for body in bodies {
        watchers.spawn(count(body, begin));
    }
    let written = write(&target, begin).await?;
    let mut last = Duration::ZERO;
    while let Some(received) = watchers.join_next().await {
        last = last.max(received??);
    }
    let per_s = UPDATES as f64 / last.as_secs_f64();
    Ok(json!({"per_s": per_s, "watcher_kb": watcher_kb, "written_s": written.as_secs_f64()}))
}

/// 1,000 watches, each on a TLS connection of its own: memory.
pub(crate) async fn connections(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let path = prepare(&target).await?;
    let before = server_kb()?;
    let mut open = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = target.connect().await?;
        let response = connection.send(Method::GET, &path, None).await?;
        ensure!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        open.push((connection, response));
    }
    tokio::time::sleep(SETTLE).await;
    Ok(json!({"watcher_kb": (server_kb()? - before) / WATCHERS as f64}))
}

/// Makes what is watched; returns the path of a watch of everything that happens from now on.
async fn prepare(target: &Target) -> anyhow::Result<String> {
    let mut connection = target.connect().await?;
    for writer in 0..WRITERS {
        // There already, the second time.
        let _ = connection
            .bytes(
                Method::POST,
                LEASES,
                Some(lease(writer, 0).to_string().into()),
            )
            .await;
    }
    let list = connection.json(Method::GET, LEASES, None).await?;
    let version = list
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .context("a version")?;
    Ok(format!(
        "{LEASES}?watch=true&resourceVersion={version}&timeoutSeconds=600"
    ))
}

fn lease(writer: usize, transitions: usize) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": format!("watched-{writer}")},
        "spec": {"holderIdentity": "bench", "leaseDurationSeconds": 40, "leaseTransitions": transitions},
    })
}

/// Writes all updates at an even pace.
async fn write(target: &Target, begin: Instant) -> anyhow::Result<Duration> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let target = target.clone();
        writers.spawn(async move {
            let mut connection = target.connect().await?;
            let path = format!("{LEASES}/watched-{writer}");
            // A Lease has to say which version it replaces.
            let mut present = connection.json(Method::GET, &path, None).await?;
            for number in (writer..UPDATES).step_by(WRITERS) {
                let due = begin + Duration::from_secs(1) * u32::try_from(number)? / UPDATES_PER_S;
                tokio::time::sleep_until(due.into()).await;
                let mut next = lease(writer, number + 1);
                next["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"].take();
                present = connection.json(Method::PUT, &path, Some(&next)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(begin.elapsed())
}

/// Reads a watch until it has had all updates; returns when that was.
async fn count(mut body: Incoming, begin: Instant) -> anyhow::Result<Duration> {
    let mut events = 0;
    while events < UPDATES {
        let frame = tokio::time::timeout(DEADLINE, body.frame()).await;
        let frame = frame.with_context(|| format!("silent after {events} events"))?;
        let frame = frame.with_context(|| format!("cut off after {events} events"))??;
        let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
        events += data
            .iter()
            .map(|byte| usize::from(*byte == b'\n'))
            .sum::<usize>();
    }
    ensure!(events == UPDATES, "{events} events for {UPDATES} updates");
    Ok(begin.elapsed())
}

fn server_kb() -> anyhow::Result<f64> {
    let pid =
        std::env::var(PID_VARIABLE).with_context(|| format!("{PID_VARIABLE} names the server"))?;
    anonymous_kb(pid.parse()?)
}
