//! A recorder for the events of one component, as client-go's broadcaster makes them
//! (`NewRecorder`).

use kube::Resource;

use super::{EventRecorder, EventType};

/// An [`EventRecorder`] for what one component tells.
#[derive(Debug, Clone)]
pub struct ComponentRecorder {
    recorder: EventRecorder,
    component: &'static str,
}

impl ComponentRecorder {
    /// Queues an event about `object` that tells of no trouble. Never blocks.
    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(object, EventType::Normal, reason, message.into());
    }

    /// Queues an event about `object` that tells of trouble. Never blocks.
    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(object, EventType::Warning, reason, message.into());
    }

    fn record<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.recorder
            .record(self.component, object, kind, reason, message);
    }
}

impl EventRecorder {
    /// For what `component` tells.
    #[must_use]
    pub fn of(&self, component: &'static str) -> ComponentRecorder {
        ComponentRecorder {
            recorder: self.clone(),
            component,
        }
    }
}
