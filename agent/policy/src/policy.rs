//! A `NetworkPolicy`, parsed once into rules over groups.
//!
//! Source: `k8s.io/api/networking/v1/types.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_api::selector::{LabelSelector, ParseSelectorError};
use coracle_netfilter::{
    policy::{Direction, GroupId, IpRange, Peer, PolicyKey, PortElement, PortGroupId, Ports, Rule},
    service::Protocol,
};
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::apis::meta::v1 as meta,
};
use thiserror::Error;

use crate::{
    blocks,
    id::digest,
    objects::{Labels, NamedPort, PodView},
    ports::RulePorts,
    size::{OF_POLICY, Size},
};

/// A policy that the API server should have refused. [`Policy::shut`] is what it is enforced as.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// It has no namespace or no name.
    #[error("the policy has no namespace or no name")]
    Nameless,
    /// A selector says what no selector can.
    #[error("a selector of the policy cannot be read; correct it")]
    Selector(#[from] ParseSelectorError),
    /// An `ipBlock` or one of its excepts.
    #[error("{0:?} in an ipBlock of the policy is no range such as 10.0.0.0/8; correct it")]
    Block(String),
    /// A protocol, a number or an `endPort`.
    #[error("port {0} of the policy cannot be read; correct protocol, port and endPort")]
    Port(String),
    /// Peers and ports multiply.
    #[error(
        "the policy has more rules than {}, or more ports and ranges than {}, each peer counted with all ports beside it; split it", OF_POLICY.rules, OF_POLICY.parts
    )]
    TooLarge,
}

/// Where the pods of a group are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// In the policy's own namespace.
    Own(String),
    /// In namespaces with such labels. One that was not seen yet is not selected.
    Selected(LabelSelector),
    /// Anywhere, seen or not.
    All,
}

/// What selects a group's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupSpec {
    pub(crate) namespaces: Namespaces,
    pub(crate) pods: LabelSelector,
}

impl GroupSpec {
    pub(crate) fn selects(&self, pod: &PodView, namespace: Option<&Labels>) -> bool {
        let is_inside = match &self.namespaces {
            Namespaces::All => true,
            Namespaces::Own(name) => **name == *pod.key.namespace,
            Namespaces::Selected(selector) => {
                namespace.is_some_and(|labels| selector.matches(|key| labels.get(key)))
            }
        };
        is_inside && self.pods.matches(|key| pod.labels.get(key))
    }

    fn digest(&self) -> String {
        let (kind, namespaces) = match &self.namespaces {
            Namespaces::Own(name) => ("own", name.clone()),
            Namespaces::Selected(selector) => ("selected", selector.to_string()),
            Namespaces::All => ("all", String::new()),
        };
        digest([kind, &namespaces, &self.pods.to_string()])
    }

    fn id(&self) -> GroupId {
        GroupId::new(&self.digest())
    }
}

/// What selects a port group's elements: the ports of this name and protocol of a group's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortGroupSpec {
    pub(crate) group: GroupSpec,
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
}

impl PortGroupSpec {
    pub(crate) fn elements(&self, pod: &PodView) -> Vec<PortElement> {
        let is_meant = |p: &&NamedPort| *p.name == *self.name && p.protocol == self.protocol;
        let ports = pod.ports.iter().filter(is_meant);
        ports
            .flat_map(|p| pod.addresses.iter().map(|a| (*a, p.protocol, p.port)))
            .collect()
    }

    fn id(&self) -> PortGroupId {
        let group = self.group.digest();
        PortGroupId::new(&digest([&*group, &*self.name, self.protocol.as_str()]))
    }
}

/// The rules of one direction and the groups they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) digest: String,
    pub(crate) rules: Vec<Rule>,
    /// Where in the object's list each of them comes from.
    pub(crate) places: Vec<usize>,
    pub(crate) groups: BTreeMap<GroupId, GroupSpec>,
    pub(crate) port_groups: BTreeMap<PortGroupId, PortGroupSpec>,
}

impl Side {
    /// With the digest of its rules.
    fn sealed(mut self) -> Self {
        let text = format!("{:?}", self.rules);
        self.digest = digest([&*text]);
        self
    }

    /// Lets nothing through.
    fn nothing() -> Self {
        Self::default().sealed()
    }
}

/// A policy as the tracker keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) key: PolicyKey,
    pub(crate) pods: LabelSelector,
    pub(crate) ingress: Option<Side>,
    pub(crate) egress: Option<Side>,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// It says what the API server refuses.
    pub fn from_object(object: &NetworkPolicy) -> Result<Self, PolicyError> {
        let (Some(namespace), Some(name)) = (&object.metadata.namespace, &object.metadata.name)
        else {
            return Err(PolicyError::Nameless);
        };
        let spec = object.spec.clone().unwrap_or_default();
        let pods = selector(spec.pod_selector.as_ref())?;
        let Types {
            ingress: to,
            egress: from,
        } = Types::of(&spec);
        let ingress = spec.ingress.unwrap_or_default();
        let egress = spec.egress.unwrap_or_default();
        let own = |direction| Builder {
            direction,
            namespace: namespace.as_str(),
            selected: GroupSpec {
                namespaces: Namespaces::Own(namespace.clone()),
                pods: pods.clone(),
            },
            side: Side::default(),
        };
        let ingress = ingress
            .iter()
            .map(|r| (r.from.as_deref(), r.ports.as_deref()));
        let egress = egress.iter().map(|r| (r.to.as_deref(), r.ports.as_deref()));
        let build = |wanted: bool, builder: Builder<'_>, rules: Vec<_>| {
            wanted.then(|| builder.build(rules)).transpose()
        };
        Ok(Self {
            ingress: build(to, own(Direction::Ingress), ingress.collect())?,
            egress: build(from, own(Direction::Egress), egress.collect())?,
            key: PolicyKey {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            pods: pods.clone(),
        })
    }

    /// One that cannot be read: whom it selects, as far as that can be told, gets and sends nothing
    /// until it is corrected. Its rules would only let more through.
    #[must_use]
    pub fn shut(key: PolicyKey, object: &NetworkPolicy) -> Self {
        let spec = object.spec.clone().unwrap_or_default();
        let types = Types::of(&spec);
        let nothing = |wanted: bool| wanted.then(Side::nothing);
        Self {
            ingress: nothing(types.ingress),
            egress: nothing(types.egress),
            pods: selector(spec.pod_selector.as_ref())
                .unwrap_or_else(|_| LabelSelector::everything()),
            key,
        }
    }

    pub(crate) fn side(&self, direction: Direction) -> Option<&Side> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// What a policy is about.
struct Types {
    ingress: bool,
    egress: bool,
}

impl Types {
    /// The API server fills them in; what wrote the object otherwise may not have.
    fn of(spec: &NetworkPolicySpec) -> Self {
        let told = spec.policy_types.as_ref().filter(|told| !told.is_empty());
        let is_told = |name: &str| told.map(|told| told.iter().any(|one| one == name));
        let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        Self {
            ingress: is_told("Ingress").unwrap_or(true),
            egress: is_told("Egress").unwrap_or(has_egress),
        }
    }
}

type RuleParts<'a> = (
    Option<&'a [NetworkPolicyPeer]>,
    Option<&'a [NetworkPolicyPort]>,
);

struct Builder<'a> {
    direction: Direction,
    namespace: &'a str,
    selected: GroupSpec,
    side: Side,
}

impl Builder<'_> {
    fn build(mut self, rules: Vec<RuleParts<'_>>) -> Result<Side, PolicyError> {
        let mut size = Size::new(OF_POLICY);
        for (place, (peers, ports)) in rules.into_iter().enumerate() {
            let ports = RulePorts::read(ports.unwrap_or_default()).map_err(PolicyError::Port)?;
            for (peer, group) in self.peers(peers.unwrap_or_default())? {
                for ports in self.ports(&ports, group.as_ref()) {
                    let peer = peer.clone();
                    let rule = Rule { peer, ports };
                    if !size.takes(&rule) {
                        return Err(PolicyError::TooLarge);
                    }
                    self.side.rules.push(rule);
                    self.side.places.push(place);
                }
            }
        }
        Ok(self.side.sealed())
    }

    /// One peer a group, one for all blocks together.
    fn peers(
        &mut self,
        peers: &[NetworkPolicyPeer],
    ) -> Result<Vec<(Peer, Option<GroupSpec>)>, PolicyError> {
        if peers.is_empty() {
            return Ok(vec![(Peer::Any, None)]);
        }
        let (mut found, mut ranges) = (Vec::new(), Vec::new());
        let mut named = BTreeSet::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                ranges.extend(block_ranges(block)?);
                continue;
            }
            let namespaces = match &peer.namespace_selector {
                Some(namespaces) => Namespaces::Selected(selector(Some(namespaces))?),
                // A peer that says nothing is refused by the API server; here it is nobody.
                None if peer.pod_selector.is_none() => continue,
                None => Namespaces::Own(self.namespace.to_owned()),
            };
            let pods = selector(peer.pod_selector.as_ref())?;
            let group = GroupSpec { namespaces, pods };
            let id = group.id();
            if named.insert(id.clone()) {
                self.side.groups.insert(id.clone(), group.clone());
                found.push((Peer::Group(id), Some(group)));
            }
        }
        if !ranges.is_empty() {
            found.push((Peer::Blocks(blocks::union(ranges)), None));
        }
        Ok(found)
    }

    /// One for all numbers together, one a name.
    fn ports(&mut self, ports: &RulePorts, peers: Option<&GroupSpec>) -> Vec<Ports> {
        if ports.is_any {
            return vec![Ports::Any];
        }
        let mut found = Vec::new();
        for (name, protocol) in &ports.names {
            let spec = PortGroupSpec {
                group: self.destinations(peers),
                name: name.clone(),
                protocol: *protocol,
            };
            let id = spec.id();
            self.side.port_groups.insert(id.clone(), spec);
            found.push(Ports::Named(id));
        }
        if !ports.numbers.is_empty() {
            found.push(Ports::Numbers(ports.numbers.clone()));
        }
        found
    }

    /// Whose ports a name means: the selected pods' own, or the peers'; any pod's where the peers
    /// are not pods.
    fn destinations(&self, peers: Option<&GroupSpec>) -> GroupSpec {
        match (self.direction, peers) {
            (Direction::Ingress, _) => self.selected.clone(),
            (Direction::Egress, Some(peers)) => peers.clone(),
            (Direction::Egress, None) => GroupSpec {
                namespaces: Namespaces::All,
                pods: LabelSelector::everything(),
            },
        }
    }
}

/// Absent selects everything: where it means something else, the caller knows.
fn selector(selector: Option<&meta::LabelSelector>) -> Result<LabelSelector, ParseSelectorError> {
    selector.map_or_else(
        || Ok(LabelSelector::everything()),
        |selector| LabelSelector::from_object(&serde_json::json!(selector)),
    )
}

fn block_ranges(block: &IPBlock) -> Result<Vec<IpRange>, PolicyError> {
    let excepts = block.except.iter().flatten().map(|text| net(text));
    let excepts = excepts.collect::<Result<Vec<_>, _>>()?;
    Ok(blocks::without(net(&block.cidr)?, &excepts))
}

fn net(text: &str) -> Result<IpNet, PolicyError> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>()
        .or_else(|_| address())
        .map_err(|_| PolicyError::Block(text.to_owned()))
}
