//! Which pods the tracker is told of: those that the API shows, and those that this node has
//! attached before the API shows their address. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_api::cluster_dns;
use coracle_netfilter::service::Protocol;
use coracle_policy::objects::{Labels, NamedPort, PodKey, PodView};

use crate::runtime::types::{PodUid, SandboxId};

/// A pod's place in this node's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) sandbox: SandboxId,
    pub(crate) pod: PodKey,
    pub(crate) uid: PodUid,
    pub(crate) labels: Labels,
    pub(crate) addresses: Vec<IpAddr>,
}

/// What the API shows under a name.
#[derive(Debug, Clone)]
pub(super) struct SeenPod {
    pub(super) uid: Option<String>,
    pub(super) view: PodView,
}

/// What is attached to this node's network, by pod.
#[derive(Debug)]
pub(super) struct Attached {
    node: String,
    pods: BTreeMap<PodKey, BTreeMap<SandboxId, Attachment>>,
    /// Other keys than its name that policies see a pod under: there are several of the name, or
    /// the API does not show it.
    told: BTreeMap<PodKey, BTreeSet<PodKey>>,
}

impl Attached {
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            pods: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, attachment: Attachment) {
        let of_pod = self.pods.entry(attachment.pod.clone()).or_default();
        of_pod.insert(attachment.sandbox.clone(), attachment);
    }

    /// Returns the addresses that others may have from now on.
    pub(super) fn remove(&mut self, pod: &PodKey, sandbox: &SandboxId) -> Vec<IpAddr> {
        let Some(of_pod) = self.pods.get_mut(pod) else {
            return Vec::new();
        };
        let removed = of_pod.remove(sandbox);
        if of_pod.is_empty() {
            self.pods.remove(pod);
        }
        removed.map(|one| one.addresses).unwrap_or_default()
    }

    /// The pods of a name as policies shall see them, `seen` being what the API shows, and `None`
    /// for those that are no more. One that ends keeps its policies until it is detached, also when
    /// the API shows its successor or none; of one of this node that is detached, the address may
    /// be the next one's, whatever the API still shows.
    pub(super) fn views(
        &mut self,
        key: &PodKey,
        seen: Option<&SeenPod>,
    ) -> BTreeMap<PodKey, Option<PodView>> {
        let told = self.told.remove(key).unwrap_or_default();
        let mut views: BTreeMap<PodKey, Option<PodView>> =
            told.into_iter().map(|key| (key, None)).collect();
        let elsewhere = seen.filter(|seen| *seen.view.node != *self.node);
        views.insert(key.clone(), elsewhere.map(|seen| seen.view.clone()));
        let own = self.pods.get_mut(key);
        for one in own.into_iter().flat_map(BTreeMap::values_mut) {
            // As it was shown last, also when its successor is shown.
            if let Some(seen) = seen.filter(|seen| seen.uid.as_ref() == Some(&one.uid.0)) {
                one.labels = seen.view.labels.clone();
            }
        }
        let mut by_uid: BTreeMap<&PodUid, Vec<&Attachment>> = BTreeMap::new();
        for one in self.pods.get(key).into_iter().flat_map(BTreeMap::values) {
            by_uid.entry(&one.uid).or_default().push(one);
        }
        for (uid, ones) in by_uid {
            let seen = seen.filter(|seen| seen.uid.as_ref() == Some(&uid.0));
            let at = match seen {
                Some(_) => key.clone(),
                // No pod can be called so.
                None => PodKey::new(&key.namespace, &format!("{} ({})", key.name, uid.0)),
            };
            views.insert(at.clone(), self.view(at, &ones, seen));
        }
        let others = views
            .iter()
            .filter(|(at, view)| *at != key && view.is_some());
        let others: BTreeSet<PodKey> = others.map(|(at, _)| at.clone()).collect();
        if !others.is_empty() {
            self.told.insert(key.clone(), others);
        }
        views
    }

    fn view(&self, key: PodKey, ones: &[&Attachment], seen: Option<&SeenPod>) -> Option<PodView> {
        let seen = seen.map(|seen| &seen.view);
        let addresses: BTreeSet<IpAddr> = ones
            .iter()
            .flat_map(|one| &one.addresses)
            .copied()
            .collect();
        let labels = ones.last()?.labels.clone();
        (!addresses.is_empty()).then(|| PodView {
            key,
            labels,
            addresses: addresses.into_iter().collect(),
            node: (*self.node).into(),
            ports: seen.map(|seen| seen.ports.clone()).unwrap_or_default(),
        })
    }
}

/// The label of what answers names in every cluster.
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");

/// What this node serves as cluster DNS, as a pod.
pub(super) fn answers_names(address: IpAddr) -> PodView {
    let port = |name: &str, protocol| NamedPort {
        name: name.into(),
        protocol,
        port: cluster_dns::PORT,
    };
    PodView {
        // No pod can be called so.
        key: PodKey::new(cluster_dns::NAMESPACE, "(this node)"),
        labels: Labels::new([DNS_LABEL]),
        addresses: vec![address],
        node: "".into(),
        ports: vec![port("dns", Protocol::Udp), port("dns-tcp", Protocol::Tcp)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(sandbox: &str, uid: &str, address: u8) -> Attachment {
        Attachment {
            sandbox: SandboxId(sandbox.to_owned()),
            pod: PodKey::new("ns", "a"),
            uid: PodUid(uid.to_owned()),
            labels: Labels::new([("app", uid)]),
            addresses: vec![[10, 1, 0, address].into()],
        }
    }

    fn seen(uid: &str, node: &str, address: u8, app: &str) -> SeenPod {
        SeenPod {
            uid: Some(uid.to_owned()),
            view: PodView {
                key: PodKey::new("ns", "a"),
                labels: Labels::new([("app", app)]),
                addresses: vec![[10, 1, 0, address].into()],
                node: node.into(),
                ports: Vec::new(),
            },
        }
    }

    /// Who is seen: node, label, last numbers of addresses; and how many are no more.
    fn views(attached: &mut Attached, seen: Option<&SeenPod>) -> (Vec<String>, usize) {
        let views = attached.views(&PodKey::new("ns", "a"), seen);
        let gone = views.values().filter(|view| view.is_none()).count();
        let said = views.into_values().flatten().map(|view| {
            let addresses = view.addresses.iter().map(ToString::to_string);
            let addresses: Vec<String> = addresses.collect();
            let app = view.labels.get("app").unwrap_or_default().to_owned();
            format!("{} {app} {}", view.node, addresses.join(" "))
        });
        (said.collect(), gone)
    }

    fn said(all: &[&str], gone: usize) -> (Vec<String>, usize) {
        (all.iter().map(|one| (*one).to_owned()).collect(), gone)
    }

    #[test]
    fn what_is_attached_is_known_before_the_api_shows_it_and_after() {
        let mut attached = Attached::new("here");
        assert_eq!(views(&mut attached, None), said(&[], 1));
        let there = seen("other", "there", 9, "b");
        assert_eq!(
            views(&mut attached, Some(&there)),
            said(&["there b 10.1.0.9"], 0)
        );
        attached.add(attachment("1", "u", 5));
        assert_eq!(views(&mut attached, None), said(&["here u 10.1.0.5"], 1));
        // The API shows it, with labels of now; what it was told as before is no more.
        let shown = seen("u", "here", 5, "b");
        let expect = said(&["here b 10.1.0.5"], 1);
        assert_eq!(views(&mut attached, Some(&shown)), expect);
        assert_eq!(
            views(&mut attached, Some(&shown)),
            said(&["here b 10.1.0.5"], 0)
        );
        let freed: [IpAddr; 1] = [[10, 1, 0, 5].into()];
        let (key, sandbox) = (PodKey::new("ns", "a"), SandboxId("1".to_owned()));
        assert_eq!(attached.remove(&key, &sandbox), freed);
        assert!(attached.remove(&key, &sandbox).is_empty());
        // Its address may be another's by now.
        assert_eq!(views(&mut attached, Some(&shown)), said(&[], 1));
    }

    #[test]
    fn a_successor_of_the_same_name_has_policies_of_its_own() {
        let mut attached = Attached::new("here");
        attached.add(attachment("2", "old", 5));
        let old = seen("old", "here", 5, "open");
        assert_eq!(
            views(&mut attached, Some(&old)),
            said(&["here open 10.1.0.5"], 0)
        );
        // The watch of peers is behind: the new one is not what the API shows still.
        attached.add(attachment("1", "new", 6));
        let both = said(&["here open 10.1.0.5", "here new 10.1.0.6"], 0);
        assert_eq!(views(&mut attached, Some(&old)), both);
        // It catches up: the old one goes on under its own labels until it is detached.
        let new = seen("new", "here", 6, "shut");
        let (both, _) = views(&mut attached, Some(&new));
        assert_eq!(both, ["here shut 10.1.0.6", "here open 10.1.0.5"]);
        // Moved to another node, while this one still ends it here.
        let moved = seen("third", "there", 9, "moved");
        let (all, _) = views(&mut attached, Some(&moved));
        assert_eq!(
            all,
            [
                "there moved 10.1.0.9",
                "here shut 10.1.0.6",
                "here open 10.1.0.5"
            ]
        );
        let key = PodKey::new("ns", "a");
        for sandbox in ["1", "2"] {
            attached.remove(&key, &SandboxId(sandbox.to_owned()));
        }
        assert_eq!(
            views(&mut attached, Some(&moved)),
            said(&["there moved 10.1.0.9"], 2)
        );
        assert_eq!(
            views(&mut attached, Some(&moved)),
            said(&["there moved 10.1.0.9"], 0)
        );
    }
}
