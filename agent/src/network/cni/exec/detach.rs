//! DEL, and the collection of attachments whose sandboxes are gone.
//!
//! Whoever asks does not wait for ever, and a plugin may hang. So time is shared: each plugin of a
//! chain has its part of what is left, and one that uses it up keeps none of the others from its
//! DEL.

use std::time::Duration;

use coracle_telemetry::ErrorChain;
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{Plugins, cache::Cached, conflist, part_of};
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetworkRequest, cni::capabilities},
    runtime::types::SandboxId,
};

/// For all plugins of one attachment: less than the runtime waits for a sandbox' network to go.
const DETACH: Duration = Duration::from_secs(50);
/// The same for an attachment that nobody waits for: there may be many.
const COLLECT: Duration = Duration::from_secs(15);
/// So many of those at a time.
const AT_ONCE: usize = 8;

impl Plugins {
    pub(in crate::network::cni) async fn del(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<(), NetworkError> {
        match self.cache.get(&request.sandbox_id).await {
            Some(cached) => self.del_cached(&request.sandbox_id, cached, DETACH).await,
            None => {
                self.del_forgotten(request).await;
                Ok(())
            }
        }
    }

    /// What is not remembered was never attached, was detached before, or its record was lost: DEL
    /// knows. Its failure must not keep a sandbox that may never have had a network.
    async fn del_forgotten(&self, request: &PodNetworkRequest) {
        let Ok(list) = self.list().await else {
            return;
        };
        let cached = Cached::new(list, request, capabilities::at_most(request));
        if let Err(error) = self.del_all(&request.sandbox_id, &cached, DETACH).await {
            tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&error), "cannot DEL a sandbox that is not remembered");
        }
    }

    /// DEL for every remembered attachment that is not in `valid`, then the verb GC where the
    /// network has it.
    pub(in crate::network::cni) async fn gc(
        &self,
        valid: &[SandboxId],
    ) -> Result<(), NetworkError> {
        let ids = self.cache.ids().await.into_iter();
        let vanished = ids.filter(|id| !valid.contains(id));
        let detached = stream::iter(vanished).map(async |id| match self.cache.get(&id).await {
            Some(cached) => self.del_cached(&id, cached, COLLECT).await,
            None => Ok(()),
        });
        let together = async |first: Result<(), NetworkError>, next| first.and(next);
        let first = detached
            .buffer_unordered(AT_ONCE)
            .fold(Ok(()), together)
            .await;
        first.and(self.collect(valid).await)
    }

    async fn del_cached(
        &self,
        id: &SandboxId,
        mut cached: Cached,
        limit: Duration,
    ) -> Result<(), NetworkError> {
        // ADD never succeeded with that configuration, perhaps because of it: the sandbox must not
        // hang on it.
        let is_twice = cached.result.is_none();
        let limit = if is_twice { limit / 2 } else { limit };
        let mut done = self.del_all(id, &cached, limit).await;
        if done.is_err()
            && is_twice
            && let Ok(list) = self.list().await
        {
            cached.list = list;
            done = self.del_all(id, &cached, limit).await;
        }
        done?;
        self.cache.remove(id).await
    }

    async fn del_all(
        &self,
        id: &SandboxId,
        cached: &Cached,
        limit: Duration,
    ) -> Result<(), NetworkError> {
        let end = Instant::now() + limit;
        // A namespace that is gone must not stop plugins from cleaning up on the node: then none is
        // named.
        let path = cached.netns.clone();
        let exists = blocking(move || path.exists()).await;
        let netns = exists.then_some(cached.netns.as_path());
        let hears_result = conflist::knows_check(&cached.list.cni_version);
        let result = cached.result.as_ref().filter(|_| hears_result);
        let mut dirs = self.plugin_dirs.clone();
        dirs.extend_from_slice(&cached.plugin_dirs);
        let mut first = Ok(());
        for index in (0..cached.list.plugins.len()).rev() {
            let kind = conflist::plugin_type(&cached.list, index);
            let conf = conflist::plugin_conf(&cached.list, index, result, &cached.capabilities);
            let limit = part_of(end, index + 1);
            let about = cached.about(id, netns);
            let done = Self::call_in(&dirs, (kind, "DEL"), &about, &conf, limit).await;
            first = first.and(done.map(drop));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;
    use crate::{
        network::cni::capabilities::Capabilities,
        runtime::types::{PodDns, PodRef, PodUid},
    };

    fn plugins(dir: &Path, version: &str, scripts: &[(&str, &str)]) -> Plugins {
        let mut list = Vec::new();
        for (name, script) in scripts {
            let plugin = dir.join(name);
            fs::write(
                &plugin,
                format!("#!/bin/sh\ncd {}\n{script}\n", dir.display()),
            )
            .unwrap();
            fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
            list.push(serde_json::json!({"type": name, "capabilities": {"dns": true}}));
        }
        let conf = serde_json::json!({"cniVersion": version, "name": "n", "plugins": list});
        fs::write(dir.join("1.conflist"), conf.to_string()).unwrap();
        Plugins::new(dir.to_owned(), &[dir.to_owned()], &dir.join("state"))
    }

    fn request(id: &str, server: &str) -> PodNetworkRequest {
        PodNetworkRequest {
            sandbox_id: SandboxId(id.into()),
            pod: PodRef {
                namespace: "ns".into(),
                name: "p".into(),
                uid: PodUid("u".into()),
            },
            netns: "/nonexistent".into(),
            port_mappings: Vec::new(),
            dns: PodDns {
                servers: vec![server.to_owned()],
                ..PodDns::default()
            },
            cgroup_parent: String::new(),
            labels: Default::default(),
            annotations: Default::default(),
        }
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_keeps_no_other_from_its_del() {
        let dir = tempfile::tempdir().unwrap();
        let note = "cat >/dev/null; echo $0 >>called";
        let plugins = plugins(
            dir.path(),
            "1.0.0",
            &[("a", note), ("hangs", "exec sleep 600"), ("b", note)],
        );
        let request = request("s", "192.0.2.1");
        let list = plugins.list().await.unwrap();
        let cached = Cached::new(list, &request, Capabilities::new());
        let limit = Duration::from_secs(4);
        let error = plugins.del_all(&request.sandbox_id, &cached, limit).await;
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "run plugin hangs (DEL)");
        let called = fs::read_to_string(dir.path().join("called")).unwrap();
        let names = called.lines().map(|path| path.rsplit_once('/').unwrap().1);
        assert_eq!(names.collect::<Vec<_>>(), ["b", "a"]);
    }

    /// Each waits for the other.
    #[tokio::test]
    async fn vanished_sandboxes_do_not_wait_for_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let script = "cat >/dev/null; >gone-$CNI_CONTAINERID
            until test -e gone-a -a -e gone-b; do sleep 0.05; done";
        let plugins = plugins(dir.path(), "1.0.0", &[("a", script)]);
        for id in ["a", "b", "lives"] {
            let request = request(id, "192.0.2.1");
            let list = plugins.list().await.unwrap();
            let cached = Cached::new(list, &request, Capabilities::new());
            plugins
                .cache
                .put(&request.sandbox_id, &cached)
                .await
                .unwrap();
        }
        let lives = SandboxId("lives".into());
        plugins.gc(std::slice::from_ref(&lives)).await.unwrap();
        assert_eq!(plugins.cache.ids().await, [lives]);
        assert!(!dir.path().join("gone-lives").exists());
    }

    /// Whatever the request and the configuration say later.
    #[tokio::test]
    async fn del_hears_what_add_did() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"cat >$CNI_COMMAND; echo '{"ips": [{"address": "192.0.2.7/24"}]}'"#;
        for (version, hears_result) in [("1.0.0", true), ("0.3.1", false)] {
            let plugins = plugins(dir.path(), version, &[("a", script)]);
            plugins.add(&request("s", "192.0.2.1"), None).await.unwrap();
            plugins.del(&request("s", "192.0.2.2")).await.unwrap();
            let text = fs::read_to_string(dir.path().join("DEL")).unwrap();
            let told: serde_json::Value = serde_json::from_str(&text).unwrap();
            let dns = &told["runtimeConfig"]["dns"]["servers"][0];
            assert_eq!(dns, "192.0.2.1", "{told}");
            let result = told.get("prevResult").map(|result| &result["cniVersion"]);
            assert_eq!(result, hears_result.then_some(&version.into()), "{told}");
        }
    }
}
