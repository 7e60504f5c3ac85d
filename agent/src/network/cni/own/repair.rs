//! What others have removed of the own network comes back: rules, the bridge, the pods' places on
//! it, and links of pods.

use std::collections::HashSet;

use coracle_cni::{CniError, NetConf, bridge, ipam, netlink::Netlink};
use coracle_netns::NetNs;

use super::{
    OwnNetwork,
    attachment::{attachment, link_name},
    failed,
};
use crate::network::{NetworkError, PodNetworkRequest, cni::IFNAME};

impl OwnNetwork {
    /// Writes again what was removed from bridge and rules. Blocks.
    pub(in crate::network::cni) fn repair(&self) -> Result<(), NetworkError> {
        let Some(conf) = self.conf() else {
            return Ok(());
        };
        self.try_repair(&conf).map_err(failed("CHECK"))?;
        self.attach_lost(&conf)
    }

    fn try_repair(&self, conf: &NetConf) -> Result<(), CniError> {
        self.publish(conf)?;
        let mut netlink = Netlink::open()?;
        bridge::ensure(&mut netlink, conf)?;
        let attached = coracle_cni::reattach(&mut netlink, conf)?;
        if attached > 0 {
            tracing::warn!(
                attached,
                bridge = conf.bridge,
                "put pods back on the bridge, which somebody had deleted"
            );
        }
        if self.shared.rules.repair()? {
            tracing::info!("repaired rules of the pods' network that were not there");
        }
        Ok(())
    }

    /// Whether others may have removed rules, the bridge, or a pod's link.
    pub(in crate::network::cni) fn is_disturbed(&self) -> bool {
        let look = |conf: NetConf| -> Result<bool, CniError> {
            let mut netlink = Netlink::open()?;
            let is_lost = bridge::find(&mut netlink, &conf)?.is_none();
            Ok(is_lost || !self.lost(&mut netlink, &conf)?.is_empty())
        };
        self.shared.rules.is_disturbed()
            || self.conf().is_some_and(|conf| look(conf).unwrap_or(false))
    }

    /// Pods that are attached, by what is remembered, and whose pair of links is nowhere.
    fn lost(
        &self,
        netlink: &mut Netlink,
        conf: &NetConf,
    ) -> Result<Vec<PodNetworkRequest>, CniError> {
        // Plugins of others have had their part in such a link.
        if self.shared.config.chain_dir.is_some() || self.shared.attached.lock().is_empty() {
            return Ok(Vec::new());
        }
        let links = netlink.links()?.into_iter();
        let present: HashSet<String> = links.map(|link| link.name).collect();
        let known = self.shared.attached.lock();
        let lost = known.values().filter(|request| {
            let is_busy = self
                .shared
                .attaching
                .lock()
                .contains_key(&request.sandbox_id);
            !is_busy && !present.contains(&link_name(&request.sandbox_id))
        });
        let lost: Vec<PodNetworkRequest> = lost.cloned().collect();
        drop(known);
        let is_gone = |request: &PodNetworkRequest| has_no_link(request).unwrap_or(false);
        let has_address = |request: &PodNetworkRequest| {
            ipam::find(conf, &attachment(request).owner()).is_ok_and(|found| found.is_some())
        };
        let all = lost.into_iter();
        Ok(all
            .filter(|request| is_gone(request) && has_address(request))
            .collect())
    }

    /// Makes the links of such pods anew, under their own addresses.
    fn attach_lost(&self, conf: &NetConf) -> Result<(), NetworkError> {
        let lost = Netlink::open()
            .map_err(CniError::from)
            .and_then(|mut netlink| self.lost(&mut netlink, conf));
        for request in lost.map_err(failed("CHECK"))? {
            // A pod that is torn down from here on undoes what is made.
            let known = self.shared.attached.lock();
            if !known.contains_key(&request.sandbox_id) {
                continue;
            }
            self.begin(&request.sandbox_id);
            drop(known);
            self.setup(&request)?;
            tracing::warn!(
                sandbox = %request.sandbox_id,
                namespace = request.pod.namespace,
                pod = request.pod.name,
                "made the link of a pod anew, which somebody had deleted"
            );
        }
        Ok(())
    }
}

/// Whether neither end is there: one that was renamed on the node still serves the pod.
fn has_no_link(request: &PodNetworkRequest) -> Result<bool, CniError> {
    let netns = NetNs::open(&request.netns).map_err(CniError::Namespace)?;
    let look = || Netlink::open()?.link(IFNAME);
    let link = netns.run(look).map_err(CniError::Namespace)??;
    Ok(link.is_none())
}
