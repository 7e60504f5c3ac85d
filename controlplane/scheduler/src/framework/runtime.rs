//! Asks the plugins of a profile, in their order, and makes one answer of theirs.
//!
//! Source: `pkg/scheduler/framework/runtime/framework.go` at v1.37.

mod binding;
mod explain;

use std::sync::Arc;

pub(crate) use self::explain::Scores;
use super::{
    cluster_event::{Actions, ClusterEvent, QueueingHint},
    cycle_state::CycleState,
    extender::MAX_EXTENDER_PRIORITY,
    extenders::Extenders,
    plugin::{
        Bind, EnqueueExtensions, Failed, Filter, Filters, MAX_NODE_SCORE, NodeNames, Nomination,
        Permit, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, Reserve, Score,
    },
    plugin_name::{PluginName, PluginSet},
    status::{Code, Status},
    waiting_pods::{Permission, WaitingPods},
};
use crate::{
    node_info::NodeInfo,
    pod_info::{PodInfo, PodUid},
    snapshot::Snapshot,
};

/// What a score of an extender is among those of plugins.
const OF_EXTENDERS: i64 = MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY;

/// The plugins of a profile: a list an extension point.
#[derive(Default)]
pub(crate) struct Framework {
    pub(crate) pre_enqueue: Vec<Box<dyn PreEnqueue>>,
    pub(crate) pre_filter: Vec<Box<dyn PreFilter>>,
    pub(crate) filter: Vec<Box<dyn Filter>>,
    pub(crate) post_filter: Vec<Box<dyn PostFilter>>,
    pub(crate) pre_score: Vec<Box<dyn PreScore>>,
    pub(crate) score: Vec<Scored>,
    pub(crate) reserve: Vec<Box<dyn Reserve>>,
    pub(crate) permit: Vec<Box<dyn Permit>>,
    pub(crate) pre_bind: Vec<Box<dyn PreBind>>,
    pub(crate) bind: Vec<Box<dyn Bind>>,
    pub(crate) post_bind: Vec<Box<dyn PostBind>>,
    pub(crate) enqueue_extensions: Vec<Box<dyn EnqueueExtensions>>,
    pub(crate) waiting: WaitingPods,
    /// Who is asked after the plugins, whatever the profile.
    pub(crate) extenders: Arc<Extenders>,
    /// Of which share of the nodes one that fits is enough; `None`: by how many there are.
    pub(crate) percent_of_nodes: Option<usize>,
}

/// A plugin that scores nodes, and how much it counts beside the others.
pub(crate) struct Scored {
    pub(crate) plugin: Box<dyn Score>,
    pub(crate) weight: i64,
}

impl std::fmt::Debug for Framework {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Framework").finish_non_exhaustive()
    }
}

impl Framework {
    /// Whether the pod may be tried: the first plugin that says no.
    pub(crate) fn run_pre_enqueue(&self, pod: &PodInfo) -> Status {
        first_failure(
            self.pre_enqueue
                .iter()
                .map(|plugin| plugin.pre_enqueue(pod).by(plugin.name())),
        )
    }

    /// What is known before any node is looked at: the only nodes that come into question, by what
    /// all plugins say.
    ///
    /// # Errors
    /// The refusal or the failure, and a refusal if what plugins say leaves no node.
    pub(crate) fn run_pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'_>,
    ) -> Result<Option<Narrowed>, Status> {
        let mut narrowed: Option<Narrowed> = None;
        let mut refusal = None;
        for plugin in &self.pre_filter {
            let (names, status) = plugin.pre_filter(cycle, pod, snapshot);
            match status.code() {
                Code::Success => {}
                Code::Skip => cycle.skip_filter.insert(plugin.name()),
                // Others may say that no end of a pod helps: all are heard.
                Code::Unschedulable => refusal = Some(status.by(plugin.name())),
                Code::UnschedulableAndUnresolvable | Code::Error | Code::Wait(_) => {
                    return Err(status.by(plugin.name()));
                }
            }
            if let Some(names) = names {
                narrowed = Some(match narrowed {
                    None => Narrowed {
                        names,
                        by: vec![plugin.name()],
                    },
                    Some(mut before) => {
                        before.names.retain(|name| names.contains(name));
                        before.by.push(plugin.name());
                        before
                    }
                });
            }
        }
        match (refusal, narrowed) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(narrowed)) if narrowed.names.is_empty() => Err(narrowed.leaves_none()),
            (None, narrowed) => Ok(narrowed),
        }
    }

    /// What is to be done to make room for the pod, and in words why nothing is.
    pub(crate) fn run_post_filter(&self, failed: &mut Failed<'_>) -> (Nomination, String) {
        let mut told: Vec<String> = Vec::new();
        let mut nomination = Nomination::default();
        for plugin in &self.post_filter {
            let (says, status) = plugin.post_filter(failed);
            if status.is_success() {
                return (says, String::new());
            }
            if !matches!(says, Nomination::Unchanged) {
                nomination = says;
            }
            told.push(status.message());
            if status.code() == Code::Error {
                break;
            }
        }
        (nomination, told.join(", "))
    }

    /// The weighted sum of all scores, in the order of `feasible`.
    ///
    /// # Errors
    /// A plugin has failed.
    pub(crate) fn run_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Result<Vec<i64>, Status> {
        self.run_pre_score(cycle, pod, feasible, snapshot)?;
        let mut totals = vec![0; feasible.len()];
        let mut scores = Vec::with_capacity(feasible.len());
        for Scored { plugin, weight } in self
            .score
            .iter()
            .filter(|one| !cycle.skips_score(one.plugin.name()))
        {
            scores.clear();
            scores.extend(feasible.iter().map(|node| plugin.score(cycle, pod, node)));
            plugin.normalize(pod, feasible, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += score * weight;
            }
        }
        if let Some(sums) = self.extenders.prioritize(pod, feasible) {
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = total.saturating_add(sum.saturating_mul(OF_EXTENDERS));
            }
        }
        Ok(totals)
    }

    /// Lets the plugins look at all feasible nodes, before they score each.
    fn run_pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Result<(), Status> {
        for plugin in &self.pre_score {
            let status = plugin.pre_score(cycle, pod, feasible, snapshot);
            match status.code() {
                Code::Success => {}
                Code::Skip => cycle.skip_score.insert(plugin.name()),
                _ => return Err(status.by(plugin.name())),
            }
        }
        Ok(())
    }

    /// Reserves what the cache does not count. If one plugin cannot, all give back.
    pub(crate) fn run_reserve(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        for plugin in &self.reserve {
            let status = plugin.reserve(cycle, pod, node);
            if !status.is_success() {
                self.run_unreserve(cycle, pod, &node.name);
                return status.by(plugin.name());
            }
        }
        Status::SUCCESS
    }

    /// Gives back what was reserved, in the reverse order.
    pub(crate) fn run_unreserve(&self, cycle: &mut CycleState, pod: &PodInfo, node: &str) {
        self.reserve
            .iter()
            .rev()
            .for_each(|plugin| plugin.unreserve(cycle, pod, node));
    }

    /// Whether the pod may be bound, and what its binding has to wait for.
    ///
    /// # Errors
    /// The first refusal or failure.
    pub(crate) fn run_permit(
        &self,
        cycle: &CycleState,
        pod: &PodInfo,
        node: &str,
    ) -> Result<Option<Permission>, Status> {
        let mut timeouts = Vec::new();
        for plugin in &self.permit {
            let status = plugin.permit(cycle, pod, node);
            match status.code() {
                Code::Success | Code::Skip => {}
                Code::Wait(timeout) => timeouts.push((plugin.name(), timeout)),
                _ => return Err(status.by(plugin.name())),
            }
        }
        Ok((!timeouts.is_empty()).then(|| self.waiting.hold(&pod.uid, timeouts)))
    }

    /// A plugin that holds the pod back lets it go.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no plugin of the default profile holds pods back")
    )]
    pub(crate) fn allow_waiting_pod(&self, uid: &PodUid, plugin: PluginName) {
        self.waiting.allow(uid, plugin);
    }

    /// A pod that may be waiting for its permission is not to be bound.
    pub(crate) fn reject_waiting_pod(&self, uid: &PodUid, reason: &'static str) {
        self.waiting
            .reject(uid, Status::unschedulable(vec![reason.into()]));
    }

    /// Whether `event` may let a pod fit that `refused` have refused. One that nobody has refused
    /// is always worth it, and so is one that asks for much: many wait, events are many, and an
    /// attempt comes after a back-off.
    pub(crate) fn is_worth_requeuing(
        &self,
        pod: &PodInfo,
        refused: PluginSet,
        event: &ClusterEvent<'_>,
    ) -> bool {
        let actions = Actions::of(event);
        let helps = |plugin: &dyn EnqueueExtensions| {
            refused.contains(plugin.name())
                && plugin.events().intersects(actions)
                && (pod.asks_much || plugin.hint(pod, event) == QueueingHint::Queue)
        };
        // Nobody knows what helps one that an extender has refused: everything may.
        refused.is_empty()
            || refused.contains(PluginName::Extender)
            || self
                .enqueue_extensions
                .iter()
                .any(|plugin| helps(plugin.as_ref()))
    }
}

impl Filters for Framework {
    fn run_filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        for plugin in &self.filter {
            if cycle.skips_filter(plugin.name()) {
                continue;
            }
            let status = plugin.filter(cycle, pod, node);
            if !status.is_success() {
                return status.by(plugin.name());
            }
        }
        Status::SUCCESS
    }

    fn run_filter_anew(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot<'_>) -> Status {
        let mut cycle = CycleState::default();
        match self.run_pre_filter(&mut cycle, pod, snapshot) {
            Err(status) => status,
            Ok(Some(narrowed)) if !narrowed.names.contains(&node.name) => {
                Status::unresolvable(vec![narrowed.reason().into()])
            }
            Ok(_) => self.run_filter(&cycle, pod, node),
        }
    }

    fn depend_on_pods(&self, cycle: &CycleState) -> bool {
        let mut asked = self.filter.iter();
        asked.any(|plugin| plugin.depends_on_pods() && !cycle.skips_filter(plugin.name()))
    }
}

/// The nodes that PreFilter plugins have left, and which plugins.
pub(crate) struct Narrowed {
    pub(crate) names: NodeNames,
    pub(crate) by: Vec<PluginName>,
}

impl Narrowed {
    /// Why a node that is not among them was not looked at.
    pub(crate) fn reason(&self) -> String {
        format!("node(s) didn't satisfy plugin(s) [{}]", self.plugins())
    }

    fn leaves_none(&self) -> Status {
        let reason = match self.by.as_slice() {
            [plugin] => format!("node(s) didn't satisfy plugin {plugin}"),
            _ => format!(
                "node(s) didn't satisfy plugin(s) [{}] simultaneously",
                self.plugins()
            ),
        };
        let status = Status::unresolvable(vec![reason.into()]);
        self.by
            .first()
            .map_or(Status::SUCCESS, |plugin| status.by(*plugin))
    }

    fn plugins(&self) -> String {
        self.by
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn first_failure(mut answers: impl Iterator<Item = Status>) -> Status {
    answers
        .find(|status| !status.is_success())
        .unwrap_or(Status::SUCCESS)
}

#[cfg(test)]
mod tests;
