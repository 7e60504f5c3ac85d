//! What each plugin says by itself, for people: where scheduling needs the first refusal and a sum.

use super::{Framework, OF_EXTENDERS, Scored};
use crate::{
    framework::{CycleState, PluginName, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// What one plugin says about all feasible nodes, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scores {
    pub(crate) plugin: PluginName,
    pub(crate) weight: i64,
    /// Out of 100, or `None` if it has nothing to say about the pod. Those of all extenders are one
    /// sum, with their weights in it.
    pub(crate) scores: Option<Vec<i64>>,
}

impl Framework {
    /// Everything that speaks against a node, not only the first.
    pub(crate) fn explain_filters(
        &self,
        cycle: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Vec<Status> {
        let asked = self.filter.iter();
        let asked = asked.filter(|plugin| !cycle.skips_filter(plugin.name()));
        asked
            .map(|plugin| plugin.filter(cycle, pod, node).by(plugin.name()))
            .filter(|status| !status.is_success())
            .collect()
    }

    /// # Errors
    /// A plugin has failed.
    pub(crate) fn explain_scores(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Result<Vec<Scores>, Status> {
        self.run_pre_score(cycle, pod, feasible, snapshot)?;
        let cycle = &*cycle;
        let explain = |Scored { plugin, weight }: &Scored| {
            let scores = (!cycle.skips_score(plugin.name())).then(|| {
                let scores = feasible.iter().map(|node| plugin.score(cycle, pod, node));
                let mut scores: Vec<i64> = scores.collect();
                plugin.normalize(pod, feasible, &mut scores);
                scores
            });
            Scores {
                plugin: plugin.name(),
                weight: *weight,
                scores,
            }
        };
        let mut explained: Vec<Scores> = self.score.iter().map(explain).collect();
        if let Some(sums) = self.extenders.prioritize(pod, feasible) {
            let scale = |sum: i64| sum.saturating_mul(OF_EXTENDERS);
            explained.push(Scores {
                plugin: PluginName::Extender,
                weight: 1,
                scores: Some(sums.into_iter().map(scale).collect()),
            });
        }
        Ok(explained)
    }
}
