//! The ranges that addresses of Services are from: the one that the agent was told, and what the
//! ServiceCIDRs say, also those that are being deleted: their addresses are in use until they go.
//!
//! A Service works whatever its address. What a range adds: what has no rule in it is refused, what
//! comes from elsewhere is masqueraded, nobody's external address is in it. When the ranges change
//! a new engine takes over the rules of the one before: that happens a few times a year.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use coracle_client::{
    cache::{Cache, Change, Key},
    feed::Feed,
};
use coracle_netfilter::{chosen, engine::ServiceEngine, service::ServiceNetwork, service_engine};
use ipnet::IpNet;

use super::{News, ProxyConfig, ProxyError, Sources, service_route::ServiceRoute};
use crate::informers::{Informers, SeenNode, SeenServiceCidr};

/// How long Services wait for ranges once they are known themselves: without these they work.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the ServiceCIDRs say, and where nodes are. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct ServiceCidrs {
    feed: Feed,
    cache: Arc<Cache<SeenServiceCidr>>,
}

impl ServiceCidrs {
    pub(super) fn new(informers: &mut Informers) -> Self {
        let mut feed = Feed::default();
        feed.follow(&mut informers.service_cidrs, |change| {
            [Key::of(change.latest().as_ref())]
        });
        feed.follow(&mut informers.nodes, |change| {
            let address = |node: &SeenNode| node.part.network.address;
            let is_there = match change {
                Change::Updated { old, new } => address(old) == address(new),
                Change::Added(_) | Change::Deleted(_) => false,
            };
            (!is_there).then(|| Key::of(change.latest().as_ref()))
        });
        Self {
            feed,
            cache: informers.service_cidrs.cache(),
        }
    }

    /// Returns once they are known, or for too long are not when `others` are. Cancel-safe.
    pub(super) async fn listed_with(&self, others: impl Future<Output = ()>) {
        let ours = self.feed.listed();
        tokio::pin!(ours, others);
        tokio::select! {
            () = &mut ours => others.await,
            () = &mut others => {
                if tokio::time::timeout(PATIENCE, ours).await.is_err() {
                    tracing::warn!("ServiceCIDRs cannot be listed yet: going on without");
                }
            }
        }
    }

    /// Returns once something of it has changed. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.feed.changed().await;
    }

    fn all(&self) -> Vec<IpNet> {
        let all = self.cache.all().into_iter();
        all.flat_map(|one| one.part.cidrs.clone()).collect()
    }
}

/// The ranges that the rules are of.
#[derive(Debug)]
pub(super) struct ServiceRanges {
    config: ProxyConfig,
    plan: Plan,
}

/// What writes the rules, and a way for the node's own packets.
type Writers = (Box<dyn ServiceEngine>, ServiceRoute);

impl ServiceRanges {
    /// With what is known by now.
    pub(super) fn new(config: &ProxyConfig, sources: &Sources) -> Self {
        let mut ranges = Self {
            config: config.clone(),
            plan: plan_of(config, sources),
        };
        // Once: other ranges are no reason for another engine.
        ranges.config.mode = chosen(config.mode, &ranges.network());
        ranges
    }

    /// Others than before, if the ranges are.
    ///
    /// # Errors
    /// As [`Self::writers`].
    pub(super) fn renewed(&mut self, sources: &Sources) -> Result<Option<Writers>, ProxyError> {
        if sources.service_cidrs().feed.take().is_empty() {
            return Ok(None);
        }
        let plan = plan_of(&self.config, sources);
        if plan == self.plan {
            return Ok(None);
        }
        for range in plan.ignored.difference(&self.plan.ignored) {
            tracing::warn!(%range, "a ServiceCIDR has addresses of pods or nodes: what no Service has there is not refused");
        }
        tracing::info!(ranges = ?plan.used, "the ranges of Services have changed");
        self.plan = plan;
        self.writers().map(Some)
    }

    /// What is the same for all Services.
    pub(super) fn network(&self) -> ServiceNetwork {
        let config = &self.config;
        ServiceNetwork::new(&config.cluster_cidrs, &self.plan.used)
            .with_pod_interface(config.pod_interface.clone())
            .with_node_ip(config.node_ip)
            .with_node_port_cidrs(&config.node_port_cidrs)
            .with_own_service_ip(config.own_service_ip)
    }

    /// Those for these ranges. They have written nothing yet.
    ///
    /// # Errors
    /// What the engine needs is not installed.
    pub(super) fn writers(&self) -> Result<Writers, ProxyError> {
        let config = &self.config;
        let network = self.network();
        let route = ServiceRoute::new(&network);
        let engine = service_engine(config.mode, network).inspect_err(|error| {
            if let Some(told) = &config.news {
                // Told again with the next start: what finds no room now is not lost.
                let _ = told.try_send(News::Failing {
                    why: error.to_string(),
                });
            }
        })?;
        Ok((engine, route))
    }
}

fn plan_of(config: &ProxyConfig, sources: &Sources) -> Plan {
    let mut taken = sources.nodes();
    taken.extend(config.node_ip);
    plan(config, &sources.service_cidrs().all(), &taken)
}

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// In an order that does not depend on the API's.
    used: Vec<IpNet>,
    ignored: BTreeSet<IpNet>,
}

/// A range that has addresses of pods or of nodes (`taken`) would have their traffic refused.
fn plan(config: &ProxyConfig, of_api: &[IpNet], taken: &BTreeSet<IpAddr>) -> Plan {
    let told: BTreeSet<IpNet> = config.service_cidrs.iter().map(IpNet::trunc).collect();
    let of_api: BTreeSet<IpNet> = of_api.iter().map(IpNet::trunc).collect();
    let is_in_the_way = |range: &IpNet| {
        let pods = &config.cluster_cidrs;
        taken.iter().any(|address| range.contains(address))
            || pods
                .iter()
                .any(|pods| range.contains(pods) || pods.contains(range))
    };
    let (ignored, more) = of_api
        .difference(&told)
        .partition(|range| is_in_the_way(range));
    let more: BTreeSet<IpNet> = more;
    // What another has whole needs no rule of its own.
    let all: Vec<IpNet> = told.into_iter().chain(more).collect();
    let is_whole = |range: &&IpNet| {
        !all.iter()
            .any(|other| other != *range && other.contains(*range))
    };
    Plan {
        used: all.iter().filter(is_whole).copied().collect(),
        ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(cidrs: &[&str]) -> Vec<IpNet> {
        cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect()
    }

    fn config() -> ProxyConfig {
        ProxyConfig {
            mode: Default::default(),
            node_ip: None,
            cluster_cidrs: nets(&["10.244.0.0/16"]),
            service_cidrs: nets(&["10.96.0.0/16"]),
            own_service_ip: None,
            node_port_cidrs: Vec::new(),
            pod_interface: None,
            repair_interval: Duration::from_secs(30),
            api_port: None,
            healthz_port: None,
            news: None,
        }
    }

    #[test]
    fn ranges_of_the_api_are_added_to_the_told_one() {
        let node: BTreeSet<IpAddr> = BTreeSet::from(["198.18.0.1".parse().unwrap()]);
        for (of_api, used, ignored) in [
            (&[][..], &["10.96.0.0/16"][..], &[][..]),
            (&["10.96.0.0/16"], &["10.96.0.0/16"], &[]),
            (
                &["10.112.0.0/24", "10.97.0.7/24"],
                &["10.96.0.0/16", "10.97.0.0/24", "10.112.0.0/24"],
                &[],
            ),
            (&["fd00::/112"], &["10.96.0.0/16", "fd00::/112"], &[]),
            // One has the other.
            (&["10.96.7.0/24"], &["10.96.0.0/16"], &[]),
            (&["10.96.0.0/15"], &["10.96.0.0/15"], &[]),
            // Pods or nodes are there.
            (&["10.244.9.0/24"], &["10.96.0.0/16"], &["10.244.9.0/24"]),
            (&["10.0.0.0/8"], &["10.96.0.0/16"], &["10.0.0.0/8"]),
            (&["198.18.0.0/24"], &["10.96.0.0/16"], &["198.18.0.0/24"]),
        ] {
            let plan = plan(&config(), &nets(of_api), &node);
            let (used, ignored) = (nets(used), nets(ignored).into_iter().collect());
            assert_eq!(plan, Plan { used, ignored }, "{of_api:?}");
        }
    }

    #[test]
    fn a_told_range_stays_whatever_is_there() {
        let taken = BTreeSet::from(["10.96.0.7".parse().unwrap()]);
        let used = plan(&config(), &nets(&["10.96.0.0/16"]), &taken).used;
        assert_eq!(used, nets(&["10.96.0.0/16"]));
    }
}
