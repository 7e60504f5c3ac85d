//! The framework: what plugins may say about pods and nodes, and at which point they are asked.
//!
//! ```text
//! PreEnqueue > queue > PreFilter > Filter, a node > PostFilter, if none is left
//!                                  > PreScore > Score, a node > NormalizeScore > Reserve > Permit    one pod at a time
//!                                                            > PreBind > Bind > PostBind             beside the others
//! ```
//!
//! | module | what |
//! |---|---|
//! | `plugin` | the extension points, a trait each |
//! | `point` | the extension points by name |
//! | `plugin_name` | the plugins' names, and sets of them |
//! | `status` | what a plugin answers |
//! | `cycle_state` | what the plugins of one attempt keep for one another |
//! | `diagnosis` | why a pod fits nowhere |
//! | `cluster_event` | what may let a pod fit that did not, and the hints about it |
//! | `runtime` | asks the plugins of a profile, in their order |
//! | `waiting_pods` | pods that a Permit plugin holds back |
//! | `extender` | what a process beside the scheduler is asked, and what it answers |
//! | `extenders` | asks those that have a say about a pod |
//!
//! Source: `k8s.io/kube-scheduler/framework`, `pkg/scheduler/framework` at v1.37, cut down to what
//! is used.

mod cluster_event;
mod cycle_state;
mod diagnosis;
mod extender;
mod extenders;
mod plugin;
mod plugin_name;
mod point;
mod runtime;
mod status;
mod waiting_pods;

pub(crate) use self::{
    cluster_event::{Actions, ClusterEvent, QueueingHint},
    cycle_state::CycleState,
    diagnosis::Diagnosis,
    extender::{Asked, Candidate, Extender, ExtenderError, ExtenderVerb, Filtered, NamedVictims},
    extenders::Extenders,
    plugin::{
        Bind, EnqueueExtensions, Failed, Filter, Filters, MAX_NODE_SCORE, NodeNames, Nomination,
        Plugin, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, Reserve, Score,
        normalize_by_max,
    },
    plugin_name::{PluginName, PluginSet},
    point::Point,
    runtime::{Framework, Scored, Scores},
    status::{Code, Reason, Status},
    waiting_pods::Permission,
};
