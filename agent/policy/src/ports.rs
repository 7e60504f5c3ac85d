//! The ports of one rule of a policy, read once for all of its peers. Pure.

use std::collections::BTreeSet;

use coracle_netfilter::service::Protocol;
use k8s_openapi::{
    api::networking::v1::NetworkPolicyPort, apimachinery::pkg::util::intstr::IntOrString,
};

/// Protocol, first and last port.
type Range = (Protocol, u16, u16);

/// What a rule says of ports.
#[derive(Debug)]
pub(crate) struct RulePorts {
    /// Nothing: all of them.
    pub(crate) is_any: bool,
    /// Disjoint, sorted, neighbours joined.
    pub(crate) numbers: Vec<Range>,
    pub(crate) names: BTreeSet<(String, Protocol)>,
}

impl RulePorts {
    /// # Errors
    /// The port that cannot be read.
    pub(crate) fn read(ports: &[NetworkPolicyPort]) -> Result<Self, String> {
        let (mut numbers, mut names) = (Vec::new(), BTreeSet::new());
        for port in ports {
            let error = || format!("{port:?}");
            let protocol = Protocol::parse(port.protocol.as_deref()).ok_or_else(error)?;
            match (&port.port, port.end_port) {
                (None, None) => numbers.push((protocol, 0, u16::MAX)),
                (Some(IntOrString::Int(first)), last) => {
                    let first = u16::try_from(*first).map_err(|_| error())?;
                    let last = last.map_or(Ok(first), u16::try_from).map_err(|_| error())?;
                    if last < first {
                        return Err(error());
                    }
                    numbers.push((protocol, first, last));
                }
                (Some(IntOrString::String(name)), None) => {
                    names.insert((name.clone(), protocol));
                }
                (None | Some(IntOrString::String(_)), Some(_)) => return Err(error()),
            }
        }
        Ok(Self {
            is_any: ports.is_empty(),
            numbers: joined(numbers),
            names,
        })
    }
}

fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for range in ranges {
        if let Some(before) = joined.last_mut()
            && before.0 == range.0
            && range.1 <= before.2.saturating_add(1)
        {
            before.2 = before.2.max(range.2);
        } else {
            joined.push(range);
        }
    }
    joined
}
