//! Claims that ask for more than they have: who is waited for.
//!
//! No volume is made larger here: those of CSI drivers are by the driver's own controller, as
//! upstream, and directories of nodes by their provisioner, `local_path`.
//!
//! Source: `pkg/controller/volume/expand/expand_controller.go` at v1.37.

use std::sync::Arc;

use coracle_api::volume::{requested, storage};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    event_recorder::component::ComponentRecorder,
};

const COMPONENT: &str = "volume_expand";

/// The controller; its state is in a cache.
pub(super) struct ExpandController {
    recorder: ComponentRecorder,
    claims: Arc<Cache<PersistentVolumeClaim>>,
}

impl ExpandController {
    /// Says what it reads and what wakes it.
    pub(super) fn setup(manager: &mut Manager, context: &Context) {
        let name = "persistentvolume-expander-controller";
        let mut controller = Builder::managed_by(manager, name, COMPONENT);
        let this = Arc::new(Self {
            recorder: context.recorder.of(COMPONENT),
            claims: controller.reads(),
        });
        controller.on_change(&this, Self::changed);
        controller.complete(this);
    }

    /// Told once for each time that a claim grows, and once after a start.
    #[allow(clippy::unused_self, reason = "the shape of a handler")]
    fn changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        let has_grown = match change {
            Change::Added(claim) => asks_for_more(claim),
            Change::Updated { old, new } => asks_for_more(new) && requested(new) > requested(old),
            Change::Deleted(_) => false,
        };
        if has_grown {
            queue.add(Key::of(change.latest().as_ref()));
        }
    }
}

impl Reconciler for ExpandController {
    async fn reconcile(&self, key: Key) -> Outcome {
        if let Some(claim) = self.claims.get(&key).filter(|claim| asks_for_more(claim)) {
            let message = "waiting for an external controller to expand this PVC";
            self.recorder.normal(&*claim, "ExternalExpanding", message);
        }
        Ok(None)
    }
}

/// Bound, and with less than it asks for.
fn asks_for_more(claim: &PersistentVolumeClaim) -> bool {
    let Some(status) = &claim.status else {
        return false;
    };
    let has = storage(status.capacity.as_ref()).unwrap_or_default();
    status.phase.as_deref() == Some("Bound") && requested(claim) > has
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bound_claim_that_asks_for_more_than_it_has_waits() {
        for (phase, asked, has, expect) in [
            ("Bound", "2Gi", "1Gi", true),
            ("Bound", "1Gi", "1Gi", false),
            ("Bound", "1Gi", "2Gi", false),
            ("Pending", "2Gi", "1Gi", false),
            ("Lost", "2Gi", "1Gi", false),
        ] {
            let spec = json!({"resources": {"requests": {"storage": asked}}});
            let status = json!({"phase": phase, "capacity": {"storage": has}});
            let claim = json!({"metadata": {}, "spec": spec, "status": status});
            let claim = serde_json::from_value(claim).unwrap();
            assert_eq!(asks_for_more(&claim), expect, "{phase} {asked} {has}");
        }
    }
}
