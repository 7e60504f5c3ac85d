//! How long a new Service takes to work once its endpoints are known, with a thousand others
//! present.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::{
    client::{Connection, Target},
    report::percentile,
};

const SERVICES: usize = 1000;
const NEW: usize = 10;
const CONNECTIONS: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "/api/v1/namespaces/default";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Makes the others first.
pub(crate) async fn latency(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let (address, port) = listen(&mut connection).await?;
    fill(&target, &address, port).await?;
    let last = format!("{NAMESPACE}/services/svc-{}", SERVICES - 1);
    let last = connection.json(Method::GET, &last, None).await?;
    until_connected(cluster_ip(&last)?).await?;
    measure(&mut connection, "new", &address, port).await
}

/// The others are there. The first to work shows that their rules are.
pub(crate) async fn latency_again(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let (address, port) = listen(&mut connection).await?;
    until_it_works(&mut connection, "first-again", &address, port).await?;
    measure(&mut connection, "again", &address, port).await
}

/// The endpoint is a listener of this process on the node's own address: what is measured is the
/// proxy, not a pod.
async fn listen(connection: &mut Connection) -> anyhow::Result<(String, u16)> {
    let nodes = connection.json(Method::GET, "/api/v1/nodes", None).await?;
    let address = nodes
        .pointer("/items/0/status/addresses/0/address")
        .and_then(Value::as_str)
        .context("a node address")?;
    let listener = TcpListener::bind((address, 0)).await?;
    let port = listener.local_addr()?.port();
    drop(tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(tokio::spawn(async move { stream.read(&mut [0; 1]).await }));
        }
    }));
    Ok((address.to_owned(), port))
}

async fn fill(target: &Target, address: &str, port: u16) -> anyhow::Result<()> {
    let tasks = (0..CONNECTIONS).map(|k| {
        let (target, address) = (target.clone(), address.to_owned());
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            for n in (k..SERVICES).step_by(CONNECTIONS) {
                let name = format!("svc-{n}");
                connection
                    .json(
                        Method::POST,
                        &format!("{NAMESPACE}/services"),
                        Some(&service(&name)),
                    )
                    .await?;
                connection
                    .json(Method::POST, SLICES, Some(&slice(&name, &address, port)))
                    .await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn measure(
    connection: &mut Connection,
    prefix: &str,
    address: &str,
    port: u16,
) -> anyhow::Result<Value> {
    let mut times = Vec::new();
    for n in 0..NEW {
        let name = format!("{prefix}-{n}");
        times.push(until_it_works(connection, &name, address, port).await?);
    }
    Ok(json!({"p50_ms": percentile(&mut times, 50), "max_ms": percentile(&mut times, 100)}))
}

/// How long after its endpoint is known.
async fn until_it_works(
    connection: &mut Connection,
    name: &str,
    address: &str,
    port: u16,
) -> anyhow::Result<Duration> {
    let services = format!("{NAMESPACE}/services");
    let created = connection
        .json(Method::POST, &services, Some(&service(name)))
        .await?;
    connection
        .json(Method::POST, SLICES, Some(&slice(name, address, port)))
        .await?;
    let known = Instant::now();
    until_connected(cluster_ip(&created)?).await?;
    Ok(known.elapsed())
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn slice(name: &str, address: &str, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": port, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    })
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
        let attempt = tokio::net::TcpStream::connect((ip.as_str(), 80));
        // Before the rule is there the packet goes nowhere: give up early and try again.
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(5), attempt).await {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{ip}:80 does not answer within {DEADLINE:?}");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
