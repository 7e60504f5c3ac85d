//! A Pod, as far as placing it needs: computed once when the Pod is seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use coracle_api::{
    quantity::{Format, Quantity as Amount},
    resource_list::Amounts,
    scheduling::{host_ports, pod_requests_in_force},
};
use k8s_openapi::api::core::v1::{Affinity, NodeSelectorTerm, ObjectReference, Pod, PodSpec};

mod affinity_term;
mod node_features;
mod ports;
mod shared;
mod spread_constraint;
mod tolerations;
mod volumes;

pub(crate) use self::{
    affinity_term::{AffinityTerm, AffinityTerms, selector},
    ports::Ports,
    shared::Shared,
    spread_constraint::SpreadConstraint,
    tolerations::Tolerations,
    volumes::{Disk, PodClaim, PodVolumes},
};
use crate::{
    resources::Resources,
    selectors::{SelectorKind, SelectorOwner},
    unscheduled::Unscheduled,
};

/// CPU and memory counted for a container that asks for none, so that such pods spread all the
/// same. Source: `pkg/scheduler/util/pod_resources.go` at v1.37.
static COUNTED_AT_LEAST: LazyLock<Amounts> = LazyLock::new(|| {
    let memory = Amount::from_units(200 << 20, Format::BinarySi);
    Amounts::from([
        ("cpu".to_owned(), Amount::from_milli(100)),
        ("memory".to_owned(), memory),
    ])
});

/// How much a pod may ask for and have each event looked at that may help it.
const MUCH: usize = 256;

/// Names one pod object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PodUid(pub(crate) Arc<str>);

/// What placing a pod looks at, computed once.
#[derive(Debug, Clone)]
pub(crate) struct PodInfo {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Shared by pods of one template, as the rest behind an `Arc`: see [`Shared`].
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    pub(crate) resource_version: String,
    /// `spec.nodeName`; for a pod that is not placed yet, the only node that may take it (never set
    /// by clients).
    pub(crate) node_name: Option<Arc<String>>,
    pub(crate) scheduler_name: Arc<String>,
    pub(crate) priority: i32,
    /// Whether others may be ended to make room for it.
    pub(crate) preempts: bool,
    /// When its node has taken it, in nanoseconds since 1970.
    pub(crate) started: Option<i64>,
    /// Whether it is being ended to make room for another.
    pub(crate) preempted: bool,
    /// `status.nominatedNodeName`; asked only while it has no node.
    pub(crate) nominated_node: Option<Box<str>>,
    pub(crate) requests: Resources,
    /// As `requests`, with a minimum for containers that ask for nothing.
    pub(crate) nonzero: Resources,
    pub(crate) host_ports: Ports,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Node affinity alone.
    pub(crate) affinity: Option<Box<Affinity>>,
    pub(crate) terms: Arc<AffinityTerms>,
    /// What it requires of being spread.
    pub(crate) hard_spread: Vec<SpreadConstraint>,
    /// What it wishes of it.
    pub(crate) soft_spread: Vec<SpreadConstraint>,
    pub(crate) tolerations: Arc<Tolerations>,
    /// Of its init containers, containers and image volumes; asked only while it has no node.
    pub(crate) images: Vec<String>,
    /// What controls it, if that selects pods; likewise.
    pub(crate) controller: Option<SelectorOwner>,
    /// Whether somebody has put a gate before it.
    pub(crate) is_gated: bool,
    pub(crate) terminating: bool,
    pub(crate) finished: bool,
    /// What its condition says, if that is why it has no node.
    pub(crate) unscheduled: Option<Unscheduled>,
    /// Whether it claims devices.
    pub(crate) claims_resources: bool,
    /// What of the node's software it needs.
    pub(crate) node_features: Box<[&'static str]>,
    /// `None` if none of them has a say in where it may be.
    pub(crate) volumes: Option<Box<PodVolumes>>,
    /// Whether an attempt is as cheap as a look at whether an event may help it.
    pub(crate) asks_much: bool,
    /// All of it, where there are extenders to tell of it.
    pub(crate) object: Option<Arc<Pod>>,
}

impl PodInfo {
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let (namespace, unlabelled) = (pod.metadata.namespace.as_deref()?, BTreeMap::new());
        let labels = pod.metadata.labels.as_ref().unwrap_or(&unlabelled);
        let spread = spec.topology_spread_constraints.as_ref();
        let node_name = spec.node_name.clone().filter(|name| !name.is_empty());
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .unwrap_or("");
        let of = |unsaid: &Amounts| Resources::from_amounts(&pod_requests_in_force(pod, unsaid));
        let mut info = Self {
            uid: PodUid(pod.metadata.uid.as_deref()?.into()),
            namespace: namespace.to_owned(),
            name: pod.metadata.name.clone()?,
            labels: Arc::new(labels.clone()),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_default().into(),
            priority: spec.priority.unwrap_or(0),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            started: started(pod),
            preempted: is_preempted(pod),
            nominated_node: nominated_node(pod).filter(|_| node_name.is_none()),
            requests: of(&Amounts::new()),
            nonzero: of(&COUNTED_AT_LEAST),
            host_ports: Ports::of(host_ports(spec)),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            affinity: spec.affinity.as_ref().and_then(node_affinity).map(Box::new),
            terms: Arc::new(AffinityTerms::of(spec.affinity.as_ref(), namespace, labels)),
            hard_spread: SpreadConstraint::all(spread, true, labels),
            soft_spread: SpreadConstraint::all(spread, false, labels),
            tolerations: Arc::new(Tolerations::of(
                spec.tolerations.as_deref().unwrap_or_default(),
            )),
            images: if node_name.is_none() {
                images(spec)
            } else {
                Vec::new()
            },
            controller: controller(pod).filter(|_| node_name.is_none()),
            node_name: node_name.map(Arc::new),
            is_gated: spec
                .scheduling_gates
                .as_ref()
                .is_some_and(|gates| !gates.is_empty()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            finished: matches!(phase, "Succeeded" | "Failed"),
            unscheduled: Unscheduled::of(pod),
            node_features: node_features::needed(spec),
            claims_resources: spec
                .resource_claims
                .as_ref()
                .is_some_and(|claims| !claims.is_empty()),
            volumes: PodVolumes::of(spec, pod.metadata.name.as_deref()?),
            asks_much: false,
            object: None,
        };
        info.asks_much = info.length() > MUCH;
        Some(info)
    }

    /// The same with all of the pod, which extenders are told of.
    pub(crate) fn whole(mut pod: Pod) -> Option<Self> {
        let mut info = Self::new(&pod)?;
        pod.metadata.managed_fields = None;
        info.object = Some(Arc::new(pod));
        Some(info)
    }

    /// As Events carry it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(self.uid.0.to_string()),
            resource_version: Some(self.resource_version.clone()),
            field_path: None,
        }
    }

    /// How much it asks for.
    fn length(&self) -> usize {
        let spread = self
            .hard_spread
            .iter()
            .map(SpreadConstraint::length)
            .sum::<usize>();
        let of_nodes = self.required_nodes().map_or(0, nodes_length);
        let counted = self.tolerations.len() + self.host_ports.len() + self.requests.scalars.len();
        let of_volumes = self.claims().len() + self.disks().len();
        self.terms.length() + spread + of_nodes + counted + of_volumes
    }

    /// The terms of its required node affinity, of which a node has to meet any.
    pub(crate) fn required_nodes(&self) -> Option<&[NodeSelectorTerm]> {
        let affinity = self.affinity.as_ref()?.node_affinity.as_ref()?;
        let selector = affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        Some(&selector.node_selector_terms)
    }

    /// Whether it may fit somewhere because of other pods.
    pub(crate) fn leans_on_others(&self) -> bool {
        !self.terms.required.is_empty() || !self.hard_spread.is_empty()
    }

    /// The claims that it uses.
    pub(crate) fn claims(&self) -> &[PodClaim] {
        self.volumes.as_ref().map_or(&[], |volumes| &volumes.claims)
    }

    /// Whether it uses a claim.
    pub(crate) fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.claims().iter().any(|claim| claim.name == name)
    }

    /// The disks that it names itself.
    pub(crate) fn disks(&self) -> &[Disk] {
        self.volumes.as_ref().map_or(&[], |volumes| &volumes.disks)
    }

    /// `namespace/name`, for messages.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn started(pod: &Pod) -> Option<i64> {
    let at = pod.status.as_ref()?.start_time.as_ref()?;
    i64::try_from(at.0.as_nanosecond()).ok()
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let target = conditions.find(|condition| condition.type_ == "DisruptionTarget");
    pod.metadata.deletion_timestamp.is_some()
        && target.is_some_and(|target| {
            target.status == "True" && target.reason.as_deref() == Some("PreemptionByScheduler")
        })
}

fn nominated_node(pod: &Pod) -> Option<Box<str>> {
    let name = pod.status.as_ref()?.nominated_node_name.as_deref()?;
    (!name.is_empty()).then(|| name.into())
}

/// What a node has to have before the pod can start there.
fn images(spec: &PodSpec) -> Vec<String> {
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let volumes = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.image.as_ref()?.reference.clone());
    containers
        .map(|container| container.image.clone().unwrap_or_default())
        .chain(volumes)
        .collect()
}

fn controller(pod: &Pod) -> Option<SelectorOwner> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => SelectorKind::ReplicationController,
        ("apps/v1", "ReplicaSet") => SelectorKind::ReplicaSet,
        ("apps/v1", "StatefulSet") => SelectorKind::StatefulSet,
        _ => return None,
    };
    Some(SelectorOwner {
        kind,
        namespace: pod.metadata.namespace.clone()?,
        name: owner.name.clone(),
    })
}

/// How much is written in terms about nodes: what it takes to ask them about one.
pub(crate) fn nodes_length<'a>(terms: impl IntoIterator<Item = &'a NodeSelectorTerm>) -> usize {
    let of = |term: &NodeSelectorTerm| {
        let requirements = term
            .match_expressions
            .iter()
            .chain(&term.match_fields)
            .flatten();
        1 + requirements
            .map(|requirement| 1 + requirement.values.as_ref().map_or(0, Vec::len))
            .sum::<usize>()
    };
    terms.into_iter().map(of).sum()
}

/// What an affinity says about nodes.
fn node_affinity(affinity: &Affinity) -> Option<Affinity> {
    let node_affinity = affinity.node_affinity.clone()?;
    Some(Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::pod_with;

    #[test]
    fn containers_without_requests_count_a_little() {
        let info = pod_with("p", json!({"containers": [{"name": "a"}]}));
        assert_eq!(info.requests, Resources::default());
        assert_eq!(
            (info.nonzero.milli_cpu, info.nonzero.memory_bytes),
            (100, 200 << 20)
        );
    }

    #[test]
    fn every_named_resource_is_counted() {
        let asked = json!({"requests": {"example.org/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": "1", "memory": "1Gi",
            "ephemeral-storage": "1Ki", "pods": "7"}});
        let info = pod_with(
            "p",
            json!({"containers": [{"name": "a", "resources": asked}]}),
        );
        let scalars = [
            ("example.org/gpu".to_owned(), 2),
            ("hugepages-2Mi".to_owned(), 4 << 20),
        ]
        .into();
        let expected = Resources {
            milli_cpu: 1000,
            memory_bytes: 1 << 30,
            ephemeral_storage_bytes: 1024,
            scalars,
        };
        assert_eq!((&info.requests, &info.nonzero), (&expected, &expected));
    }
}
