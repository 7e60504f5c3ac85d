//! Entries for the fuzz targets: what users write and the scheduler reads.

use std::{
    io,
    path::Path,
    sync::{Arc, LazyLock},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{
    cache::Cache,
    config::{Profile, SchedulerConfig},
    framework::{CycleState, Failed, Framework},
    plugins::{self, Parts},
    pod_info::PodInfo,
    schedule_one::{Algorithm, SchedulingFailure},
};

/// The cluster into which pods are placed.
static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| {
    let node = |name: &str, zone: &str, cpu: &str, spec: Value| {
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
        json!({"metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "3", "example.org/gpu": "2"}}})
    };
    let taint = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let nodes = [
        node("a", "1", "1", json!({})),
        node("b", "2", "4", json!({})),
        node("c", "2", "9223372036854775807", taint),
    ];
    nodes.map(parsed).into()
});

/// What is on them.
static PLACED: LazyLock<Vec<Arc<PodInfo>>> = LazyLock::new(|| {
    let term = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}]);
    let apart =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    let pod = |name: &str, node: &str, affinity: &Value| {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "a"}},
            "spec": {"nodeName": node, "affinity": affinity, "containers": [{"name": "c", "image": "i",
                "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "500m"}}}]}})
    };
    let pods = [pod("p", "a", &json!({})), pod("q", "b", &apart)];
    let infos = pods.map(|pod| PodInfo::new(&parsed(pod)).map(Arc::new));
    infos.into_iter().flatten().collect()
});

fn parsed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}"))
}

/// A Pod is placed, or not, and no node is promised more than it has.
///
/// # Panics
/// If one is.
pub fn placing(data: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<Pod>(data) else {
        return;
    };
    let Some(info) = PodInfo::new(&pod) else {
        return;
    };
    let mut cache = Cache::default();
    NODES.iter().for_each(|node| drop(cache.set_node(node)));
    for placed in PLACED.iter().filter(|placed| placed.uid != info.uid) {
        cache.observe(
            placed.clone(),
            placed.node_name.as_deref().map_or("", |name| name),
        );
    }
    let (storage, profile) = (Arc::default(), Profile::default());
    let parts = Parts {
        storage: &storage,
        client: None,
    };
    let framework = Arc::new(plugins::framework(&profile, &parts));
    place(&framework, &mut cache, Arc::new(info));
}

fn place(framework: &Arc<Framework>, cache: &mut Cache, info: Arc<PodInfo>) {
    let (mut cycle, mut algorithm) = (
        CycleState::default(),
        Algorithm::new(framework.clone().into()),
    );
    let decided = algorithm.schedule(&mut cycle, &info, None, &cache.snapshot());
    match decided.map(|node| node.name.clone()) {
        Ok(name) => {
            cache.assume(info.clone(), &name);
            let snapshot = cache.snapshot();
            let Some(node) = snapshot.node(&name) else {
                panic!("{name} was chosen and is not there");
            };
            let (asked, has, used) = (&info.requests, &node.allocatable, &node.requested);
            assert!(
                asked.milli_cpu <= 0 || used.milli_cpu <= has.milli_cpu,
                "{name} has too little CPU"
            );
            assert!(
                asked.memory_bytes <= 0 || used.memory_bytes <= has.memory_bytes,
                "{name} has too little memory"
            );
        }
        Err(SchedulingFailure::Unschedulable(diagnosis)) => {
            assert!(!diagnosis.to_string().is_empty());
            drop(framework.run_post_filter(&mut Failed {
                filters: &**framework,
                extenders: &framework.extenders,
                cycle: &cycle,
                pod: &info,
                diagnosis: &diagnosis,
                nominated: None,
                cache,
            }));
        }
        Err(SchedulingFailure::Error(_)) => {}
    }
    cache.remove_pod(&info.uid);
}

/// A configuration is read, or refused in words.
///
/// # Panics
/// If it is refused without a word.
pub fn config(text: &str) {
    // No file that it names is read.
    let none = |_: &Path| Err(io::ErrorKind::NotFound.into());
    match SchedulerConfig::parse_with(text, &none) {
        Ok(config) => assert!(config.names().next().is_some()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
