//! Why a pod fits nowhere, by what the plugins say about all nodes.
//!
//! Source: `FitError`, `Diagnosis` in `pkg/scheduler/framework/types.go` at v1.37.

use std::{collections::BTreeMap, fmt};

use super::{
    plugin_name::PluginSet,
    status::{Code, Reason, Status},
};

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    nodes_total: usize,
    /// By a PreFilter plugin, about all nodes at once.
    pre_filter: Option<String>,
    reasons: BTreeMap<Reason, usize>,
    /// What a PostFilter plugin has done about it.
    post_filter: Option<String>,
    /// All that have said no about any node.
    pub(crate) refused_by: PluginSet,
    /// Where in the snapshot the nodes are that could take the pod if some of their pods ended.
    resolvable: Vec<usize>,
}

impl Diagnosis {
    pub(crate) fn of(nodes_total: usize) -> Self {
        Self {
            nodes_total,
            ..Self::default()
        }
    }

    /// A node, at this position of the snapshot, cannot take the pod.
    pub(crate) fn add(&mut self, position: usize, status: &Status) {
        self.refused_by.extend(status.plugin());
        if status.code() == Code::Unschedulable {
            self.resolvable.push(position);
        }
        for reason in status.reasons() {
            self.add_many(reason.clone(), 1);
        }
    }

    /// So many nodes more cannot take the pod for this reason.
    pub(crate) fn add_many(&mut self, reason: Reason, nodes: usize) {
        if nodes > 0 {
            *self.reasons.entry(reason).or_insert(0) += nodes;
        }
    }

    /// A PreFilter plugin has said no about all nodes.
    pub(crate) fn set_pre_filter(&mut self, status: &Status) {
        self.refused_by.extend(status.plugin());
        self.pre_filter = Some(status.message());
        if status.code() == Code::Unschedulable {
            self.resolvable = (0..self.nodes_total).collect();
        }
    }

    /// Whether no node was asked because a PreFilter plugin has said no.
    pub(crate) fn is_of_pre_filter(&self) -> bool {
        self.pre_filter.is_some()
    }

    /// What was done about it; nothing is said of nothing.
    pub(crate) fn set_post_filter(&mut self, message: String) {
        self.post_filter = Some(message).filter(|message| !message.is_empty());
    }

    /// Where the nodes are that could take the pod if some of their pods ended.
    pub(crate) fn resolvable(&self) -> &[usize] {
        &self.resolvable
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nodes_total,
            pre_filter,
            reasons,
            post_filter,
            ..
        } = self;
        if *nodes_total == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{nodes_total} nodes are available:")?;
        if let Some(message) = pre_filter {
            write!(f, " {message}.")?;
        } else if !reasons.is_empty() {
            // Upstream sorts the whole texts, count included.
            let mut texts: Vec<String> = reasons
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            texts.sort();
            write!(f, " {}.", texts.join(", "))?;
        }
        post_filter
            .iter()
            .try_for_each(|message| write!(f, " {message}"))
    }
}
