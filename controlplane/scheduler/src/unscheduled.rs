//! Why a pod has no node.

use k8s_openapi::api::core::v1::Pod;

/// Why a pod has no node, as its condition says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unscheduled {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// What kind of reason that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It fits nowhere.
    Unschedulable,
    /// It could not be found out, or the binding failed.
    SchedulerError,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

impl Unscheduled {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// What a pod's condition says, if a scheduler has said something.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
        let condition = conditions.find(|condition| condition.type_ == "PodScheduled")?;
        let said = condition.reason.as_deref();
        let reason = [Reason::Unschedulable, Reason::SchedulerError]
            .into_iter()
            .find(|reason| condition.status == "False" && said == Some(reason.as_str()))?;
        let message = condition.message.clone().unwrap_or_default();
        Some(Self { reason, message })
    }
}
