//! What a Node's status says: which volumes the node may mount.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::{
    AttachDetachController,
    plan::{self, Fate},
    volume_name,
};
use crate::{
    cache::Key,
    controller::{ReconcileError, or_event},
    writes::Write,
};

impl AttachDetachController {
    /// Which volumes the node may mount.
    pub(super) async fn reconcile_node(&self, node: &Node) -> Result<(), ReconcileError> {
        let own = node.metadata.name.as_deref().unwrap_or_default();
        let (mut names, mut attached) = (BTreeSet::new(), Vec::new());
        for attachment in self.of_node.get(own) {
            let is_attached = attachment.status.as_ref().is_some_and(|it| it.attached);
            let volume = volume_name(&attachment);
            let volume = volume.and_then(|name| self.volumes.get(&Key::new("", name)));
            let Some(volume) = volume.filter(|_| is_attached) else {
                continue;
            };
            let Some(name) = plan::source(&volume).map(plan::unique_name) else {
                continue;
            };
            let users = self.users(&volume);
            if matches!(
                self.fate(&attachment, &name, &users),
                Fate::Keep | Fate::Wait(_)
            ) {
                attached.push((name.clone(), volume, users));
                names.insert(name);
            }
        }
        let before: BTreeSet<String> = plan::reported(node).map(str::to_owned).collect();
        if names == before {
            return Ok(());
        }
        let list: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "devicePath": ""}))
            .collect();
        let patch = json!({"status": {"volumesAttached": list}});
        let call = "write which volumes a node may mount";
        let write = Write::to(&self.client, node, call).if_unchanged();
        if or_event(write.patch_status(patch).await)?
            .flatten()
            .is_none()
        {
            return Ok(());
        }
        for (_, volume, users) in attached.iter().filter(|(name, ..)| !before.contains(name)) {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let message = format!("AttachVolume.Attach succeeded for volume {name:?} ");
            for pod in users.get(own).into_iter().flatten() {
                self.recorder
                    .normal(&**pod, "SuccessfulAttachVolume", message.clone());
            }
        }
        Ok(())
    }
}
