//! Rules of published ports: see [`crate::host_port`].
//!
//! ```text
//! nat PREROUTING, OUTPUT -m addrtype --dst-type LOCAL -> CORACLE-HOSTPORTS: -p tcp --dport N -> CORACLE-HP-<pod>: DNAT
//! nat POSTROUTING -> CORACLE-HP-MASQ: -s POD -d POD MASQUERADE   (a pod that reaches itself through the node)
//! ```

use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use super::{
    Iptables, IptablesError,
    plan::{Chain, Desired, Jump},
};
use crate::host_port::PodPorts;

const DISPATCH: &str = "CORACLE-HOSTPORTS";
const MASQ: &str = "CORACLE-HP-MASQ";

/// Publishes these ports and no others: writes the difference. Returns whether there was any.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, pods: &[PodPorts]) -> Result<bool, IptablesError> {
    iptables.ensure("nat", &plan(pods))
}

pub(crate) fn plan(pods: &[PodPorts]) -> Desired {
    // `CORACLE-HOSTPORTS` does not start with this, so it is owned by name as well.
    let mut desired = Desired {
        owned_prefixes: vec!["CORACLE-HP-", DISPATCH],
        ..Desired::default()
    };
    if pods.is_empty() {
        return desired;
    }
    let (mut dispatch, mut hairpin) = (Vec::new(), Vec::new());
    for pod in pods {
        let digest: String = Sha256::digest(&pod.id)[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let chain = format!("CORACLE-HP-{digest}");
        let (address, host) = (pod.address, IpNet::from(pod.address));
        let mut translate = Vec::new();
        for mapping in &pod.ports {
            let on = match mapping.host_ip {
                Some(address) => format!("-d {} ", IpNet::from(address)),
                None => "! -d 127.0.0.0/8 ".to_owned(),
            };
            let (protocol, inner) = (mapping.protocol.as_str(), mapping.container_port);
            let port = format!("-p {protocol} -m {protocol} --dport {}", mapping.host_port);
            dispatch.push(format!("{on}{port} -j {chain}"));
            translate.push(format!("{port} -j DNAT --to-destination {address}:{inner}"));
            hairpin.push(format!(
                "-s {host} -d {host} -p {protocol} -m {protocol} --dport {inner} -j MASQUERADE"
            ));
        }
        desired.chains.insert(chain, Chain::sequence(translate));
    }
    desired.chains.insert(DISPATCH.into(), Chain::set(dispatch));
    desired.chains.insert(MASQ.into(), Chain::set(hairpin));
    for from in ["PREROUTING", "OUTPUT"] {
        let rule = format!("-m addrtype --dst-type LOCAL -j {DISPATCH}");
        desired.jumps.push(Jump {
            from,
            rule,
            first: false,
        });
    }
    desired.jumps.push(Jump {
        from: "POSTROUTING",
        rule: format!("-j {MASQ}"),
        first: true,
    });
    desired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host_port::HostPort, service::Protocol};

    #[test]
    fn every_mapping_has_its_way_in_and_through() {
        let mapping = |host_ip: Option<[u8; 4]>| HostPort {
            protocol: Protocol::Tcp,
            host_ip: host_ip.map(Into::into),
            host_port: 8080,
            container_port: 80,
        };
        let ports = vec![mapping(None), mapping(Some([192, 168, 0, 1]))];
        let desired = plan(&[PodPorts {
            id: "abc".to_owned(),
            address: [10, 0, 0, 5].into(),
            ports,
        }]);
        let chain = desired
            .chains
            .keys()
            .find(|name| name.starts_with("CORACLE-HP-") && *name != MASQ)
            .unwrap();
        assert!(chain.len() <= 28);
        assert_eq!(
            desired.chains[DISPATCH].rules,
            [
                format!("! -d 127.0.0.0/8 -p tcp -m tcp --dport 8080 -j {chain}"),
                format!("-d 192.168.0.1/32 -p tcp -m tcp --dport 8080 -j {chain}")
            ]
        );
        assert_eq!(
            desired.chains[chain].rules[0],
            "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80"
        );
        assert_eq!(
            desired.chains[MASQ].rules[0],
            "-s 10.0.0.5/32 -d 10.0.0.5/32 -p tcp -m tcp --dport 80 -j MASQUERADE"
        );
    }

    #[test]
    fn nothing_published_leaves_no_chain() {
        let desired = plan(&[]);
        assert!(desired.chains.is_empty() && desired.jumps.is_empty());
    }
}
