//! The host ports of a pod, so that those of another are looked up and not compared with each.
//!
//! The rule is that of `coracle_api::scheduling::HostPort::conflicts`.

use coracle_api::scheduling::HostPort;

/// Sorted, each once: port, protocol, address; an empty address for all of the node's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ports(Vec<(i32, String, String)>);

impl Ports {
    pub(crate) fn of(ports: impl Iterator<Item = HostPort>) -> Self {
        let mut known: Vec<_> = ports
            .map(|HostPort { ip, protocol, port }| {
                let is_wildcard = matches!(ip.as_str(), "0.0.0.0" | "::");
                (port, protocol, if is_wildcard { String::new() } else { ip })
            })
            .collect();
        known.sort_unstable();
        known.dedup();
        Self(known)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether both cannot be on one node.
    pub(crate) fn conflict(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() < other.0.len() {
            (self, other)
        } else {
            (other, self)
        };
        few.0.iter().any(|port| many.has_conflicting(port))
    }

    fn has_conflicting(&self, (port, protocol, ip): &(i32, String, String)) -> bool {
        let at = |ip: &str| {
            let sought = (*port, protocol.as_str(), ip);
            self.0
                .binary_search_by(|(port, protocol, ip)| (*port, &**protocol, &**ip).cmp(&sought))
        };
        match at("") {
            // On all addresses.
            Ok(_) => true,
            // Whatever comes next has the same port if any address of it is taken.
            Err(next) if ip.is_empty() => self
                .0
                .get(next)
                .is_some_and(|(taken, taken_by, _)| taken == port && taken_by == protocol),
            Err(_) => at(ip).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ports() -> impl Strategy<Value = Vec<HostPort>> {
        let port = (1..3_i32, 0..2_usize, 0..5_usize).prop_map(|(port, protocol, ip)| HostPort {
            port,
            protocol: ["TCP", "UDP"][protocol].to_owned(),
            ip: ["", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2"][ip].to_owned(),
        });
        proptest::collection::vec(port, 0..4)
    }

    proptest! {
        #[test]
        fn they_conflict_as_if_each_were_compared(one in ports(), other in ports()) {
            let expected = one.iter().any(|wanted| other.iter().any(|taken| wanted.conflicts(taken)));
            prop_assert_eq!(Ports::of(one.into_iter()).conflict(&Ports::of(other.into_iter())), expected);
        }
    }
}
