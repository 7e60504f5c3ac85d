//! A Pod as controllers hold it: what they read of one, and no more.
//!
//! There are more pods than objects of any other kind, and a whole one in types takes several times
//! the memory of its text. The names are those of the whole type, `k8s_openapi`'s, which is what
//! controllers create.

mod condition;
mod container;

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{self, Affinity, PodIP, Toleration},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[cfg(test)]
pub(crate) use self::container::ContainerPort;
use self::container::Resources;
pub(crate) use self::{
    condition::PodCondition,
    container::{Asks, Container, Requests},
};
use crate::pod_claims::{ClaimVolume, to_claims};

/// Different lists of tolerations, and different containers, that are shared; pods have the same
/// few.
const SHARED_TOLERATIONS: usize = 32;
const SHARED_CONTAINERS: usize = 64;
/// Read by people alone, and as long as the object.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A Pod with the fields that controllers read.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Option<PodSpec>,
    pub(crate) status: Option<PodStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    #[serde(default)]
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Option<Vec<Container>>,
    #[serde(default, deserialize_with = "to_be_shared")]
    pub(crate) tolerations: Option<Arc<Vec<Toleration>>>,
    /// What the pod as a whole asks for, where it says so.
    #[serde(default, rename = "resources", deserialize_with = "to_requests")]
    pub(crate) requests: Option<Box<Requests>>,
    /// Whether it ends by itself some time.
    #[serde(
        default,
        rename = "activeDeadlineSeconds",
        deserialize_with = "to_a_flag"
    )]
    pub(crate) has_deadline: bool,
    /// Of one without a node: which node its required affinity names, as a DaemonSet's does.
    #[serde(default, rename = "affinity", deserialize_with = "to_a_node")]
    pub(crate) named_node: Option<String>,
    /// Of its volumes the claims.
    #[serde(default, rename = "volumes", deserialize_with = "to_claims")]
    pub(crate) claims: Box<[ClaimVolume]>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    /// Whether its node gives that as the reason of the phase.
    #[serde(default, rename = "reason", deserialize_with = "to_be_evicted")]
    pub(crate) is_evicted: bool,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Option<Vec<PodIP>>,
    pub(crate) start_time: Option<Time>,
    pub(crate) conditions: Option<Vec<PodCondition>>,
    pub(crate) container_statuses: Option<Vec<ContainerStatus>>,
    pub(crate) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    /// Of one that has failed, or that initializes its pod.
    pub(crate) name: Option<Box<str>>,
    #[serde(default)]
    pub(crate) restart_count: i32,
    pub(crate) state: Option<ContainerState>,
    /// Tells what the container has been given from anything else; 0 if nothing is said.
    #[serde(default, deserialize_with = "to_a_hash")]
    pub(crate) resources: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ContainerState {
    pub(crate) terminated: Option<Terminated>,
    #[serde(default, rename = "running", deserialize_with = "to_presence")]
    pub(crate) is_running: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terminated {
    #[serde(default)]
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Time>,
}

impl ContainerStatus {
    fn has_failed(&self) -> bool {
        let state = self.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code != 0)
    }
}

fn to_be_shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Vec<Toleration>>>, D::Error> {
    Ok(Option::<Vec<Toleration>>::deserialize(deserializer)?.map(Arc::new))
}

fn to_requests<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<Requests>>, D::Error> {
    let resources = Option::<Resources>::deserialize(deserializer)?;
    let requests = resources.and_then(Resources::requests);
    Ok(requests
        .filter(|own| *own != Requests::default())
        .map(Box::new))
}

fn to_a_flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<i64>::deserialize(deserializer)?.is_some_and(|seconds| seconds >= 0))
}

fn to_presence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

fn to_be_evicted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(
        Option::<Cow<'_, str>>::deserialize(deserializer)?
            .is_some_and(|reason| reason == "Evicted"),
    )
}

/// Source: `pkg/controller/daemon/util/daemonset_util.go` (GetTargetNodeName) at v1.37.
fn to_a_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let affinity = Option::<Affinity>::deserialize(deserializer)?;
    let required = affinity
        .and_then(|affinity| affinity.node_affinity)
        .and_then(|of_node| of_node.required_during_scheduling_ignored_during_execution);
    let terms = required.map(|required| required.node_selector_terms);
    let mut fields = terms
        .into_iter()
        .flatten()
        .filter_map(|term| term.match_fields)
        .flatten();
    let name = fields.find(|field| field.key == "metadata.name" && field.operator == "In");
    let names = name.and_then(|name| name.values).unwrap_or_default();
    Ok(<[String; 1]>::try_from(names).ok().map(|[name]| name))
}

fn to_a_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let Some(said) = Option::<Value>::deserialize(deserializer)? else {
        return Ok(0);
    };
    let mut hasher = DefaultHasher::new();
    said.hash(&mut hasher);
    Ok(hasher.finish())
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        v1::Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        v1::Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        v1::Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        v1::Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Drops what is not read from each pod it is given, and lets pods share what those of a template
/// have in common.
pub(crate) fn trimmer() -> impl FnMut(&mut Pod) + Clone + Send {
    let mut tolerations = Pool::new(SHARED_TOLERATIONS);
    let mut containers = Pool::new(SHARED_CONTAINERS);
    move |pod| {
        trim(pod);
        let Some(spec) = &mut pod.spec else { return };
        if let Some(own) = &mut spec.tolerations {
            tolerations.share(own);
        }
        for container in containers_of(spec) {
            containers.share(&mut container.asks);
        }
    }
}

/// The values that came last, each once.
#[derive(Clone)]
struct Pool<T> {
    known: Vec<Arc<T>>,
    most: usize,
}

impl<T: PartialEq> Pool<T> {
    fn new(most: usize) -> Self {
        Self {
            known: Vec::new(),
            most,
        }
    }

    /// Makes of `own` the one that is known, if it is.
    fn share(&mut self, own: &mut Arc<T>) {
        if let Some(known) = self.known.iter().find(|known| *known == own) {
            *own = Arc::clone(known);
        } else {
            self.known.truncate(self.most - 1);
            self.known.insert(0, Arc::clone(own));
        }
    }
}

fn containers_of(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    let init = spec.init_containers.iter_mut().flatten();
    spec.containers.iter_mut().chain(init)
}

fn trim(pod: &mut Pod) {
    let meta = &mut pod.metadata;
    (meta.generate_name, meta.generation, meta.self_link) = (None, None, None);
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let Some(spec) = &mut pod.spec else { return };
    if spec.node_name.is_some() {
        spec.named_node = None;
    }
    for container in containers_of(spec) {
        if let Some(ports) = &mut container.ports {
            ports.retain(|port| port.name.is_some());
            ports.shrink_to_fit();
        }
    }
    let statuses = pod.status.iter_mut();
    let statuses = statuses.flat_map(|status| &mut status.container_statuses);
    for status in statuses.flatten().filter(|status| !status.has_failed()) {
        status.name = None;
    }
    shrink(pod);
}

/// Lists were read without knowing how long they are: each has room for up to as much again.
fn shrink(pod: &mut Pod) {
    fn fit<T>(list: Option<&mut Vec<T>>) {
        list.into_iter().for_each(Vec::shrink_to_fit);
    }
    fit(pod.metadata.owner_references.as_mut());
    fit(pod.metadata.finalizers.as_mut());
    if let Some(spec) = &mut pod.spec {
        spec.containers.shrink_to_fit();
        fit(spec.init_containers.as_mut());
    }
    if let Some(status) = &mut pod.status {
        fit(status.conditions.as_mut());
        fit(status.pod_ips.as_mut());
        fit(status.container_statuses.as_mut());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(toleration: &str) -> Pod {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "generateName": "g-", "annotations": {LAST_APPLIED: "{}", "a": "b"}},
            "spec": {
                "nodeName": "n1", "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m", "memory": "1Ki"}}, "ports": [
                    {"containerPort": 80, "name": "http", "protocol": "TCP"}, {"containerPort": 81, "hostPort": 8081},
                ]}],
                "tolerations": [{"key": toleration, "operator": "Exists"}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [
                {"name": "c", "restartCount": 2, "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}},
            ]},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_read_is_kept() {
        let mut pod = pod("a");
        trimmer()(&mut pod);
        let (spec, status) = (pod.spec.unwrap(), pod.status.unwrap());
        let ports = spec.containers[0].ports.as_ref().unwrap();
        assert_eq!(
            (
                ports.len(),
                ports[0].name.as_deref(),
                ports[0].container_port
            ),
            (1, Some("http"), 80)
        );
        assert_eq!(
            (spec.node_name.as_deref(), status.pod_ip.as_deref()),
            (Some("n1"), Some("10.0.0.1"))
        );
        assert_eq!(status.pod_ips.unwrap()[0].ip, "10.0.0.1");
        let container = &status.container_statuses.unwrap()[0];
        assert_eq!(container.restart_count, 2);
        assert_eq!(container.name.as_deref(), Some("c"), "it has failed");
        let ended = container.state.as_ref().unwrap().terminated.as_ref();
        let ended = ended.unwrap();
        assert!(ended.finished_at.is_some() && ended.exit_code == 1);
        assert_eq!(
            pod.metadata
                .annotations
                .unwrap()
                .into_keys()
                .collect::<Vec<_>>(),
            ["a"]
        );
    }

    #[test]
    fn what_a_container_asks_for_is_held_once_for_a_template() {
        let mut trim = trimmer();
        let mut held = || {
            let mut pod = pod("a");
            trim(&mut pod);
            Arc::clone(&pod.spec.unwrap().containers[0].asks)
        };
        let (first, second) = (held(), held());
        assert!(Arc::ptr_eq(&first, &second));
        let requests = Requests {
            cpu: Some(1500),
            memory: Some(1_024_000),
        };
        assert_eq!((first.name.as_str(), first.requests), ("c", requests));
        let taken: Vec<i32> = first.host_ports.iter().map(|port| port.port).collect();
        assert_eq!(taken, [8081]);
        let asks = |resources| serde_json::from_value::<PodSpec>(json!({"resources": resources}));
        assert!(
            asks(json!({"limits": {"cpu": "1"}}))
                .unwrap()
                .requests
                .is_none()
        );
        let whole = asks(json!({"requests": {"cpu": "2"}}))
            .unwrap()
            .requests
            .unwrap();
        assert_eq!((whole.of("cpu"), whole.of("memory")), (Some(2000), None));
    }

    #[test]
    fn equal_tolerations_are_held_once() {
        let mut trim = trimmer();
        let mut held = |name: &str| {
            let mut pod = pod(name);
            trim(&mut pod);
            pod.spec.unwrap().tolerations.unwrap()
        };
        let (first, other, again) = (held("a"), held("b"), held("a"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        (0..1000).for_each(|number| drop(held(&number.to_string())));
        assert_eq!(Arc::strong_count(&first), 2, "the pool lets go of old ones");
    }
}
