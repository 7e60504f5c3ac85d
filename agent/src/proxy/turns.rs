//! Between what changed and what is written next: what a Service may not have is taken away, and
//! one of very many rules does not keep the others waiting. Pure.

use std::collections::{BTreeMap, BTreeSet};

use coracle_netfilter::{
    engine::Refusal,
    service::{ServiceKey, ServiceView},
};

use super::{
    News,
    holdings::{Holdings, Place},
    node_ports::NodePorts,
    sources::Changed,
};

/// Most ports of a Service that gets rules, times its addresses beyond the cluster's. The kernel
/// takes about a second for these, in which nothing else changes.
const MOST_PORTS: usize = 5_000;
/// A Service of about so many rules goes after the others, and alone.
const WIDE: usize = 1_000;
/// But not after more than so many turns of theirs.
const MOST_WAITS: u32 = 20;

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Turns {
    holdings: Holdings,
    node_ports: NodePorts,
    waiting: BTreeMap<ServiceKey, Option<ServiceView>>,
    /// How often wide ones have let others go first.
    waited: u32,
    /// Those whose rules, as they were written last, are many.
    wide: BTreeSet<ServiceKey>,
    /// Those that have external addresses, as they are.
    external: BTreeMap<ServiceKey, External>,
    news: Vec<News>,
}

#[derive(Debug)]
struct External {
    view: ServiceView,
    /// Of what is withheld, what its status does not give it.
    not_given: BTreeSet<Place>,
}

impl Turns {
    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Which have something to write.
    pub(super) fn waiting(&self) -> BTreeSet<ServiceKey> {
        self.waiting.keys().cloned().collect()
    }

    /// Those with addresses of their owner's choice, without what is somebody else's.
    pub(super) fn external(&self) -> BTreeMap<ServiceKey, ServiceView> {
        let all = self.external.iter();
        all.map(|(key, known)| (key.clone(), known.view.clone()))
            .collect()
    }

    /// Takes changes in.
    pub(super) fn add(&mut self, changes: Vec<Changed>) {
        let mut are_ports_changed = false;
        for (key, view) in &changes {
            are_ports_changed |= self.node_ports.set(key, view.as_ref());
        }
        for (key, view) in changes {
            self.take_in(key, view);
        }
        if are_ports_changed {
            self.look_again();
        }
    }

    fn take_in(&mut self, key: ServiceKey, view: Option<ServiceView>) {
        let before = self
            .external
            .remove(&key)
            .map(|known| known.view.withheld)
            .unwrap_or_default();
        let mut not_given = BTreeSet::new();
        let view = view.map(|mut view| {
            not_given = std::mem::take(&mut view.withheld);
            view.withheld = self.withheld(&key, &view, &not_given);
            view
        });
        let is_too_large = view.as_ref().is_some_and(|view| self.refuses(&key, view));
        if let Some(view) = view.as_ref().filter(|view| has_external(view)) {
            let known = External {
                view: view.clone(),
                not_given,
            };
            if !is_too_large {
                self.tell(&key, &known, &before);
            }
            // Also one that is too large: it may be less so when others have more.
            self.external.insert(key.clone(), known);
        }
        self.waiting.insert(key, view.filter(|_| !is_too_large));
    }

    fn withheld(
        &self,
        key: &ServiceKey,
        view: &ServiceView,
        not_given: &BTreeSet<Place>,
    ) -> BTreeSet<Place> {
        let mut withheld = self.holdings.among(view, |protocol, port| {
            self.node_ports.is_of_another(key, (protocol, port))
        });
        withheld.extend(not_given);
        withheld
    }

    /// Who is where now.
    pub(super) fn set_holdings(&mut self, holdings: Holdings) {
        self.holdings = holdings;
        self.look_again();
    }

    /// What others have now may be more or less.
    fn look_again(&mut self) {
        let differing = self.external.iter().filter(|(key, known)| {
            let withheld = self.withheld(key, &known.view, &known.not_given);
            withheld != known.view.withheld
        });
        let again: Vec<Changed> = differing
            .map(|(key, known)| {
                let mut view = known.view.clone();
                view.withheld.clone_from(&known.not_given);
                (key.clone(), Some(view))
            })
            .collect();
        for (key, view) in again {
            self.take_in(key, view);
        }
    }

    /// Everything.
    pub(super) fn take_all(&mut self) -> Vec<Changed> {
        let all = std::mem::take(&mut self.waiting);
        self.taken(all)
    }

    /// As much as goes into one transaction.
    pub(super) fn take(&mut self) -> Vec<Changed> {
        let all = std::mem::take(&mut self.waiting);
        let is_wide = |(key, view): &(ServiceKey, Option<ServiceView>)| {
            self.wide.contains(key) || view.as_ref().is_some_and(|view| size(view) > WIDE)
        };
        let (mut wide, narrow): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(is_wide);
        if narrow.is_empty() || self.waited >= MOST_WAITS {
            self.waited = 0;
            let turn = wide.pop_first().into_iter().collect();
            self.waiting = narrow;
            self.waiting.append(&mut wide);
            return self.taken(turn);
        }
        self.waited = if wide.is_empty() { 0 } else { self.waited + 1 };
        self.waiting = wide;
        self.taken(narrow)
    }

    /// What others should know since the last call.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn taken(&mut self, turn: BTreeMap<ServiceKey, Option<ServiceView>>) -> Vec<Changed> {
        for (key, view) in &turn {
            if view.as_ref().is_some_and(|view| size(view) > WIDE) {
                self.wide.insert(key.clone());
            } else {
                self.wide.remove(key);
            }
        }
        turn.into_iter().collect()
    }

    fn refuses(&mut self, key: &ServiceKey, view: &ServiceView) -> bool {
        let is_too_large = is_too_large(view);
        if is_too_large {
            let ports = count_ports(view);
            let why = format!(
                "it has {ports} ports, on all of its addresses, and {MOST_PORTS} are the most"
            );
            tracing::warn!(service = %key, why, "a Service gets no rules");
            self.news.push(News::Refused(Refusal {
                service: key.clone(),
                uid: view.uid.clone(),
                why,
            }));
        }
        is_too_large
    }

    /// Of what is withheld, if that is new. That another node serves a balancer's address of its
    /// own is as it should be, and whoever gives out addresses tells of what it does not give.
    fn tell(&mut self, key: &ServiceKey, known: &External, before: &BTreeSet<Place>) {
        let view = &known.view;
        let is_known = |place: &Place| {
            let is_anothers =
                view.balancer_ips.contains(&place.0) && self.holdings.is_anothers(&place.0);
            is_anothers || known.not_given.contains(place)
        };
        let is_news = |place: &&Place| !is_known(place);
        let withheld: BTreeSet<&Place> = view.withheld.iter().filter(is_news).collect();
        if withheld.is_empty() || before.iter().filter(is_news).eq(withheld.iter().copied()) {
            return;
        }
        let named = withheld.iter().take(3);
        let mut named: Vec<String> = named
            .map(|(ip, protocol, port)| format!("{ip}:{port}/{}", protocol.as_str()))
            .collect();
        if withheld.len() > named.len() {
            named.push("...".to_owned());
        }
        let why = named.join(", ");
        tracing::warn!(service = %key, why, "external addresses of a Service are left to the nodes");
        self.news.push(News::Withheld(Refusal {
            service: key.clone(),
            uid: view.uid.clone(),
            why,
        }));
    }
}

/// Whether it has more ports than get rules.
pub(super) fn is_too_large(view: &ServiceView) -> bool {
    count_ports(view) > MOST_PORTS
}

/// On all of its addresses.
fn count_ports(view: &ServiceView) -> usize {
    let addresses = 1 + view.external_ips.len() + view.balancer_ips.len();
    // Every node's address is a balancer's, and rules are written for the own ones alone.
    let ports = view.ports.len().saturating_mul(addresses);
    ports.saturating_sub(view.withheld.len())
}

/// Whether it has addresses that its owner chose.
pub(super) fn has_external(view: &ServiceView) -> bool {
    !view.external_ips.is_empty() || !view.balancer_ips.is_empty()
}

/// About how many rules it has.
fn size(view: &ServiceView) -> usize {
    let addresses = view.cluster_ips.len() + view.external_ips.len() + view.balancer_ips.len();
    let ports = view.ports.iter();
    let rules: usize = ports
        .map(|port| 1 + addresses + port.cluster.len() + port.local.len())
        .sum();
    rules.saturating_sub(view.withheld.len())
}

#[cfg(test)]
mod tests;
