//! What a pod asks of its node.
//!
//! Source: `k8s.io/component-helpers/resource/helpers.go` `PodRequests` at v1.37.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{Resources, is_sidecar};

/// CPU and memory counted for a container that asks for none, so that such pods spread all the same.
/// Source: `pkg/scheduler/util/pod_resources.go` at v1.37.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY_BYTES: i64 = 200 << 20;

type List = BTreeMap<String, Quantity>;

/// Sum of the containers and sidecars, or the largest init container beside the sidecars before it; what the pod asks for as a
/// whole instead, if it does; plus overhead. The second is what it counts as in scores.
pub(super) fn requests(pod: &Pod) -> (Resources, Resources) {
    let Some(spec) = pod.spec.as_ref() else { return Default::default() };
    let mut total = Pair::default();
    for container in &spec.containers {
        total.add(&Pair::of(pod, container));
    }
    let (mut sidecars, mut init_peak) = (Pair::default(), Pair::default());
    for container in spec.init_containers.iter().flatten() {
        let own = Pair::of(pod, container);
        let mut peak = sidecars.clone();
        peak.add(&own);
        if is_sidecar(container) {
            total.add(&own);
            sidecars.add(&own);
        }
        init_peak = init_peak.max(&peak);
    }
    let mut total = total.max(&init_peak);
    if let Some(whole) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        total.replace(whole);
    }
    if let Some(overhead) = &spec.overhead {
        let overhead = Resources::from_list(overhead);
        total.add(&Pair { requests: overhead.clone(), nonzero: overhead });
    }
    (total.requests, total.nonzero)
}

#[derive(Clone, Default)]
struct Pair {
    requests: Resources,
    nonzero: Resources,
}

impl Pair {
    fn of(pod: &Pod, container: &Container) -> Self {
        let list = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let asked = list.map(Resources::from_list).unwrap_or_default();
        let requests = match status_of(pod, container) {
            Some(status) => while_resized(pod, asked, status),
            None => asked,
        };
        let mut nonzero = requests.clone();
        let is_named = |name: &str| list.is_some_and(|list| list.contains_key(name));
        if !is_named("cpu") && requests.milli_cpu == 0 {
            nonzero.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if !is_named("memory") && requests.memory_bytes == 0 {
            nonzero.memory_bytes = DEFAULT_MEMORY_BYTES;
        }
        Self { requests, nonzero }
    }

    fn add(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.nonzero.add(&other.nonzero);
    }

    fn max(self, other: &Self) -> Self {
        Self { requests: self.requests.max(&other.requests), nonzero: self.nonzero.max(&other.nonzero) }
    }

    /// What the pod asks for as a whole counts instead of what its containers do.
    fn replace(&mut self, whole: &List) {
        let supported = |name: &str| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
        let whole: List =
            whole.iter().filter(|(name, _)| supported(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let amounts = Resources::from_list(&whole);
        for side in [&mut self.requests, &mut self.nonzero] {
            if whole.contains_key("cpu") {
                side.milli_cpu = amounts.milli_cpu;
            }
            if whole.contains_key("memory") {
                side.memory_bytes = amounts.memory_bytes;
            }
            side.scalars.extend(amounts.scalars.clone());
        }
    }
}

fn status_of<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    statuses.into_iter().find(|status| status.name == container.name)
}

/// A container whose resize is under way has on its node what it had, and needs what it will have; one whose resize the node
/// refuses keeps what it has.
fn while_resized(pod: &Pod, asked: Resources, status: &ContainerStatus) -> Resources {
    let running = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let has = [running, status.allocated_resources.as_ref()].into_iter().flatten().map(Resources::from_list);
    let has = has.reduce(|a, b| a.max(&b));
    match has {
        Some(has) if is_resize_infeasible(pod) => has,
        Some(has) => asked.max(&has),
        None => asked,
    }
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value, status: Value) -> (Resources, Resources) {
        let metadata = json!({"uid": "u", "namespace": "n", "name": "p"});
        requests(&serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod"))
    }

    fn cpu(cpu: &str) -> Value {
        json!({"requests": {"cpu": cpu}})
    }

    #[test]
    fn init_containers_count_where_they_need_more_than_the_rest() {
        let spec = json!({
            "initContainers": [
                {"name": "big", "resources": cpu("3")},
                {"name": "side", "restartPolicy": "Always", "resources": cpu("500m")},
                {"name": "late", "resources": cpu("2700m")},
            ],
            "containers": [{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("1")}],
        });
        // Containers with sidecar: 2.5; first init: 3; last init beside the sidecar: 3.2.
        assert_eq!(of(spec, json!({})).0.milli_cpu, 3200);
    }

    #[test]
    fn containers_without_requests_count_a_little() {
        let (requests, nonzero) = of(json!({"containers": [{"name": "a"}]}), json!({}));
        assert_eq!(requests, Resources::default());
        assert_eq!((nonzero.milli_cpu, nonzero.memory_bytes), (100, 200 << 20));
    }

    #[test]
    fn every_named_resource_is_summed_up() {
        let gpu = json!({"requests": {"example.org/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": "1"}});
        let init = json!({"requests": {"example.org/gpu": "5"}});
        let spec = json!({
            "initContainers": [{"name": "i", "resources": init}],
            "containers": [{"name": "a", "resources": gpu}, {"name": "b", "resources": gpu}],
        });
        let (requests, _) = of(spec, json!({}));
        let expected = [("example.org/gpu".to_owned(), 5), ("hugepages-2Mi".to_owned(), 8 << 20)];
        assert_eq!((requests.scalars, requests.milli_cpu), (expected.into(), 2000));
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_counts_instead() {
        let spec = json!({
            "resources": {"requests": {"cpu": "4", "example.org/gpu": "9"}},
            "overhead": {"cpu": "100m"},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        });
        let (requests, nonzero) = of(spec, json!({}));
        assert_eq!((requests.milli_cpu, requests.memory_bytes, requests.scalars.len()), (4100, 1 << 30, 0));
        assert_eq!(nonzero.milli_cpu, 4100);
    }

    #[test]
    fn a_pod_that_is_resized_counts_with_the_larger_amount() {
        let spec = |asked: &str| json!({"containers": [{"name": "a", "resources": cpu(asked)}]});
        let status = |allocated: &str, running: &str| {
            json!({"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": cpu(running),
            }]})
        };
        for (asked, allocated, running, counts) in
            [("1", "1", "1", 1000), ("2", "1", "1", 2000), ("1", "1", "3", 3000), ("1", "2", "1", 2000)]
        {
            assert_eq!(
                of(spec(asked), status(allocated, running)).0.milli_cpu,
                counts,
                "{asked} {allocated} {running}"
            );
        }
        let mut refused = status("1", "1");
        refused["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        assert_eq!(of(spec("64"), refused).0.milli_cpu, 1000);
    }
}
