//! Pods come to the own network and leave it.
//!
//! A setup may be given up by its caller and go on; so each of setup and teardown leaves word for
//! the other, and whichever comes last undoes what the first has made.

use std::{net::IpAddr, time::Duration};

use coracle_cni::{
    Attachment, CniError, NetConf, conf::ValidAttachment, netlink::Netlink, result::CniResult, veth,
};
use coracle_telemetry::ErrorChain;

use super::{OwnNetwork, failed};
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetworkRequest, bandwidth, cni::IFNAME},
    runtime::types::SandboxId,
};

/// A namespace's links are gone this long after it, or never...
const LINK_GRACE: Duration = Duration::from_secs(2);
/// ...but mostly much sooner.
const LINK_POLL: Duration = Duration::from_millis(100);

impl OwnNetwork {
    /// Before [`Self::setup`] is even queued: a teardown that comes first must find it.
    pub(in crate::network::cni) fn begin(&self, sandbox: &SandboxId) {
        self.shared.attaching.lock().insert(sandbox.clone(), false);
        self.shared.releasing.lock().remove(sandbox);
    }

    /// Of one that has a link, also from an earlier run: it is made anew if somebody deletes it.
    pub(in crate::network::cni) fn know(&self, request: &PodNetworkRequest) {
        let (id, request) = (request.sandbox_id.clone(), request.clone());
        self.shared.attached.lock().insert(id, request);
    }

    /// Blocks, longer than whoever asked may want to wait: what is torn down meanwhile is undone.
    pub(in crate::network::cni) fn setup(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<CniResult, NetworkError> {
        let id = &request.sandbox_id;
        self.know(request);
        let outcome = self.try_setup(request);
        if outcome.is_err() {
            self.shared.attached.lock().remove(id);
        }
        if self.shared.attaching.lock().remove(id) != Some(true) {
            return outcome;
        }
        self.shared.attached.lock().remove(id);
        if outcome.is_ok()
            && let Some(conf) = self.conf()
        {
            let ports = self
                .shared
                .ports
                .withdraw(&request.sandbox_id)
                .map_err(CniError::from);
            if let Err(error) = ports.and(coracle_cni::del(&attachment(request), &conf)) {
                tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&error), "a late ADD is not undone until the next start");
            }
        }
        Err(NetworkError::NotReady {
            why: "the sandbox was torn down while it was attached".into(),
        })
    }

    fn try_setup(&self, request: &PodNetworkRequest) -> Result<CniResult, NetworkError> {
        let mut conf = self.ready()?;
        conf.runtime_config.bandwidth = bandwidth::of(&request.annotations)?;
        let attachment = attachment(request);
        let prepare = |netlink: &mut Netlink, conf: &NetConf| self.prepare(netlink, conf);
        let result = coracle_cni::add_to(&attachment, &conf, prepare).map_err(failed("ADD"))?;
        if !request.port_mappings.is_empty()
            && let Some(IpAddr::V4(address)) = result.addresses().first()
            && let Err(error) =
                self.shared
                    .ports
                    .publish(&request.sandbox_id, *address, &request.port_mappings)
        {
            // The caller hears why it failed; what cannot be undone is found by `gc`.
            if let Err(undo) = coracle_cni::del(&attachment, &conf) {
                tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&undo), "a failed ADD left its link");
            }
            return Err(failed("ADD")(error.into()));
        }
        Ok(result)
    }

    /// Blocks, without waiting for the kernel to delete links. The address stays taken until then:
    /// whoever got it would be a second port with this pod's address.
    pub(in crate::network::cni) fn teardown(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<(), NetworkError> {
        let id = &request.sandbox_id;
        self.shared.attached.lock().remove(id);
        if let Some(cancelled) = self.shared.attaching.lock().get_mut(id) {
            *cancelled = true;
        }
        self.shared.releasing.lock().insert(id.clone());
        self.shared
            .ports
            .withdraw(id)
            .map_err(CniError::from)
            .map_err(failed("DEL"))
    }

    /// Waits until the sandbox' link is gone, deletes it if the end of its namespace has not done
    /// so after a while, and gives the address back.
    pub(in crate::network::cni) async fn collect_link(self, request: PodNetworkRequest) {
        let name = link_name(&request.sandbox_id);
        for _ in 0..LINK_GRACE.as_millis() / LINK_POLL.as_millis() {
            tokio::time::sleep(LINK_POLL).await;
            let name = name.clone();
            let looked = blocking(move || Netlink::open()?.link(&name)).await;
            if matches!(looked, Ok(None)) {
                break;
            }
        }
        if let Err(error) = blocking(move || self.release(&request)).await {
            tracing::warn!(error = %ErrorChain(&error), "a link and its address stay until the next start");
        }
    }

    fn release(&self, request: &PodNetworkRequest) -> Result<(), CniError> {
        // Attached again meanwhile: link and address are in use.
        if !self.shared.releasing.lock().remove(&request.sandbox_id) {
            return Ok(());
        }
        let Some(conf) = self.conf() else {
            return Ok(());
        };
        coracle_cni::del(&attachment(request), &conf)
    }

    /// Blocks.
    pub(in crate::network::cni) fn check(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<(), NetworkError> {
        let mut conf = self.ready()?;
        conf.runtime_config.bandwidth = bandwidth::of(&request.annotations)?;
        coracle_cni::check(&attachment(request), &conf).map_err(failed("CHECK"))
    }

    /// Blocks.
    pub(in crate::network::cni) fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        let Some(mut conf) = self.conf() else {
            return Ok(());
        };
        conf.valid_attachments = valid
            .iter()
            .map(|id| ValidAttachment {
                container_id: id.0.clone(),
                ifname: IFNAME.to_owned(),
            })
            .collect();
        coracle_cni::gc(&conf).map_err(failed("GC"))?;
        self.shared
            .ports
            .retain(valid)
            .map_err(CniError::from)
            .map_err(failed("GC"))
    }
}

/// The node's end of a sandbox' pair.
pub(super) fn link_name(id: &SandboxId) -> String {
    veth::host_name(&id.0, IFNAME)
}

pub(super) fn attachment(request: &PodNetworkRequest) -> Attachment {
    Attachment {
        container_id: request.sandbox_id.0.clone(),
        ifname: IFNAME.to_owned(),
        netns: Some(request.netns.clone()),
    }
}
