//! How fast pods get nodes: by `coracle scheduler`, a process of its own, which is started once the
//! pods are there, so that making them is not what is measured, and is as little as it can be
//! ([`identity`]). Nodes are objects whose Leases are renewed; nobody runs the pods.

mod pods;

use std::{
    collections::HashMap,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use coracle_tests::binary;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::pods::{GROUPS, apart, container, is_bound, name_of, pod, spread};
use crate::{
    agents::{self, with_leases},
    client::{Lines, Target},
    cluster::{Bench, resident_mb},
    identity,
    report::{Row, percentile},
    scale_objects::{self as objects, PODS},
};

const NODES: usize = 1_000;
const MANY_NODES: usize = 5_000;
const COUNT: usize = 10_000;
/// Of those that ask for more.
const COUNT_OF_HARD: usize = 5_000;
const VICTIMS: usize = 900;
const CONNECTIONS: usize = 16;
/// One pod every 5 ms.
const PACE: Duration = Duration::from_millis(5);
const PACED: usize = 2_000;
/// Without an event for so long, something is wrong.
const SILENCE: Duration = Duration::from_secs(60);

impl Bench {
    pub(crate) fn scheduling(&mut self) -> anyhow::Result<()> {
        // A node has 256 addresses, and there are many.
        self.start_server_with(
            "scheduling",
            &[
                "--cluster-cidr",
                "10.128.0.0/10",
                "--service-cidr",
                "10.64.0.0/16",
            ],
        )?;
        let found = self.within_of("scheduling", "scheduling")?;
        self.stop_process();
        let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        for (what, name, goal) in [
            (
                format!("{COUNT} pods on {NODES} nodes: bound a second"),
                "plain",
                5000.0,
            ),
            (
                "the same, spread over zones and nodes".to_owned(),
                "spread",
                2500.0,
            ),
            (
                format!("the same, apart by node in {GROUPS} groups"),
                "apart",
                1500.0,
            ),
            (
                format!("the same, beside {COUNT_OF_HARD} that fit nowhere"),
                "beside",
                5000.0,
            ),
            (
                format!("{VICTIMS} pods that others end for: a second"),
                "preempting",
                300.0,
            ),
            (
                format!("{COUNT} pods on {MANY_NODES} nodes: bound a second"),
                "many",
                3000.0,
            ),
        ] {
            self.rows
                .push(Row::at_least(what, number(name), "/s", goal));
        }
        let what = "200 pods a second: POST to bound, p99";
        self.rows
            .push(Row::at_most(what, number("p99_ms"), "ms", 10.0));
        let what = format!("`coracle scheduler`, {NODES} nodes and {COUNT} pods: resident");
        self.rows.push(Row::told(what, number("resident_mb"), "MB"));
        let what = "the same: exec to the first pod bound";
        self.rows.push(Row::told(what, number("first_ms"), "ms"));
        Ok(())
    }
}

pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    with_leases(kubeconfig, async |target| {
        let identity = tempfile::NamedTempFile::new()?;
        identity::of_scheduler(kubeconfig, target, identity.path()).await?;
        let trial = Trial {
            kubeconfig: identity.path(),
            target,
        };
        trial.add_nodes(0..NODES).await?;
        let plain = trial.bind("plain", COUNT, |_| json!({})).await?;
        let apart = trial.bind("apart", COUNT_OF_HARD, apart).await?;
        let spread = trial.bind("spread", COUNT_OF_HARD, |_| spread()).await?;
        let beside = trial.beside_hopeless().await?;
        let p99_ms = trial.paced().await?;
        let preempting = trial.preempting().await?;
        trial.add_nodes(NODES..MANY_NODES).await?;
        let many = trial.bind("many", COUNT, |_| json!({})).await?;
        Ok(json!({"plain": plain.rate, "resident_mb": plain.resident_mb, "first_ms": plain.first_ms,
            "apart": apart.rate, "spread": spread.rate, "beside": beside.rate, "p99_ms": p99_ms,
            "preempting": preempting, "many": many.rate}))
    })
    .await
}

struct Trial<'a> {
    /// The scheduler's.
    kubeconfig: &'a Path,
    target: &'a Target,
}

/// How fast pods were bound.
struct Bound {
    rate: f64,
    first_ms: f64,
    resident_mb: f64,
}

/// Ends with this.
struct Scheduler(Child);

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Trial<'_> {
    async fn add_nodes(&self, nodes: std::ops::Range<usize>) -> anyhow::Result<()> {
        let mut connection = self.target.connect().await?;
        for node in nodes {
            agents::join(&mut connection, node, &objects::node(node)).await?;
        }
        agents::all_ready(&mut connection).await
    }

    /// For the pods of one name.
    fn scheduler(&self, name: &str) -> anyhow::Result<Scheduler> {
        let config = std::env::temp_dir().join(format!("bench-{}-{name}.yaml", std::process::id()));
        let text = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false}, "profiles": [{"schedulerName": name}]});
        std::fs::write(&config, text.to_string())?;
        let mut command = Command::new(binary("coracle"));
        command.arg("scheduler").arg("--scheduler-config");
        command
            .arg(&config)
            .arg("--kubeconfig")
            .arg(self.kubeconfig);
        let child = command.stdout(Stdio::null()).spawn();
        let scheduler = Scheduler(child.context("start a scheduler")?);
        // It is read by now, or the process has ended.
        std::thread::sleep(Duration::from_millis(200));
        std::fs::remove_file(&config)?;
        Ok(scheduler)
    }

    async fn create(
        &self,
        name: &str,
        count: usize,
        more: impl Fn(usize) -> Value,
    ) -> anyhow::Result<()> {
        let mut lanes: Vec<Vec<Value>> = vec![Vec::new(); CONNECTIONS];
        for number in 0..count {
            lanes[number % CONNECTIONS].push(pod(name, number, more(number)));
        }
        let mut tasks = JoinSet::new();
        for lane in lanes {
            let target = self.target.clone();
            tasks.spawn(async move {
                let mut connection = target.connect().await?;
                for pod in lane {
                    connection.post(PODS, &pod).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let mut connection = self.target.connect().await?;
        let path = format!("{PODS}?labelSelector=app%3D{name}");
        let options = json!({"gracePeriodSeconds": 0}).to_string();
        connection
            .bytes(Method::DELETE, &path, Some(options.into()))
            .await
            .map(drop)
    }

    /// The events of its pods from now on.
    async fn events(&self, name: &str) -> anyhow::Result<Lines> {
        let mut connection = self.target.connect().await?;
        let path = format!("{PODS}?limit=1");
        let list = connection.json(Method::GET, &path, None).await?;
        let from = list["metadata"]["resourceVersion"]
            .as_str()
            .context("a revision")?;
        let path = format!("{PODS}?watch=true&labelSelector=app%3D{name}&resourceVersion={from}");
        let mut shared = self.target.connect_shared().await?;
        Ok(Lines::new(shared.watch(&path).await?))
    }

    async fn bind(
        &self,
        name: &str,
        count: usize,
        more: impl Fn(usize) -> Value,
    ) -> anyhow::Result<Bound> {
        self.create(name, count, more).await?;
        let bound = self.count(name, count).await?;
        self.remove(name).await?;
        Ok(bound)
    }

    /// Starts a scheduler, and waits until all pods of its name are bound.
    async fn count(&self, name: &str, count: usize) -> anyhow::Result<Bound> {
        let mut events = self.events(name).await?;
        let begin = Instant::now();
        let scheduler = self.scheduler(name)?;
        let (mut bound, mut first) = (0, None);
        while bound < count {
            let event = next(&mut events).await;
            let event =
                event.with_context(|| format!("{bound} of {count} {name} pods are bound"))?;
            if is_bound(&event) {
                first.get_or_insert_with(Instant::now);
                bound += 1;
            }
        }
        let first = first.context("a pod was bound")?;
        let resident_mb = resident_mb(i32::try_from(scheduler.0.id())?)?;
        Ok(Bound {
            rate: count as f64 / first.elapsed().as_secs_f64(),
            first_ms: (first - begin).as_secs_f64() * 1e3,
            resident_mb,
        })
    }

    /// Among pods of the same name that fit nowhere, and come first.
    async fn beside_hopeless(&self) -> anyhow::Result<Bound> {
        let huge = |_| json!({"priority": null, "containers": [container("500")]});
        self.create("hopeless", COUNT_OF_HARD, |number| {
            let mut more = huge(number);
            more["schedulerName"] = json!("beside");
            more
        })
        .await?;
        let bound = self.bind("beside", COUNT, |_| json!({})).await?;
        self.remove("hopeless").await?;
        Ok(bound)
    }

    /// From the POST to the event, while pods come one by one.
    async fn paced(&self) -> anyhow::Result<f64> {
        let mut events = self.events("paced").await?;
        let _scheduler = self.scheduler("paced")?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let target = self.target.clone();
        let posting = tokio::spawn(async move {
            let mut connection = target.connect().await?;
            let mut ticks = tokio::time::interval(PACE);
            let mut sent = HashMap::new();
            for number in 0..PACED {
                ticks.tick().await;
                let pod = pod("paced", number, json!({}));
                sent.insert(name_of(&pod), Instant::now());
                connection.post(PODS, &pod).await?;
            }
            anyhow::Ok(sent)
        });
        let mut seen = HashMap::new();
        while seen.len() < PACED {
            let event = next(&mut events).await?;
            if is_bound(&event) {
                seen.entry(name_of(&event["object"]))
                    .or_insert_with(Instant::now);
            }
        }
        let sent = posting.await??;
        let mut times: Vec<Duration> = sent
            .iter()
            .filter_map(|(name, at)| Some(*seen.get(name)? - *at))
            .collect();
        ensure!(
            times.len() == PACED,
            "{} of {PACED} pods were seen",
            times.len()
        );
        self.remove("paced").await?;
        Ok(percentile(&mut times, 99))
    }

    /// Each node is full of one pod that another is above; how many are told of their node a
    /// second.
    async fn preempting(&self) -> anyhow::Result<f64> {
        for (name, value) in [("bench-low", 1), ("bench-high", 1000)] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value});
            let mut connection = self.target.connect().await?;
            let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
            connection.post(classes, &class).await?;
        }
        let full = |number: usize, class: &str| {
            json!({"priorityClassName": class, "containers": [container("20")],
                "nodeSelector": {"kubernetes.io/hostname": objects::node_name(number)}})
        };
        self.create("victims", VICTIMS, |number| {
            let mut more = full(number, "bench-low");
            more["nodeName"] = json!(objects::node_name(number));
            more
        })
        .await?;
        self.create("preempting", VICTIMS, |number| full(number, "bench-high"))
            .await?;
        let mut events = self.events("preempting").await?;
        let _scheduler = self.scheduler("preempting")?;
        let (mut nominated, mut first) = (std::collections::HashSet::new(), None);
        while nominated.len() < VICTIMS {
            let event = next(&mut events).await?;
            if event["object"]["status"]["nominatedNodeName"].is_string() {
                first.get_or_insert_with(Instant::now);
                nominated.insert(name_of(&event["object"]));
            }
        }
        let took = first.context("room was made")?.elapsed();
        self.remove("preempting").await?;
        self.remove("victims").await?;
        Ok(VICTIMS as f64 / took.as_secs_f64())
    }
}

async fn next(events: &mut Lines) -> anyhow::Result<Value> {
    let event = tokio::time::timeout(SILENCE, events.next()).await;
    event.with_context(|| format!("nothing has happened for {SILENCE:?}"))?
}
