//! Pods that a Permit plugin holds back: their place is assumed, and their binding waits.
//!
//! Source: `pkg/scheduler/framework/runtime/waiting_pods_map.go` at v1.37.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    plugin_name::{PluginName, PluginSet},
    status::Status,
};
use crate::pod_info::PodUid;

/// The pods that wait for Permit plugins. Shared by the scheduler's task, which puts pods in, and
/// the tasks of their bindings, which wait.
#[derive(Default)]
pub(crate) struct WaitingPods {
    pods: Mutex<HashMap<PodUid, Held>>,
}

struct Held {
    by: PluginSet,
    verdict: oneshot::Sender<Status>,
}

/// What the binding of a pod waits for.
pub(crate) struct Permission {
    verdict: oneshot::Receiver<Status>,
    /// When each plugin that holds the pod back gives up.
    timeouts: Vec<(PluginName, Duration)>,
}

impl WaitingPods {
    /// Holds a pod back for the plugins that have asked for it.
    pub(super) fn hold(&self, uid: &PodUid, timeouts: Vec<(PluginName, Duration)>) -> Permission {
        let (sender, verdict) = oneshot::channel();
        let by = timeouts.iter().map(|(plugin, _)| *plugin).collect();
        self.lock().insert(
            uid.clone(),
            Held {
                by,
                verdict: sender,
            },
        );
        Permission { verdict, timeouts }
    }

    /// `plugin` holds the pod back no more; with the last of them its binding goes on.
    pub(super) fn allow(&self, uid: &PodUid, plugin: PluginName) {
        let mut pods = self.lock();
        let Some(held) = pods.get_mut(uid) else {
            return;
        };
        held.by.remove(plugin);
        if held.by.is_empty()
            && let Some(held) = pods.remove(uid)
        {
            // Who waits may have given up at this moment.
            let _ = held.verdict.send(Status::SUCCESS);
        }
    }

    /// The pod is not bound.
    pub(super) fn reject(&self, uid: &PodUid, verdict: Status) {
        if let Some(held) = self.lock().remove(uid) {
            let _ = held.verdict.send(verdict);
        }
    }

    /// Waits until the pod is allowed, rejected or has waited too long.
    pub(super) async fn wait(&self, uid: &PodUid, permission: Permission) -> Status {
        let Some((plugin, timeout)) = permission
            .timeouts
            .into_iter()
            .min_by_key(|(_, timeout)| *timeout)
        else {
            return Status::SUCCESS;
        };
        match tokio::time::timeout(timeout, permission.verdict).await {
            Ok(Ok(verdict)) => verdict,
            _ => {
                self.lock().remove(uid);
                Status::unschedulable(vec![
                    format!("timeout after {} s of waiting", timeout.as_secs()).into(),
                ])
                .by(plugin)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Held>> {
        // What a panicking holder may have left is one entry more or less.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
