//! Ports of pods published on the node (`hostPort`), for the own network.
//!
//! What is published is remembered, one file a sandbox, so that rules removed by hand come back.
//! Not reachable through 127.0.0.1 unless a mapping names it: that would need `route_localnet`
//! (CVE-2020-8558), and take the node's own daemons on that port away from their local clients. UDP
//! flows that the rules do not lead to any more are forgotten.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use coracle_cni::netlink::Netlink;
use coracle_netfilter::{
    conntrack::{self, Flow},
    engine::EngineError,
    host_port::{HostPort, PodPorts},
    service::Protocol,
};
use serde::{Deserialize, Serialize};

use super::node_rules::NodeRules;
use crate::runtime::types::{PortMapping, SandboxId};

/// What one sandbox publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Published {
    address: Ipv4Addr,
    mappings: Vec<PortMapping>,
}

impl Published {
    fn plan(&self, id: &str) -> PodPorts {
        let port = |mapping: &PortMapping| {
            Some(HostPort {
                // The API takes no others.
                protocol: Protocol::parse(Some(&mapping.protocol.to_ascii_uppercase()))?,
                host_ip: host_ip(mapping).map(IpAddr::V4),
                host_port: mapping.host_port,
                container_port: mapping.container_port,
            })
        };
        PodPorts {
            id: id.to_owned(),
            address: self.address.into(),
            ports: self.mappings.iter().filter_map(port).collect(),
        }
    }
}

/// The one address of the node that a port is published on; `None`: on all.
fn host_ip(mapping: &PortMapping) -> Option<Ipv4Addr> {
    mapping
        .host_ip
        .parse()
        .ok()
        .filter(|address: &Ipv4Addr| !address.is_unspecified())
}

/// Why a port could not be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortMapError {
    /// The rules.
    #[error("packet filter rules")]
    Rules(#[from] EngineError),
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
            PortMapError::Rules(error) => error.into(),
            PortMapError::Record { path, source } => Self::Io {
                operation: "write",
                path,
                source,
            },
        }
    }
}

/// All published ports of the node, and their rules.
#[derive(Debug)]
pub struct PortMaps {
    dir: PathBuf,
    published: Mutex<BTreeMap<String, Published>>,
    rules: Arc<NodeRules>,
}

/// What was remembered of published ports.
#[derive(Debug)]
pub(super) struct Remembered {
    dir: PathBuf,
    published: BTreeMap<String, Published>,
}

impl Remembered {
    /// Reads what an earlier run remembered in `dir`. Changes nothing.
    pub(super) fn load(dir: PathBuf) -> Self {
        let published = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().into_string().ok()?;
                Some((
                    id,
                    serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?,
                ))
            })
            .collect();
        Self { dir, published }
    }

    /// As the rules have it.
    pub(super) fn plan(&self) -> Vec<PodPorts> {
        plan(&self.published)
    }
}

impl PortMaps {
    /// Goes on from what was remembered, which `rules` have been told.
    pub(super) fn new(remembered: Remembered, rules: Arc<NodeRules>) -> Self {
        Self {
            dir: remembered.dir,
            published: Mutex::new(remembered.published),
            rules,
        }
    }

    /// Publishes the ports of a sandbox. Idempotent. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`PortMapError`]; nothing is published then.
    pub fn publish(
        &self,
        id: &SandboxId,
        address: Ipv4Addr,
        mappings: &[PortMapping],
    ) -> Result<(), PortMapError> {
        let mut published = self.lock();
        let entry = Published {
            address,
            mappings: mappings.to_vec(),
        };
        let path = self.dir.join(&id.0);
        record(&path, &entry).map_err(|source| PortMapError::Record {
            path: path.clone(),
            source,
        })?;
        published.insert(id.0.clone(), entry);
        self.apply(&published).inspect_err(|_| {
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
        let Some(entry) = published.remove(&id.0) else {
            return Ok(());
        };
        if let Err(error) = self.apply(&published) {
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
        let gone: Vec<String> = self
            .lock()
            .keys()
            .filter(|id| !valid.iter().any(|v| v.0 == **id))
            .cloned()
            .collect();
        gone.into_iter()
            .try_for_each(|id| self.withdraw(&SandboxId(id)))
    }

    fn apply(&self, published: &BTreeMap<String, Published>) -> Result<(), EngineError> {
        self.rules.set_host_ports(plan(published))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        // Held during the transaction, so that two of them never carry different lists; callers are
        // on blocking threads.
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces it as a whole: a record that is cut off would be none. Not beside it, where each file
/// is a record. No reboot is survived by what it tells of, so nothing waits for the disk.
fn record(path: &Path, entry: &Published) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    let unfinished = dir.with_extension("tmp");
    fs::write(&unfinished, serde_json::to_vec(entry)?)?;
    fs::rename(&unfinished, path)
}

fn remove(path: &Path) -> Result<(), PortMapError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(PortMapError::Record {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn plan(published: &BTreeMap<String, Published>) -> Vec<PodPorts> {
    let pods = published.iter().map(|(id, entry)| entry.plan(id));
    pods.collect()
}

/// Deletes the UDP flows to published ports that `wrong` chooses. A flow lives as long as its
/// client sends, and stays translated as its first packet was. What fails is logged: the rules are
/// right all the same.
fn forget_flows(mappings: &[PortMapping], wrong: impl Fn(&Flow) -> bool) {
    let udp: Vec<&PortMapping> = mappings
        .iter()
        .filter(|m| m.protocol.eq_ignore_ascii_case("udp"))
        .collect();
    if udp.is_empty() {
        return;
    }
    let forget = || -> io::Result<usize> {
        let local: Vec<IpAddr> = Netlink::open()?
            .addresses()?
            .into_iter()
            .map(|(_, net)| net.addr().into())
            .collect();
        let published = |flow: &Flow| {
            local.contains(&flow.destination) && udp.iter().any(|m| concerns(m, flow))
        };
        conntrack::delete(&conntrack::udp_flows(|flow| {
            published(flow) && wrong(flow)
        })?)
    };
    match forget() {
        Ok(count) => tracing::debug!(count, "forgot UDP flows to published ports"),
        Err(error) => {
            tracing::warn!(error = %coracle_telemetry::ErrorChain(&error), "UDP clients of a published port may go on sending to where it was")
        }
    }
}

fn concerns(mapping: &PortMapping, flow: &Flow) -> bool {
    mapping.host_port == flow.destination_port
        && host_ip(mapping).is_none_or(|on| on == flow.destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_planned_as_the_pod_says() {
        let mapping = |protocol: &str, host_ip: &str| PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: protocol.into(),
            host_ip: host_ip.into(),
        };
        let mappings = vec![
            mapping("TCP", ""),
            mapping("udp", "0.0.0.0"),
            mapping("SCTP", "192.168.0.1"),
        ];
        let entry = Published {
            address: [10, 0, 0, 5].into(),
            mappings,
        };
        let port = |protocol, host_ip: Option<[u8; 4]>| HostPort {
            protocol,
            host_ip: host_ip.map(Into::into),
            host_port: 8080,
            container_port: 80,
        };
        let ports = vec![
            port(Protocol::Tcp, None),
            port(Protocol::Udp, None),
            port(Protocol::Sctp, Some([192, 168, 0, 1])),
        ];
        assert_eq!(
            entry.plan("abc"),
            PodPorts {
                id: "abc".to_owned(),
                address: [10, 0, 0, 5].into(),
                ports
            }
        );
    }

    #[test]
    fn a_record_is_replaced_as_a_whole_and_what_is_unfinished_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let records = dir.path().join("hostports");
        let (path, unfinished) = (records.join("abc"), dir.path().join("hostports.tmp"));
        let entry = |last: u8| Published {
            address: [10, 0, 0, last].into(),
            mappings: Vec::new(),
        };
        record(&path, &entry(5)).unwrap();
        // Whoever ends while it is written leaves what was there.
        let before = fs::File::open(&path).unwrap();
        record(&path, &entry(6)).unwrap();
        let seen: Published = serde_json::from_reader(before).unwrap();
        assert_eq!(seen, entry(5));
        fs::write(&unfinished, "{\"address\":\"10.0").unwrap();
        let loaded = Remembered::load(records);
        let all: Vec<_> = loaded.published.into_iter().collect();
        assert_eq!(all, [("abc".to_owned(), entry(6))]);
        record(&path, &entry(7)).unwrap();
        assert!(!unfinished.exists());
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
        let flow = |port| {
            Flow::new(
                (IpAddr::from([192, 0, 2, 9]), 4000),
                (node.into(), port),
                node.into(),
            )
        };
        for (host_ip, port, expected) in [
            ("", 5353, true),
            ("", 53, false),
            ("192.0.2.1", 5353, true),
            ("192.0.2.2", 5353, false),
        ] {
            assert_eq!(
                concerns(&mapping(host_ip), &flow(port)),
                expected,
                "{host_ip} {port}"
            );
        }
    }
}
