//! The kernel's table of connections, which all pods of the node share: when it is full, nobody's
//! new connection gets through.
//!
//! What leads to pods that are gone stays in it for hours, and is of no use: as the table fills, it
//! goes. If it is full all the same it is told, with whose connections most of them are. As
//! kube-proxy does, the bound is raised for the machine's size, where that is allowed, and
//! connections that say nothing end after a day. Not here: who limits one pod.

mod limits;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::IpAddr,
    time::Duration,
};

use coracle_netfilter::{
    Family,
    conntrack::{self, Flow, Table},
};
use coracle_telemetry::ErrorChain;
use ipnet::Ipv4Net;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    events::{EventRecorder, EventType},
    network::{
        cni::CniNetwork,
        places::{Held, Places},
    },
    node::address::own_addresses,
};

const INTERVAL: Duration = Duration::from_secs(10);
/// Between two looks through all connections, so many times their length.
const PAUSE: u32 = 10;
/// Hundredths of the bound from which on what leads nowhere is looked for...
const CROWDED: u64 = 75;
/// ...from which on drops are for want of room...
const FULL: u64 = 90;
/// ...and below which there is room again.
const ROOM: u64 = 85;
/// Connections that are held in memory to be deleted.
const AT_ONCE: usize = 32_768;

/// Watches over the table.
#[derive(Clone)]
pub(crate) struct Connections {
    places: Places,
    network: Option<CniNetwork>,
    events: EventRecorder,
    interval: Duration,
}

/// What a look through all connections has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Swept {
    /// They led to pods that are gone.
    removed: usize,
    /// Who has begun most of the others, and how many.
    most: Option<(IpAddr, usize)>,
}

/// What has become of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Full,
    Room,
}

/// Since the last look, which found it full or not.
fn judge(was_full: bool, before: Table, now: Table) -> Option<News> {
    let has_dropped = now.dropped > before.dropped;
    match was_full {
        false if has_dropped && now.percent() >= FULL => Some(News::Full),
        true if !has_dropped && now.percent() < ROOM => Some(News::Room),
        _ => None,
    }
}

/// Where nobody is.
struct Nowhere {
    left: BTreeSet<IpAddr>,
    /// The own network's, all of whose pods are known.
    range: Option<Ipv4Net>,
    held: Held,
    own: BTreeSet<IpAddr>,
}

impl Nowhere {
    fn has(&self, address: IpAddr) -> bool {
        let is_of_range = matches!(
            (self.range, address),
            (Some(range), IpAddr::V4(ip)) if range.contains(&ip)
        );
        self.left.contains(&address)
            || (is_of_range && !self.own.contains(&address) && self.held.pod(address).is_none())
    }

    fn ends(&self, flow: &Flow) -> bool {
        self.has(flow.source) || self.has(flow.answers_from)
    }
}

impl Connections {
    pub(crate) fn new(places: Places, network: Option<CniNetwork>, events: EventRecorder) -> Self {
        Self {
            places,
            network,
            events,
            interval: INTERVAL,
        }
    }

    /// Watches until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let watch = async {
            blocking(limits::ensure).await;
            self.watch().await;
        };
        let _: Option<()> = shutdown.run_until_cancelled(watch).await;
    }

    async fn watch(&self) {
        let (mut before, mut is_full) = (None, false);
        let (mut last, mut sweep_at) = (Swept::default(), Instant::now());
        loop {
            match blocking(conntrack::table).await {
                Ok(now) => {
                    let news = judge(is_full, before.unwrap_or(now), now);
                    is_full = news.map_or(is_full, |news| news == News::Full);
                    let started = Instant::now();
                    if now.percent() >= CROWDED && sweep_at <= started {
                        last = self.sweep().await;
                        sweep_at = Instant::now() + started.elapsed() * PAUSE;
                    }
                    self.tell(news, now, &last);
                    before = Some(now);
                }
                // Nobody asks for connections to be followed yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "cannot see how full the kernel's table of connections is");
                }
            }
            sleep(self.interval).await;
        }
    }

    /// Removes what leads nowhere.
    async fn sweep(&self) -> Swept {
        let held = self.places.held();
        let range = self.network.as_ref().and_then(CniNetwork::own_range);
        let swept = blocking(move || {
            let nowhere = Nowhere {
                left: held.left(),
                range,
                held,
                own: own_addresses()?.collect(),
            };
            sweep(|flow| nowhere.ends(flow))
        });
        match swept.await {
            Ok(swept) => {
                if swept.removed > 0 {
                    tracing::info!(
                        removed = swept.removed,
                        "removed connections of pods that are gone"
                    );
                }
                swept
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot look for connections that lead nowhere, is nf_conntrack_netlink there?");
                Swept::default()
            }
        }
    }

    fn tell(&self, news: Option<News>, table: Table, swept: &Swept) {
        let Table { count, most, .. } = table;
        match news {
            None => {}
            Some(News::Room) => self.events.node(
                EventType::Normal,
                "ConnectionTableHasRoom",
                format!("the kernel's table of connections has room again: {count} of {most}"),
            ),
            Some(News::Full) => {
                let message = self.told_of_full(table, swept);
                tracing::error!("{message}");
                self.events
                    .node(EventType::Warning, "ConnectionTableFull", message);
            }
        }
    }

    fn told_of_full(&self, Table { count, most, .. }: Table, swept: &Swept) -> String {
        let held = self.places.held();
        let whose = swept.most.map_or_else(String::new, |(address, number)| {
            let pod = held.pod(address).map(|pod| format!(" (pod {pod})"));
            format!("; {number} are from {address}{}", pod.unwrap_or_default())
        });
        format!(
            "the kernel's table of connections is full, {count} of {most}, and it drops packets: new connections of this node fail. {} of them led to pods that are gone, and were removed{whose}. Raise net.netfilter.nf_conntrack_max if this node needs as many",
            swept.removed
        )
    }
}

fn sweep(is_nowhere: impl Fn(&Flow) -> bool) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for family in Family::ALL {
        loop {
            let mut by_source: HashMap<IpAddr, usize> = HashMap::new();
            let mut wrong = 0;
            let flows = conntrack::flows(family, |flow| {
                let is_wrong = is_nowhere(flow);
                if !is_wrong {
                    *by_source.entry(flow.source).or_default() += 1;
                }
                wrong += usize::from(is_wrong);
                is_wrong && wrong <= AT_ONCE
            })?;
            swept.removed += conntrack::delete(&flows)?;
            if wrong <= AT_ONCE {
                let most = by_source.into_iter().max_by_key(|(_, number)| *number);
                let both = swept.most.into_iter().chain(most);
                swept.most = both.max_by_key(|(_, number)| *number);
                break;
            }
        }
    }
    Ok(swept)
}
