//! What etcd costs: rates beside those of SQLite and of a bare client of the same etcd, and how
//! soon a watcher of one server sees what was written through another.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use coracle_tests::{
    binary,
    process::{Process, succeed},
    tool, wait,
};
use etcd_client::Client;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    api,
    client::{Lines, Target},
    cluster::Bench,
    report::{Row, percentile},
};

const URL: &str = "http://198.18.0.1:2379";
/// The kubeconfig of the second server.
const SECOND: &str = "CORACLE_BENCH_SECOND";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long the bare client writes.
const SPAN: Duration = Duration::from_secs(4);
const CROWD: usize = 32;
const START: Duration = Duration::from_secs(30);
/// Writes whose way to the other server is measured, and the pause between two of them.
const FOLLOWED: usize = 600;
const PAUSE: Duration = Duration::from_millis(5);
/// For an event to reach the other server.
const DEADLINE: Duration = Duration::from_secs(20);

impl Bench {
    pub(crate) fn etcd(&mut self) -> anyhow::Result<()> {
        self.start_server("on-sqlite")?;
        let sqlite = self.within_of("on-sqlite", "api")?;
        self.stop_process();
        let _etcd = self.start_etcd();
        let bare = self.within_of("on-sqlite", "etcd-bare")?;
        self.start_server_with("on-etcd", &["--store", &format!("etcd={URL}")])?;
        let on_etcd = self.within_of("on-etcd", "api")?;
        let second = self.start_second()?;
        let kubeconfig = self.site.dir().join("second/admin.kubeconfig");
        let follow = self.within_with("on-etcd", "etcd-follow", &[(SECOND, &kubeconfig)])?;
        drop(second);
        self.stop_process();
        self.tell(&sqlite, &on_etcd, &bare);
        let ms = |name: &str| follow[name].as_f64().unwrap_or(f64::NAN);
        let what = "etcd: written at one server, seen at another, p50";
        self.rows.push(Row::at_most(what, ms("p50_ms"), "ms", 5.0));
        let what = "etcd: written at one server, seen at another, p99";
        self.rows.push(Row::told(what, ms("p99_ms"), "ms"));
        Ok(())
    }

    fn tell(&mut self, sqlite: &Value, on_etcd: &Value, bare: &Value) {
        let rate = |value: &Value, name: &str| value[name]["per_s"].as_f64().unwrap_or(f64::NAN);
        for connections in ["1", "32"] {
            let puts = bare[format!("put_{connections}")]
                .as_f64()
                .unwrap_or(f64::NAN);
            let what = format!("etcd by itself: put, {connections} client(s)");
            self.rows.push(Row::told(what, puts, "/s"));
            for verb in ["get", "create", "update"] {
                let name = format!("{verb}_{connections}");
                let there = rate(on_etcd, &name);
                let of = |engine: &str| format!("{engine}: {verb}, {connections} connection(s)");
                self.rows
                    .push(Row::told(of("SQLite"), rate(sqlite, &name), "/s"));
                self.rows.push(Row::told(of("etcd"), there, "/s"));
                let (what, goal, share) = match verb {
                    "get" => ("etcd beside SQLite", 0.95, there / rate(sqlite, &name)),
                    _ => ("etcd beside a bare put", 0.8, there / puts),
                };
                self.rows.push(Row::at_least(of(what), share, "", goal));
            }
        }
    }

    fn start_etcd(&self) -> Process {
        let mut etcd = self.site.command("n1", tool("etcd"));
        etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        // On the disk that SQLite is on.
        etcd.args([
            "--data-dir",
            &self.path("etcd-data"),
            "--log-level",
            "error",
        ]);
        let flags = ["--listen-client-urls", "--advertise-client-urls"];
        etcd.args(flags.iter().flat_map(|flag| [*flag, URL]));
        let etcd = Process::start(etcd, &self.site.dir().join("etcd.log"));
        wait::until("etcd answers", START, || {
            self.site.fetch("n1", &format!("{URL}/health"))
        });
        etcd
    }

    /// Another server on the same etcd, on another machine, with the first one's authorities.
    fn start_second(&mut self) -> anyhow::Result<Process> {
        let address = self.site.add_host("n2", 2);
        let data = self.site.subdir("second");
        std::fs::create_dir_all(data.join("server"))?;
        let pki = Path::new("server/pki");
        succeed(
            Command::new("cp")
                .arg("-a")
                .arg(self.site.dir().join("on-etcd").join(pki))
                .arg(data.join(pki)),
        );
        let mut command = self.site.command("n2", "unshare");
        command.args(["--uts", "sh", "-c", "hostname n2 && exec \"$0\" \"$@\""]);
        command.arg(binary("coracle"));
        command.args(["server", "--bind", &format!("{address}:6443"), "--store"]);
        command
            .arg(format!("etcd={URL}"))
            .arg("--data-dir")
            .arg(&data);
        let second = Process::start(command, &self.site.dir().join("second.log"));
        self.within_of("second", "ready")?;
        Ok(second)
    }
}

/// How many values like those that the API stores one etcd takes from 1 and from 32 clients.
pub(crate) async fn bare() -> anyhow::Result<Value> {
    let value = api::config_map(json!({"name": "bare", "labels": {"app": "bench"}}));
    let mut result = json!({});
    for clients in [1, CROWD] {
        let begin = Instant::now();
        let tasks = (0..clients).map(|number| {
            let value = value.clone();
            tokio::spawn(async move {
                let mut client = Client::connect([URL], None).await?;
                let mut written = 0_u32;
                while begin.elapsed() < SPAN {
                    let key = format!("/bare/{clients}/{number}/{written}");
                    client.put(key, &value[..], None).await?;
                    written += 1;
                }
                anyhow::Ok(written)
            })
        });
        let mut written = 0;
        for task in tasks.collect::<Vec<_>>() {
            written += task.await??;
        }
        let per_s = f64::from(written) / begin.elapsed().as_secs_f64();
        result[format!("put_{clients}")] = json!(per_s);
    }
    Ok(result)
}

/// From the answer of one server to the event at a watcher of the other.
pub(crate) async fn follow(kubeconfig: &str) -> anyhow::Result<Value> {
    let second = std::env::var(SECOND).with_context(|| format!("{SECOND} is unset"))?;
    let (first, second) = (Target::load(kubeconfig)?, Target::load(&second)?);
    let mut writer = first.connect().await?;
    let list = writer.json(Method::GET, MAPS, None).await?;
    let version = list.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str).context("a version")?;
    let path = format!("{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=600");
    let mut reader = second.connect().await?;
    let response = reader.send(Method::GET, &path, None).await?;
    ensure!(
        response.status().is_success(),
        "{path}: {}",
        response.status()
    );
    let (told, mut seen) = mpsc::unbounded_channel();
    let watching = tokio::spawn(async move {
        let mut lines = Lines::new(response.into_body());
        while let Ok(event) = lines.next().await {
            let name = event["object"]["metadata"]["name"].as_str();
            if told
                .send((name.unwrap_or_default().to_owned(), Instant::now()))
                .is_err()
            {
                break;
            }
        }
    });
    let mut delays = Vec::new();
    for number in 0..FOLLOWED {
        let name = format!("follow-{number:04}");
        let map = api::config_map(json!({"name": name}));
        writer.bytes(Method::POST, MAPS, Some(map)).await?;
        let answered = Instant::now();
        let (event, at) = tokio::time::timeout(DEADLINE, seen.recv())
            .await
            .with_context(|| format!("{name} did not come to the other server"))?
            .context("the watch has ended")?;
        ensure!(event == name, "{event} came in the place of {name}");
        // An event may be there before the answer.
        delays.push(at.saturating_duration_since(answered));
        tokio::time::sleep(PAUSE).await;
    }
    drop(seen);
    watching.abort();
    Ok(json!({"p50_ms": percentile(&mut delays, 50), "p99_ms": percentile(&mut delays, 99)}))
}
