//! The verb GC: plugins give back what belongs to attachments that are no more, also what nobody
//! here remembers.
//!
//! Source: containernetworking/cni `SPEC.md` at 1.1, `GCNetworkList` in `libcni/api.go`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{IFNAME, Plugins, conflist};
use crate::{
    network::{NetworkError, cni::capabilities::Capabilities},
    runtime::types::SandboxId,
};

/// For one plugin: whoever waits for all of them does not wait for one that hangs alone.
const LIMIT: Duration = Duration::from_secs(10);

impl Plugins {
    /// Asks every plugin, whatever the others answer. Nothing where the network's version has no
    /// GC, where it says `disableGC`, or without a configuration.
    pub(super) async fn collect(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        let Ok(list) = self.list().await else {
            return Ok(());
        };
        if list.disable_gc || !conflist::knows_gc_and_status(&list.cni_version) {
            return Ok(());
        }
        let mut first = Ok(());
        for index in 0..list.plugins.len() {
            let conf = gc_conf(&list, index, valid);
            let kind = conflist::plugin_type(&list, index);
            first = first.and(self.call(kind, "GC", &[], &conf, LIMIT).await.map(drop));
        }
        first
    }
}

fn gc_conf(list: &conflist::NetworkList, index: usize, valid: &[SandboxId]) -> Value {
    let attachments: Vec<Value> = valid
        .iter()
        .map(|id| json!({"containerID": id.0, "ifname": IFNAME}))
        .collect();
    let mut conf = conflist::plugin_conf(list, index, None, &Capabilities::new());
    // The second name is that of the specification's first text.
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        conf[key] = attachments.clone().into();
    }
    conf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_hears_which_attachments_are_in_use() {
        let text = br#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"a"}]}"#;
        let list = conflist::parse(text).unwrap();
        let valid = [SandboxId("one".into())];
        let attachments = json!([{"containerID": "one", "ifname": "eth0"}]);
        assert_eq!(
            gc_conf(&list, 0, &valid),
            json!({
                "type": "a", "name": "n", "cniVersion": "1.1.0",
                "cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments,
            })
        );
        // An empty list is told, too: then nothing is in use.
        let none = gc_conf(&list, 0, &[]);
        assert_eq!(none["cni.dev/valid-attachments"], json!([]));
    }
}
