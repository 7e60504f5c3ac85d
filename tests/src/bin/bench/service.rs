//! What Services cost beside ten, a hundred, a thousand and ten thousand others, over either
//! engine: until a new one works once its endpoints are known, and a connection.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};

use crate::{
    client::{Connection, Target},
    cluster::{Bench, since},
    pods::{epoch_ns, until_ready},
    report::{Row, percentile},
};

/// So many are present when it is measured.
const STEPS: [usize; 4] = [10, 100, 1000, 10_000];
const MODES: [&str; 2] = ["iptables", "nftables"];
const NEW: usize = 10;
const CONNECTS: usize = 1000;
const CONNECTIONS: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);
/// A new one is waited for between others' turns.
const REST: Duration = Duration::from_millis(200);
const NAMESPACE: &str = "/api/v1/namespaces/default";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const PATIENCE: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(200);
/// Of the listener that every Service leads to.
const PORT: u16 = 18_080;

impl Bench {
    pub(crate) fn service(&mut self) -> anyhow::Result<()> {
        let mut connects = [(f64::NAN, f64::NAN); MODES.len()];
        for present in STEPS {
            self.within(&format!("service-fill {present}"))?;
            for (mode, connects) in MODES.into_iter().zip(&mut connects) {
                let from_nothing = self.restart_as(mode, present)?;
                self.new_service_rows(mode, present)?;
                let found = self.within("service-connect")?;
                let us = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
                let found = (us("service_us"), us("direct_us"));
                if present == STEPS[0] {
                    *connects = found;
                }
                if present == STEPS[STEPS.len() - 1] {
                    let row =
                        format!("`coracle up`: exec until the last of {present} works, {mode}");
                    self.rows.push(Row::told(row, from_nothing, "ms"));
                    self.connect_rows(mode, *connects, found);
                }
            }
        }
        // What comes next is measured as by default. No pod is started meanwhile: all of them would
        // be in its environment, which is more than the kernel takes.
        self.stop_process();
        self.start();
        self.within(&format!("service-works {}", STEPS[0]))
            .map(drop)
    }

    /// To a Service and without one, beside the fewest and the most.
    fn connect_rows(&mut self, mode: &str, few: (f64, f64), many: (f64, f64)) {
        let (fewest, most) = (STEPS[0], STEPS[STEPS.len() - 1]);
        for (what, few, many) in [
            ("to a Service", few.0, many.0),
            ("without a Service", few.1, many.1),
        ] {
            let row = format!("connect {what}, beside {most}, {mode}, p50");
            self.rows.push(Row::told(row, many, "us"));
            let row = format!("connect {what}, beside {most} by beside {fewest}, {mode}");
            self.rows.push(Row::at_most(row, many / few, "", 1.3));
        }
    }

    /// How long from the start of the program until the last Service works: the other engine's
    /// rules go, and all of this one's are new.
    fn restart_as(&mut self, mode: &str, present: usize) -> anyhow::Result<f64> {
        self.stop_process();
        let mut command = self.up_command();
        command.args(["--proxy-mode", mode]);
        let begin = self.start_as(command);
        since(&self.within(&format!("service-works {present}"))?, begin)
    }

    fn new_service_rows(&mut self, mode: &str, present: usize) -> anyhow::Result<()> {
        let found = self.within("service-new")?;
        let ms = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        let row = format!("new Service works, {present} present, {mode}, ");
        let (p50, max) = (ms("p50_ms"), ms("max_ms"));
        self.rows
            .push(Row::at_most(format!("{row}p50"), p50, "ms", 3.0));
        self.rows
            .push(Row::told(format!("{row}max of {NEW}"), max, "ms"));
        Ok(())
    }

    /// What the sections after it measure is without so many.
    pub(crate) fn forget_services(&mut self) -> anyhow::Result<()> {
        self.within("service-forget").map(drop)
    }
}

/// Makes those that are missing of so many.
pub(crate) async fn fill(kubeconfig: &str, present: usize) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let before = STEPS.into_iter().rfind(|step| *step < present).unwrap_or(0);
    let address = listen(&mut target.connect().await?).await?;
    let tasks = (0..CONNECTIONS).map(|k| {
        let target = target.clone();
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            for n in (before..present).skip(k).step_by(CONNECTIONS) {
                make(&mut connection, &format!("svc-{n}"), address).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(json!({}))
}

/// When the last of so many works.
pub(crate) async fn until_last_works(kubeconfig: &str, present: usize) -> anyhow::Result<Value> {
    until_ready(kubeconfig).await?;
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    let _ = listen(&mut connection).await?;
    let last = address_of(&mut connection, present - 1).await?;
    until_connected(last).await?;
    Ok(json!({"at_ns": epoch_ns()?}))
}

/// How long new ones take to work after their endpoints are known.
pub(crate) async fn latency(kubeconfig: &str) -> anyhow::Result<Value> {
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    let address = listen(&mut connection).await?;
    let mut times = Vec::new();
    for n in 0..=NEW {
        tokio::time::sleep(REST).await;
        let (ip, known) = make(&mut connection, &format!("new-{n}"), address).await?;
        until_connected(ip).await?;
        times.push(known.elapsed());
    }
    // The first waits for whatever came before.
    times.remove(0);
    for n in 0..=NEW {
        let one = format!("/new-{n}");
        let service = format!("{NAMESPACE}/services{one}");
        connection.json(Method::DELETE, &service, None).await?;
        let slice = format!("{SLICES}{one}");
        connection.json(Method::DELETE, &slice, None).await?;
    }
    Ok(json!({"p50_ms": percentile(&mut times, 50), "max_ms": percentile(&mut times, 100)}))
}

/// Connections to a Service and, in turns with them, to its endpoint.
pub(crate) async fn connects(kubeconfig: &str) -> anyhow::Result<Value> {
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    let address = listen(&mut connection).await?;
    let first = address_of(&mut connection, 0).await?;
    let service: SocketAddr = format!("{first}:80").parse()?;
    until_connected(first).await?;
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTS {
        for (to, times) in [(service, &mut through), (address, &mut direct)] {
            let begin = Instant::now();
            drop(TcpStream::connect(to).await?);
            times.push(begin.elapsed());
        }
    }
    let us = |times: &mut [Duration]| percentile(times, 50) * 1e3;
    Ok(json!({"service_us": us(&mut through), "direct_us": us(&mut direct)}))
}

/// Deletes all of them.
pub(crate) async fn forget(kubeconfig: &str) -> anyhow::Result<Value> {
    let mut connection = Target::load(kubeconfig)?.connect().await?;
    for all in [format!("{NAMESPACE}/services"), SLICES.to_owned()] {
        let ours = format!("{all}?labelSelector=of%3Dbench");
        connection.json(Method::DELETE, &ours, None).await?;
    }
    Ok(json!({}))
}

/// The endpoint is a listener of this process on the node's own address: what is measured is the
/// proxy, not a pod.
async fn listen(connection: &mut Connection) -> anyhow::Result<SocketAddr> {
    let nodes = connection.json(Method::GET, "/api/v1/nodes", None).await?;
    let address = nodes
        .pointer("/items/0/status/addresses/0/address")
        .and_then(Value::as_str)
        .context("a node address")?;
    let address = SocketAddr::new(address.parse()?, PORT);
    let listener = TcpListener::bind(address).await?;
    drop(tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(tokio::spawn(async move { stream.read(&mut [0; 1]).await }));
        }
    }));
    Ok(address)
}

/// A Service with its slice: its address, and when its endpoint is known.
async fn make(
    connection: &mut Connection,
    name: &str,
    address: SocketAddr,
) -> anyhow::Result<(String, Instant)> {
    let services = format!("{NAMESPACE}/services");
    let created = connection
        .json(Method::POST, &services, Some(&service(name)))
        .await?;
    let slice = slice(name, address);
    connection.json(Method::POST, SLICES, Some(&slice)).await?;
    Ok((cluster_ip(&created)?, Instant::now()))
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"of": "bench"}},
        "spec": {"ports": [{"port": 80}]},
    })
}

fn slice(name: &str, address: SocketAddr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name, "of": "bench"}},
        "addressType": "IPv4",
        "ports": [{"port": address.port(), "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
    })
}

/// Of the one with this number.
async fn address_of(connection: &mut Connection, number: usize) -> anyhow::Result<String> {
    let path = format!("{NAMESPACE}/services/svc-{number}");
    cluster_ip(&connection.json(Method::GET, &path, None).await?)
}

fn cluster_ip(service: &Value) -> anyhow::Result<String> {
    Ok(service
        .pointer("/spec/clusterIP")
        .and_then(Value::as_str)
        .context("a clusterIP")?
        .to_owned())
}

async fn until_connected(ip: String) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let attempt = TcpStream::connect((ip.as_str(), 80));
        // Before the rule is there the packet goes nowhere: give up early and try again.
        if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, attempt).await {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{ip}:80 does not answer within {DEADLINE:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
