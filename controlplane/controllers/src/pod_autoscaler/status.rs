//! The status of an autoscaler as it is being made, and what is told about it. Pure.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (setCondition, setStatus) at v1.37.

use coracle_client::event_recorder::EventType;
use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
        MetricStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

/// Whether the target's size can be read and written.
pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
/// Whether a size can be computed.
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
/// Whether the size would be another one if it were allowed to be.
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";

/// An Event to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A status that begins as the one that is there, and the Events to go with it.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) status: HorizontalPodAutoscalerStatus,
    pub(super) events: Vec<Told>,
    generation: Option<i64>,
    now: Time,
}

impl Draft {
    /// Begins with the status that is there.
    pub(super) fn of(hpa: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        Self {
            status: hpa.status.clone().unwrap_or_default(),
            events: Vec::new(),
            generation: hpa.metadata.generation,
            // As it is stored: else what comes back would not be what was written.
            now: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        }
    }

    pub(super) fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(Told {
            kind: EventType::Warning,
            reason,
            message: message.into(),
        });
    }

    pub(super) fn tell(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(Told {
            kind: EventType::Normal,
            reason,
            message: message.into(),
        });
    }

    /// Its time changes with its status alone.
    pub(super) fn condition(
        &mut self,
        kind: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let conditions = self.status.conditions.get_or_insert_default();
        let known = conditions
            .iter()
            .position(|condition| condition.type_ == kind);
        let known = known.unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition {
                type_: kind.to_owned(),
                ..HorizontalPodAutoscalerCondition::default()
            });
            conditions.len() - 1
        });
        let condition = &mut conditions[known];
        let status = if holds { "True" } else { "False" };
        if condition.status != status {
            condition.last_transition_time = Some(self.now.clone());
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
        condition.observed_generation = self.generation;
    }

    /// The target's scale cannot be read.
    pub(super) fn no_scale(&mut self, why: &str) {
        self.warn("FailedGetScale", why);
        let message =
            format!("the HPA controller was unable to get the target's current scale: {why}");
        self.condition(ABLE_TO_SCALE, false, "FailedGetScale", message);
    }

    /// What was found; `desired` is `None` if that could not be computed or carried out.
    pub(super) fn settle(
        &mut self,
        current: i32,
        desired: Option<i32>,
        metrics: Option<Vec<MetricStatus>>,
    ) {
        self.status.current_replicas = Some(current);
        if let Some(desired) = desired {
            self.status.desired_replicas = desired;
        }
        self.status.current_metrics = metrics;
        self.status.observed_generation = self.generation;
    }

    /// The target has another size now.
    pub(super) fn rescaled(&mut self) {
        self.status.last_scale_time = Some(self.now.clone());
    }
}
