//! Forgets UDP flows to endpoints that are no more. The only exec of `conntrack`.
//!
//! A UDP "connection" lives in the kernel's table as long as packets come, with the endpoint chosen at the first one.
//! What is stale is decided from a listing (pure) and deleted flow by flow; other flows stay. TCP needs none of this:
//! its connections end.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    process::Stdio,
    sync::Once,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

use super::rules::Fragment;

const DEADLINE: Duration = Duration::from_secs(10);

/// Where UDP flows may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    services: BTreeMap<(Ipv4Addr, u16), BTreeSet<Ipv4Addr>>,
    node_ports: BTreeMap<u16, BTreeSet<Ipv4Addr>>,
}

impl Targets {
    /// Collects what all Services allow.
    pub fn collect<'a>(fragments: impl Iterator<Item = &'a Fragment>) -> Self {
        let mut targets = Self::default();
        for fragment in fragments {
            for (address, endpoints) in &fragment.udp {
                targets.services.insert(*address, endpoints.iter().map(|e| *e.address.ip()).collect());
            }
            for (port, endpoints) in &fragment.udp_node_ports {
                targets.node_ports.insert(*port, endpoints.iter().map(|e| *e.address.ip()).collect());
            }
        }
        targets
    }

    /// Whether there is any UDP Service.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.node_ports.is_empty()
    }
}

/// One direction of a flow, as `conntrack` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    source_port: u16,
    destination_port: u16,
}

/// The flows of `listing` (of `conntrack -L -p udp`) whose endpoint is not one of their Service's.
#[must_use]
pub fn stale(listing: &str, targets: &Targets) -> Vec<Flow> {
    listing.lines().filter_map(|line| stale_flow(line, targets)).collect()
}

fn stale_flow(line: &str, targets: &Targets) -> Option<Flow> {
    let mut sources = Vec::with_capacity(2);
    let (mut destination, mut source_port, mut destination_port) = (None, None, None);
    for word in line.split_whitespace() {
        match word.split_once('=') {
            Some(("src", ip)) => sources.push(ip.parse::<Ipv4Addr>().ok()?),
            Some(("dst", ip)) if destination.is_none() => destination = Some(ip.parse::<Ipv4Addr>().ok()?),
            Some(("sport", port)) if source_port.is_none() => source_port = Some(port.parse().ok()?),
            Some(("dport", port)) if destination_port.is_none() => destination_port = Some(port.parse().ok()?),
            _ => {}
        }
    }
    let flow = Flow {
        source: *sources.first()?,
        destination: destination?,
        source_port: source_port?,
        destination_port: destination_port?,
    };
    // Answers come from whom the packets went to.
    let endpoint = *sources.get(1)?;
    let allowed = match targets.services.get(&(flow.destination, flow.destination_port)) {
        Some(allowed) => allowed,
        // A node port: only flows that were translated, or a server on the node would lose its own.
        None if endpoint != flow.destination => targets.node_ports.get(&flow.destination_port)?,
        None => return None,
    };
    (!allowed.contains(&endpoint)).then_some(flow)
}

/// Deletes stale flows. What fails is logged: the flows end by themselves once nobody sends.
pub async fn clean(targets: Targets) {
    if targets.is_empty() {
        return;
    }
    let listing = match run(&["-L", "-p", "udp"]).await {
        Ok(listing) => listing,
        Err(why) => {
            // Once: every change of a UDP Service comes here, and nothing changes until somebody installs it.
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::warn!(why, "cannot clean UDP flows of removed endpoints: is the package conntrack installed?");
            });
            return;
        }
    };
    for flow in stale(&listing, &targets) {
        let (source, destination) = (flow.source.to_string(), flow.destination.to_string());
        let (sport, dport) = (flow.source_port.to_string(), flow.destination_port.to_string());
        let arguments = ["-D", "-p", "udp", "-s", &source, "-d", &destination, "--sport", &sport, "--dport", &dport];
        match run(&arguments).await {
            Ok(_) => tracing::debug!(?flow, "deleted a flow to a removed endpoint"),
            // It may have ended meanwhile, which is an error to the tool.
            Err(why) => tracing::debug!(?flow, why, "a flow to a removed endpoint was not deleted"),
        }
    }
}

async fn run(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("conntrack");
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    if let Some(path) = std::env::var_os("PATH") {
        let mut path = path;
        path.push(":/usr/sbin:/sbin");
        command.env("PATH", path);
    }
    let output = timeout(DEADLINE, command.output())
        .await
        .map_err(|_| format!("conntrack took longer than {} s", DEADLINE.as_secs()))?
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::change_tracker::Endpoint;

    const LISTING: &str = "\
udp      17 28 src=10.1.0.5 dst=10.96.0.10 sport=4000 dport=53 src=10.1.0.9 dst=10.1.0.5 sport=5353 dport=4000 mark=0 use=1
udp      17 28 src=10.1.0.5 dst=10.96.0.10 sport=4001 dport=53 src=10.1.0.8 dst=10.1.0.5 sport=5353 dport=4001 mark=0 use=1
udp      17 28 src=10.1.0.5 dst=10.96.0.10 sport=4002 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.1.0.5 sport=53 dport=4002 use=1
udp      17 28 src=10.1.0.5 dst=192.0.2.1 sport=4003 dport=53 src=192.0.2.1 dst=10.1.0.5 sport=53 dport=4003 use=1
udp      17 28 src=10.1.0.5 dst=192.0.2.1 sport=4004 dport=30053 src=192.0.2.1 dst=10.1.0.5 sport=30053 dport=4004 use=1
udp      17 28 src=10.1.0.5 dst=192.0.2.1 sport=4005 dport=30053 src=10.1.0.9 dst=192.0.2.1 sport=5353 dport=4005 use=1
";

    #[test]
    fn only_flows_to_removed_endpoints_are_stale() {
        let endpoint = Endpoint { address: "10.1.0.8:5353".parse().unwrap(), local: false };
        let fragment = Fragment {
            udp: BTreeMap::from([(([10, 96, 0, 10].into(), 53), BTreeSet::from([endpoint]))]),
            udp_node_ports: BTreeMap::from([(30053, BTreeSet::from([endpoint]))]),
            ..Fragment::default()
        };
        let stale = stale(LISTING, &Targets::collect([fragment].iter()));
        let ports: Vec<u16> = stale.iter().map(|flow| flow.source_port).collect();
        // The old endpoint, the flow from before there was a rule, and the old endpoint behind a node port.
        assert_eq!(ports, [4000, 4002, 4005]);
    }
}
