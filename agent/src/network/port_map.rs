//! Ports of pods published on the node (`hostPort`), for the own network.
//!
//! ```text
//! nat PREROUTING, OUTPUT -m addrtype --dst-type LOCAL -> CORACLE-HOSTPORTS: -p tcp --dport N -> CORACLE-HP-<pod>: DNAT
//! nat POSTROUTING -> CORACLE-HP-MASQ: -s POD -d POD MASQUERADE   (a pod that reaches itself through the node)
//! ```
//!
//! What is published is remembered, one file a sandbox, so that rules removed by hand come back. Not reachable through
//! 127.0.0.1 unless a mapping names it: that would need `route_localnet` (CVE-2020-8558), and take the node's own daemons
//! on that port away from their local clients. UDP flows that the rules do not lead to any more are forgotten.

use std::{
    collections::BTreeMap,
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use coracle_cni::{
    conntrack::{self, Flow},
    iptables::{
        Iptables, IptablesError,
        plan::{Chain, Desired, Jump},
    },
    netlink::Netlink,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::runtime::types::{PortMapping, SandboxId};

const DISPATCH: &str = "CORACLE-HOSTPORTS";
const MASQ: &str = "CORACLE-HP-MASQ";

/// What one sandbox publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Published {
    address: Ipv4Addr,
    mappings: Vec<PortMapping>,
}

/// Why a port could not be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortMapError {
    /// The rules.
    #[error("packet filter rules")]
    Iptables(#[from] IptablesError),
    /// The record.
    #[error("remember published ports in {path}")]
    Record {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<PortMapError> for coracle_cni::CniError {
    fn from(error: PortMapError) -> Self {
        match error {
            PortMapError::Iptables(error) => error.into(),
            PortMapError::Record { path, source } => Self::Io { operation: "write", path, source },
        }
    }
}

/// All published ports of the node, and their rules.
#[derive(Debug)]
pub struct PortMaps {
    dir: PathBuf,
    published: Mutex<BTreeMap<String, Published>>,
}

impl PortMaps {
    /// Reads what an earlier run remembered in `dir`. Changes nothing.
    #[must_use]
    pub fn load(dir: PathBuf) -> Self {
        let published = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().into_string().ok()?;
                Some((id, serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?))
            })
            .collect();
        Self { dir, published: Mutex::new(published) }
    }

    /// Publishes the ports of a sandbox. Idempotent. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`PortMapError`]; nothing is published then.
    pub fn publish(&self, id: &SandboxId, address: Ipv4Addr, mappings: &[PortMapping]) -> Result<(), PortMapError> {
        let mut published = self.lock();
        let entry = Published { address, mappings: mappings.to_vec() };
        let path = self.dir.join(&id.0);
        let record = || fs::create_dir_all(&self.dir).and_then(|()| fs::write(&path, serde_json::to_vec(&entry)?));
        record().map_err(|source| PortMapError::Record { path: path.clone(), source })?;
        published.insert(id.0.clone(), entry);
        apply(&published).inspect_err(|_| {
            published.remove(&id.0);
            // The rules' error is the one to tell; a record without rules is dropped by `retain`.
            let _ = remove(&path);
        })?;
        // From before the pod: they lead to another pod, or to the node.
        forget_flows(mappings, |flow| flow.answers_from != address);
        Ok(())
    }

    /// Withdraws the ports of a sandbox. Does nothing, at no cost, if it has none.
    ///
    /// # Errors
    /// [`PortMapError`]; calling again is the way on.
    pub fn withdraw(&self, id: &SandboxId) -> Result<(), PortMapError> {
        let mut published = self.lock();
        let Some(entry) = published.remove(&id.0) else { return Ok(()) };
        if let Err(error) = apply(&published) {
            published.insert(id.0.clone(), entry);
            return Err(error.into());
        }
        forget_flows(&entry.mappings, |flow| flow.answers_from == entry.address);
        remove(&self.dir.join(&id.0))
    }

    /// Withdraws everything of sandboxes that are not in `valid`.
    ///
    /// # Errors
    /// [`PortMapError`].
    pub fn retain(&self, valid: &[SandboxId]) -> Result<(), PortMapError> {
        let gone: Vec<String> = self.lock().keys().filter(|id| !valid.iter().any(|v| v.0 == **id)).cloned().collect();
        gone.into_iter().try_for_each(|id| self.withdraw(&SandboxId(id)))
    }

    /// Writes the rules again if they were changed by others.
    ///
    /// # Errors
    /// [`PortMapError`].
    pub fn repair(&self) -> Result<(), PortMapError> {
        let published = self.lock();
        if published.is_empty() {
            return Ok(());
        }
        Ok(apply(&published)?)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        // Held during the transaction, so that two of them never carry different lists; callers are on blocking threads.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(path: &Path) -> Result<(), PortMapError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(PortMapError::Record { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn apply(published: &BTreeMap<String, Published>) -> Result<(), IptablesError> {
    Iptables::find()?.ensure("nat", &plan(published)).map(drop)
}

/// Deletes the UDP flows to published ports that `wrong` chooses. A flow lives as long as its client sends, and stays
/// translated as its first packet was. What fails is logged: the rules are right all the same.
fn forget_flows(mappings: &[PortMapping], wrong: impl Fn(&Flow) -> bool) {
    let udp: Vec<&PortMapping> = mappings.iter().filter(|m| m.protocol.eq_ignore_ascii_case("udp")).collect();
    if udp.is_empty() {
        return;
    }
    let forget = || -> io::Result<usize> {
        let local: Vec<Ipv4Addr> = Netlink::open()?.addresses()?.into_iter().map(|(_, net)| net.addr()).collect();
        let published = |flow: &Flow| local.contains(&flow.destination) && udp.iter().any(|m| concerns(m, flow));
        conntrack::delete(&conntrack::udp_flows(|flow| published(flow) && wrong(flow))?)
    };
    match forget() {
        Ok(count) => tracing::debug!(count, "forgot UDP flows to published ports"),
        Err(error) => {
            tracing::warn!(error = %coracle_telemetry::Chain(&error), "UDP clients of a published port may go on sending to where it was")
        }
    }
}

fn concerns(mapping: &PortMapping, flow: &Flow) -> bool {
    let on = mapping.host_ip.parse::<Ipv4Addr>().unwrap_or(Ipv4Addr::UNSPECIFIED);
    mapping.host_port == flow.destination_port && (on.is_unspecified() || on == flow.destination)
}

fn plan(published: &BTreeMap<String, Published>) -> Desired {
    // `CORACLE-HOSTPORTS` does not start with this, so it is owned by name as well.
    let mut desired = Desired { owned_prefixes: vec!["CORACLE-HP-", DISPATCH], ..Desired::default() };
    if published.is_empty() {
        return desired;
    }
    let (mut dispatch, mut hairpin) = (Vec::new(), Vec::new());
    for (id, entry) in published {
        let chain = format!("CORACLE-HP-{}", hex::encode(&Sha256::digest(id)[..8]));
        let mut translate = Vec::new();
        for mapping in &entry.mappings {
            let protocol = mapping.protocol.to_ascii_lowercase();
            let on = match mapping.host_ip.parse::<Ipv4Addr>() {
                Ok(address) if !address.is_unspecified() => format!("-d {address}/32 "),
                _ => "! -d 127.0.0.0/8 ".to_owned(),
            };
            let port = format!("-p {protocol} -m {protocol} --dport {}", mapping.host_port);
            dispatch.push(format!("{on}{port} -j {chain}"));
            translate.push(format!("{port} -j DNAT --to-destination {}:{}", entry.address, mapping.container_port));
            hairpin.push(format!(
                "-s {0}/32 -d {0}/32 -p {protocol} -m {protocol} --dport {1} -j MASQUERADE",
                entry.address, mapping.container_port
            ));
        }
        desired.chains.insert(chain, Chain::sequence(translate));
    }
    desired.chains.insert(DISPATCH.into(), Chain::set(dispatch));
    desired.chains.insert(MASQ.into(), Chain::set(hairpin));
    for from in ["PREROUTING", "OUTPUT"] {
        let rule = format!("-m addrtype --dst-type LOCAL -j {DISPATCH}");
        desired.jumps.push(Jump { from, rule, first: false });
    }
    desired.jumps.push(Jump { from: "POSTROUTING", rule: format!("-j {MASQ}"), first: true });
    desired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_has_its_way_in_and_through() {
        let mapping = |host_ip: &str| PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: "TCP".into(),
            host_ip: host_ip.into(),
        };
        let entry = Published { address: [10, 0, 0, 5].into(), mappings: vec![mapping(""), mapping("192.168.0.1")] };
        let desired = plan(&BTreeMap::from([("abc".to_owned(), entry)]));
        let chain = desired.chains.keys().find(|name| name.starts_with("CORACLE-HP-") && *name != MASQ).unwrap();
        assert!(chain.len() <= 28);
        assert_eq!(
            desired.chains[DISPATCH].rules,
            [
                format!("! -d 127.0.0.0/8 -p tcp -m tcp --dport 8080 -j {chain}"),
                format!("-d 192.168.0.1/32 -p tcp -m tcp --dport 8080 -j {chain}")
            ]
        );
        assert_eq!(desired.chains[chain].rules[0], "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80");
    }

    #[test]
    fn only_flows_to_the_published_port_and_address_are_concerned() {
        let mapping = |host_ip: &str| PortMapping {
            host_port: 5353,
            container_port: 53,
            protocol: "UDP".into(),
            host_ip: host_ip.into(),
        };
        let node = Ipv4Addr::new(192, 0, 2, 1);
        let flow = |port| Flow::new((Ipv4Addr::new(192, 0, 2, 9), 4000), (node, port), node);
        for (host_ip, port, expected) in
            [("", 5353, true), ("", 53, false), ("192.0.2.1", 5353, true), ("192.0.2.2", 5353, false)]
        {
            assert_eq!(concerns(&mapping(host_ip), &flow(port)), expected, "{host_ip} {port}");
        }
    }

    #[test]
    fn nothing_published_leaves_no_chain() {
        let desired = plan(&BTreeMap::new());
        assert!(desired.chains.is_empty() && desired.jumps.is_empty());
    }
}
