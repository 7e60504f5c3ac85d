//! Measures the runtime alone: how long a pod's sandbox and container take to make, and what a shim
//! weighs.
//!
//! ```text
//! cargo build --profile shim -p coracle-shim
//! cargo run --release -p coracle-agent --example runtime_bench -- LAYER_DIR SHIM [PODS]
//! ```
//!
//! `LAYER_DIR` is an unpacked image with `/bin/busybox`. Needs root. Pods get network namespaces
//! without links.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use coracle_agent::{
    network::{NetworkError, PodNetwork, PodNetworkRequest},
    runtime::*,
};

struct NoNetwork;

#[async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, _request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        Ok(vec![])
    }
    async fn teardown(&self, _request: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }
    async fn check(&self, _request: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }
    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }
}

struct OneLayer(PathBuf);

#[async_trait]
impl ImageService for OneLayer {
    async fn image_status(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        let (id, config) = (reference.to_owned(), ImageConfig::default());
        Ok(Some(Image {
            id,
            repo_tags: vec![],
            repo_digests: vec![],
            size_bytes: 0,
            config,
        }))
    }
    async fn pull_image(
        &self,
        reference: &str,
        _auth: &[RegistryAuth],
    ) -> Result<Image, ImageError> {
        Ok(self.image_status(reference).await?.expect("always there"))
    }
    async fn list_images(&self) -> Result<Vec<Image>, ImageError> {
        Ok(vec![])
    }
    async fn remove_image(&self, _reference: &str) -> Result<(), ImageError> {
        Ok(())
    }
    async fn layers(
        &self,
        _image_id: &str,
        _holder: &std::path::Path,
    ) -> Result<Vec<PathBuf>, ImageError> {
        Ok(vec![self.0.clone()])
    }
}

fn sandbox(number: usize, root: &Path) -> SandboxConfig {
    let uid = format!("bench-{number}");
    SandboxConfig {
        pod: PodRef {
            namespace: "bench".into(),
            name: uid.clone(),
            uid: PodUid(uid.clone()),
        },
        attempt: 0,
        hostname: uid.clone(),
        host_network: false,
        host_pid: false,
        host_ipc: false,
        share_process_namespace: false,
        user_namespace: false,
        runtime_handler: String::new(),
        port_mappings: vec![],
        dns: Default::default(),
        cgroup_parent: format!("/ct-bench-{}/{uid}", std::process::id()),
        resources: Resources {
            cpu_shares: Some(102),
            ..Resources::default()
        },
        sysctls: Default::default(),
        log_directory: root.join("logs").join(uid),
        labels: Default::default(),
        annotations: Default::default(),
    }
}

fn container() -> ContainerConfig {
    ContainerConfig {
        name: "main".into(),
        attempt: 0,
        image: "bench".into(),
        image_id: "bench".into(),
        image_ref: String::new(),
        command: ["/bin/busybox", "sleep", "100000"]
            .map(str::to_owned)
            .to_vec(),
        args: vec![],
        env: vec![],
        working_dir: None,
        mounts: vec![],
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: Resources {
            cpu_shares: Some(102),
            memory_limit_bytes: Some(64 << 20),
            ..Resources::default()
        },
        security: SecurityContext::default(),
        log_path: "main/0.log".into(),
        init: false,
        stop_signal: None,
        spec_hash: String::new(),
    }
}

fn quantile(times: &mut [Duration], share: usize) -> f64 {
    times.sort();
    times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3
}

/// `(shims, mean PSS, mean private dirty)` in KiB of the shims whose log lies below `root`.
fn weigh(root: &Path) -> (usize, u64, u64) {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        let log = std::fs::read_link(process.join("fd/2")).unwrap_or_default();
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        if !log.starts_with(root) || name.trim() != "coracle-shim" {
            continue;
        }
        let rollup = std::fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
        let field = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
                .unwrap_or(0)
        };
        found.push((field("Pss:"), field("Private_Dirty:")));
    }
    let count = found.len().max(1) as u64;
    (
        found.len(),
        found.iter().map(|(pss, _)| pss).sum::<u64>() / count,
        found.iter().map(|(_, dirty)| dirty).sum::<u64>() / count,
    )
}

#[allow(clippy::print_stdout, reason = "a table for people")]
fn report(line: &str) {
    println!("{line}");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(layer), Some(shim)) = (args.next(), args.next()) else {
        report("usage: runtime_bench LAYER_DIR SHIM [PODS]");
        return;
    };
    let pods: usize = args
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(20);
    let root = PathBuf::from(format!("/run/coracle-bench-{}", std::process::id()));
    let config = RuntimeConfig {
        run_dir: root.join("run"),
        root_dir: root.join("root"),
        shim_path: shim.into(),
        network: Arc::new(NoNetwork),
        images: Arc::new(OneLayer(layer.into())),
        own_pods: OwnPods::default(),
    };
    let runtime = LocalRuntime::start(config)
        .await
        .expect("start the runtime");
    one_after_the_other(&runtime, &root, pods).await;
    all_at_once(&runtime, &root, pods).await;
    let _ = std::fs::remove_dir_all(root);
}

/// Times of each step, what the shims weigh, and how long it takes to remove all.
async fn one_after_the_other(runtime: &LocalRuntime, root: &Path, pods: usize) {
    let mut times = [const { Vec::new() }; 5];
    for number in 0..pods {
        for (list, time) in times.iter_mut().zip(steps(runtime, root, number).await) {
            list.push(time);
        }
        if number == 0 || number + 1 == pods {
            let (shims, pss, dirty) = weigh(root);
            report(&format!(
                "{shims} shims: {pss} KiB PSS each, of which {dirty} KiB private dirty"
            ));
        }
    }
    for (name, list) in ["sandbox", "create", "start", "pod", "exec_sync"]
        .iter()
        .zip(&mut times)
    {
        report(&format!(
            "{name:10} p50 {:7.2} ms   p99 {:7.2} ms",
            quantile(list, 50),
            quantile(list, 99)
        ));
    }
    let began = Instant::now();
    tear_down(runtime).await;
    report(&format!(
        "teardown   mean {:7.2} ms",
        began.elapsed().as_secs_f64() * 1e3 / pods as f64
    ));
}

/// How long one pod takes: sandbox, create, start, all three, and a command in it.
async fn steps(runtime: &LocalRuntime, root: &Path, number: usize) -> [Duration; 5] {
    let began = Instant::now();
    let made = runtime
        .run_pod_sandbox(&sandbox(number, root))
        .await
        .expect("run a sandbox");
    let ran = Instant::now();
    let id = runtime
        .create_container(&made.id, &container())
        .await
        .expect("create a container");
    let created = Instant::now();
    runtime
        .start_container(&id)
        .await
        .expect("start a container");
    let started = Instant::now();
    let command = ["/bin/busybox", "true"].map(str::to_owned);
    runtime
        .exec_sync(&id, &command, Duration::from_secs(10))
        .await
        .expect("exec");
    [
        ran - began,
        created - ran,
        started - created,
        started - began,
        started.elapsed(),
    ]
}

async fn all_at_once(runtime: &Arc<LocalRuntime>, root: &Path, pods: usize) {
    let together = Instant::now();
    let all = (0..pods).map(|number| {
        let (runtime, config) = (Arc::clone(runtime), sandbox(number, root));
        coracle_telemetry::spawn("task of a test", async move {
            let made = runtime
                .run_pod_sandbox(&config)
                .await
                .expect("run a sandbox");
            let id = runtime
                .create_container(&made.id, &container())
                .await
                .expect("create a container");
            runtime
                .start_container(&id)
                .await
                .expect("start a container");
        })
    });
    futures::future::join_all(all).await;
    report(&format!(
        "{pods} pods at once: {:.0} ms",
        together.elapsed().as_secs_f64() * 1e3
    ));
    tear_down(runtime).await;
}

async fn tear_down(runtime: &LocalRuntime) {
    for made in runtime.list_pod_sandboxes().await.expect("list") {
        runtime.stop_pod_sandbox(&made.id).await.expect("stop");
        runtime.remove_pod_sandbox(&made.id).await.expect("remove");
    }
}
