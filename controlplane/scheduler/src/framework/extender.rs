//! What an extender is asked, and what it answers: a process beside the scheduler that has a say in
//! where pods go, and is told of them over HTTP.
//!
//! Source: `Extender` in `k8s.io/kube-scheduler/framework/extender.go`, `pkg/scheduler/extender.go`
//! at v1.37.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;

use crate::{node_info::NodeInfo, pod_info::PodInfo};

/// The best score of an extender; the worst is 0.
pub(crate) const MAX_EXTENDER_PRIORITY: i64 = 10;

/// What an extender can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtenderVerb {
    Filter,
    Prioritize,
    Preempt,
    Bind,
}

/// A process beside the scheduler. What it is asked ends by a deadline of its own.
pub(crate) trait Extender: Send + Sync {
    /// As messages name it.
    fn name(&self) -> &str;

    /// Whether pods are placed without it when it fails.
    fn is_ignorable(&self) -> bool;

    fn does(&self, verb: ExtenderVerb) -> bool;

    /// Whether it has a say about this pod.
    fn is_interested(&self, pod: &PodInfo) -> bool;

    /// How often its scores count.
    fn weight(&self) -> i64;

    /// Which of the nodes can take the pod.
    fn filter<'a>(&'a self, pod: &'a PodInfo, nodes: &'a [&'a NodeInfo]) -> Asked<'a, Filtered>;

    /// How well nodes suit the pod, by name, up to [`MAX_EXTENDER_PRIORITY`].
    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [&'a NodeInfo],
    ) -> Asked<'a, HashMap<String, i64>>;

    /// Which of the candidates come into question, by the name of the node, and who has to end
    /// there.
    fn process_preemption<'a>(
        &'a self,
        pod: &'a PodInfo,
        candidates: &'a [(&'a str, &'a Candidate)],
    ) -> Asked<'a, BTreeMap<String, NamedVictims>>;

    /// Binds the pod.
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Asked<'a, ()>;
}

/// An answer on its way.
pub(crate) type Asked<'a, T> = BoxFuture<'a, Result<T, ExtenderError>>;

/// What an extender says about nodes, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filtered {
    /// Those that can take the pod.
    pub(crate) nodes: Vec<String>,
    /// Why others cannot.
    pub(crate) failed: BTreeMap<String, String>,
    /// Why others cannot, whichever pods end.
    pub(crate) failed_and_unresolvable: BTreeMap<String, String>,
}

/// Who has to end on a node, by UID.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedVictims {
    pub(crate) uids: Vec<String>,
    /// How many of them a budget protects.
    pub(crate) violations: i64,
}

/// A node that could take a pod if some of those on it ended.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Where it is in the snapshot.
    pub(crate) node: usize,
    /// The most important first.
    pub(crate) victims: Vec<Arc<PodInfo>>,
    /// How many of them a budget protects.
    pub(crate) violations: usize,
}

/// Why an extender has not answered, or its answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExtenderError {
    /// Of the pod or a node too little is held to tell of it.
    #[error("{0} cannot be told to an extender: it is not held whole")]
    NotHeld(String),
    /// The question could not be written.
    #[error("write what to ask extender {url}")]
    Write {
        url: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It could not be reached, or the connection ended.
    #[error("ask extender {url}")]
    Send {
        url: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// No answer.
    #[error("extender {url} has not answered within {timeout:?}")]
    Slow { url: String, timeout: Duration },
    /// It has refused to answer.
    #[error("failed {verb} with extender at URL {url}, code {code}")]
    Code {
        verb: String,
        url: String,
        code: u16,
    },
    /// It says more than can be meant.
    #[error("the answer of extender {url} is longer than {limit} bytes")]
    Long { url: String, limit: usize },
    /// It does not say what it is asked.
    #[error("read the answer of extender {url}")]
    Read {
        url: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It says that it has failed.
    #[error("{0}")]
    Said(String),
    /// It lets a node take the pod that it was not asked about.
    #[error(
        "extender {extender:?} claims a filtered node {node:?} which is not found in the input node list"
    )]
    StrangeNode { extender: String, node: String },
    /// A score is none.
    #[error(
        "extender {extender:?} gives node {node:?} the score {score}, which is not in 0..={MAX_EXTENDER_PRIORITY}"
    )]
    Score {
        extender: String,
        node: String,
        score: i64,
    },
    /// It wants pods to end on a node that it was not asked about.
    #[error(
        "extender {extender:?} claims to preempt pods on node {node:?}, which is not among the candidates"
    )]
    StrangeCandidate { extender: String, node: String },
    /// It wants a pod to end that is not there.
    #[error(
        "extender: {extender} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
    )]
    StrangeVictim {
        extender: String,
        node: String,
        uid: String,
    },
    /// It wants a pod to end for one that is not above it.
    #[error(
        "extender: {extender} claims to preempt pod (UID: {uid}) on node: {node}, whose priority is not lower"
    )]
    EqualVictim {
        extender: String,
        node: String,
        uid: String,
    },
    /// It wants nobody to end.
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictim(String),
    /// The scheduler ends.
    #[error("the scheduler stops")]
    Stopped,
    /// Nothing else could go on meanwhile.
    #[error("extenders cannot be waited for on a runtime of one thread")]
    OneThread,
}
