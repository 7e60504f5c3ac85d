//! The verb STATUS: whether plugins could attach a pod now. Asked again and again, beside all else,
//! because the node's heartbeat must not wait for plugins.
//!
//! Source: containernetworking/cni `SPEC.md` at 1.1, `GetStatusNetworkList` in `libcni/api.go`. The
//! codes 50 (no pod can be attached) and 51 (and those that are may have lost their network) are
//! told as they come: both make the node not ready.

use std::time::Duration;

use coracle_telemetry::ErrorChain;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Plugins, Source, conflist};
use crate::network::{NetworkError, cni::capabilities::Capabilities};

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(5);
/// For all plugins' answers together.
const LIMIT: Duration = Duration::from_secs(10);

impl Plugins {
    /// Asks until `shutdown`, if there can be anybody to ask.
    pub(in crate::network::cni) async fn keep_status(&self, shutdown: CancellationToken) {
        if matches!(self.source, Source::Past) {
            return shutdown.cancelled().await;
        }
        let ask = async {
            loop {
                self.ask_status().await;
                sleep(PAUSE).await;
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(ask).await;
    }

    async fn ask_status(&self) {
        let answer = match timeout(LIMIT, self.try_status()).await {
            Ok(answer) => answer.map_err(|error| ErrorChain(&error).to_string()),
            Err(_) => Err(format!("STATUS has no answer within {} s", LIMIT.as_secs())),
        };
        *self.status.lock() = Some(answer);
    }

    /// The first error counts: what comes later in a chain depends on what comes before.
    async fn try_status(&self) -> Result<(), NetworkError> {
        // Without a configuration there is nobody to ask, which `ready` says by itself.
        let Ok(list) = self.list().await else {
            return Ok(());
        };
        if !conflist::knows_gc_and_status(&list.cni_version) {
            return Ok(());
        }
        for index in 0..list.plugins.len() {
            let conf = conflist::plugin_conf(&list, index, None, &Capabilities::new());
            let kind = conflist::plugin_type(&list, index);
            self.call(kind, "STATUS", &[], &conf, LIMIT).await?;
        }
        Ok(())
    }

    /// What the plugins of `list` said last, where they are asked.
    pub(super) fn told(&self, list: &conflist::NetworkList) -> Result<(), NetworkError> {
        if !conflist::knows_gc_and_status(&list.cni_version) {
            return Ok(());
        }
        let why = match &*self.status.lock() {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why.clone(),
            None => "its plugins were not asked yet (STATUS)".to_owned(),
        };
        Err(NetworkError::NotReady { why })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    /// A network whose one plugin answers STATUS by `script`.
    fn network(dir: &Path, version: &str, script: &str) -> Plugins {
        let plugin = dir.join("fake");
        fs::write(&plugin, format!("#!/bin/sh\ncat >/dev/null\n{script}\n")).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        let conf =
            format!(r#"{{"cniVersion":"{version}","name":"n","plugins":[{{"type":"fake"}}]}}"#);
        fs::write(dir.join("1.conflist"), conf).unwrap();
        Plugins::new(dir.to_owned(), &[dir.to_owned()], &dir.join("state"))
    }

    #[tokio::test]
    async fn a_plugin_that_cannot_attach_makes_the_network_not_ready() {
        let dir = tempfile::tempdir().unwrap();
        let no = r#"echo '{"cniVersion":"1.1.0","code":50,"msg":"no datastore"}'; exit 1"#;
        let plugins = network(dir.path(), "1.1.0", no);
        let why = plugins.ready().unwrap_err().to_string();
        assert!(why.contains("not asked yet"), "{why}");
        plugins.ask_status().await;
        let why = plugins.ready().unwrap_err().to_string();
        assert!(why.contains("no datastore") && why.contains("50"), "{why}");
        network(dir.path(), "1.1.0", r#"test "$CNI_COMMAND" = STATUS"#);
        plugins.ask_status().await;
        plugins.ready().unwrap();
    }

    #[tokio::test]
    async fn networks_of_before_1_1_are_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let plugins = network(dir.path(), "1.0.0", "exit 1");
        plugins.ready().unwrap();
        plugins.ask_status().await;
        plugins.ready().unwrap();
    }
}
