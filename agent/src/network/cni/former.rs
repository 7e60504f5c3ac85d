//! The own network of an earlier run, on a node whose network is somebody else's now.
//!
//! Its bridge has the first address of the node's range, its rules lead packets of that range: both
//! would be in the way of a network that gives out the same addresses. So it goes with its last
//! pod; until then the node is not ready, and says which pods have to go.

use std::sync::Arc;

use coracle_cni::{CniError, bridge, masquerade, netlink::Netlink, veth};
use coracle_netfilter::{engine::EngineError, remove_node_rules};
use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;

use super::own::OwnNetwork;
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetworkRequest},
    runtime::types::SandboxId,
};

/// What is left of it. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct Former {
    own: OwnNetwork,
    bridge: String,
    /// Why it is still there.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Former {
    pub(super) fn new(own: OwnNetwork, bridge: String) -> Self {
        let trouble = own.conf().map(|_| "it was not looked at yet".to_owned());
        Self {
            own,
            bridge,
            trouble: Arc::new(Mutex::new(trouble)),
        }
    }

    /// Gives back what belongs to sandboxes that are not in `valid`, and all of it if none is.
    pub(super) async fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        if self.is_gone() {
            return Ok(());
        }
        let (own, valid) = (self.own.clone(), valid.to_vec());
        let collected = blocking(move || own.gc(&valid)).await;
        self.leave().await;
        collected
    }

    /// One of its pods, perhaps, goes.
    pub(super) async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        if self.is_gone() {
            return Ok(());
        }
        let (own, released) = (self.own.clone(), request.clone());
        blocking(move || own.teardown(&released)).await?;
        let (former, request) = (self.clone(), request.clone());
        drop(coracle_telemetry::spawn(
            "leave the own network",
            async move {
                former.own.clone().collect_link(request).await;
                former.leave().await;
            },
        ));
        Ok(())
    }

    pub(super) fn ready(&self) -> Result<(), NetworkError> {
        match &*self.trouble.lock() {
            None => Ok(()),
            Some(why) => Err(NetworkError::NotReady {
                why: format!("this node had a network of its own before: {why}"),
            }),
        }
    }

    fn is_gone(&self) -> bool {
        self.trouble.lock().is_none()
    }

    /// Removes it if nobody uses it any more.
    async fn leave(&self) {
        let (own, bridge) = (self.own.clone(), self.bridge.clone());
        let trouble = match blocking(move || leave(&own, &bridge)).await {
            Ok(0) => {
                tracing::info!(
                    bridge = self.bridge,
                    "removed the node's own network, which another has followed"
                );
                None
            }
            Ok(count) => Some(format!(
                "{count} of its pods are still attached to {}: delete them, or stop this agent and run `coracle reset`",
                self.bridge
            )),
            Err(error) => Some(format!(
                "it cannot be removed, stop this agent and run `coracle reset`: {}",
                ErrorChain(&error)
            )),
        };
        if let Some(why) = &trouble {
            tracing::warn!(why, "the node's own network is still there");
        }
        *self.trouble.lock() = trouble;
    }
}

/// Why it is still there.
#[derive(Debug, thiserror::Error)]
enum LeaveError {
    #[error(transparent)]
    Links(#[from] CniError),
    #[error(transparent)]
    Rules(#[from] EngineError),
}

/// Says how many use it.
fn leave(own: &OwnNetwork, name: &str) -> Result<usize, LeaveError> {
    let mut netlink = Netlink::open().map_err(CniError::from)?;
    if let Some(bridge) = netlink.link(name).map_err(CniError::from)? {
        let links = netlink.links().map_err(CniError::from)?;
        let ports = links
            .iter()
            .filter(|link| link.controller == Some(bridge.index) && veth::is_host_name(&link.name));
        let count = ports.count();
        if count > 0 {
            return Ok(count);
        }
    }
    // Whichever engine has written them.
    remove_node_rules()?;
    if let Some(conf) = own.conf() {
        masquerade::remove(&conf)?;
    }
    bridge::remove(&mut netlink, name)?;
    own.forget()?;
    Ok(0)
}
