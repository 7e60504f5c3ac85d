//! How many nodes of each zone are ready, and what follows for evicting from those that are not.
//! Pure.
//!
//! A zone in which most nodes are down is rather cut off than broken: what runs there runs on, and
//! evicting it all would lay the load of many nodes on the few that are left. When no node of any
//! zone is ready, the fault is on this side.
//!
//! Source: `pkg/controller/nodelifecycle/node_lifecycle_controller.go` (ComputeZoneState,
//! handleDisruption, setLimiterInZone) and its defaults at v1.37.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::Node;

use super::plan::{Readiness, readiness};

/// Pause between two nodes of a zone from which pods are evicted (0.1 nodes a second), and in a
/// large zone of which most is down (0.01).
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_PARTIAL: Duration = Duration::from_secs(100);
/// Zones of more nodes than this are large.
const LARGE: usize = 50;
/// The share of a zone, in percent, that is not ready when most of it is down, and the number of
/// nodes that it takes at least.
const PARTIAL_PERCENT: usize = 55;
const PARTIAL_NODES: usize = 3;

/// What may be done to a node that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// Its pods are evicted.
    Begin,
    /// It is left as it is: those that are evicted from already go on.
    Hold,
    /// Nothing is evicted from any node.
    Stop,
}

/// The nodes of a zone.
#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    not_ready: usize,
    /// When eviction from one of them was begun last.
    begun: Option<Duration>,
}

impl Zone {
    /// How far eviction from one node has to be apart from that from the next; `None` if there is
    /// to be none.
    fn pause(&self) -> Option<Duration> {
        let size = self.ready + self.not_ready;
        let partial = self.ready > 0
            && self.not_ready >= PARTIAL_NODES
            && self.not_ready * 100 >= size * PARTIAL_PERCENT;
        match partial {
            false => Some(PAUSE),
            true if size > LARGE => Some(PAUSE_PARTIAL),
            true => None,
        }
    }
}

/// All zones. Nodes without labels for region and zone are in one.
#[derive(Debug, Default)]
pub(super) struct Zones {
    nodes: HashMap<String, (String, bool)>,
    zones: HashMap<String, Zone>,
}

impl Zones {
    /// Takes in a node as it is now.
    pub(super) fn observe(&mut self, node: &Node) {
        let name = super::name_of(node);
        self.remove(name);
        let (zone, is_ready) = (zone_of(node), readiness(node) == Readiness::Ready);
        let counts = self.zones.entry(zone.clone()).or_default();
        *(if is_ready {
            &mut counts.ready
        } else {
            &mut counts.not_ready
        }) += 1;
        self.nodes.insert(name.to_owned(), (zone, is_ready));
    }

    /// Takes in that a node is gone.
    pub(super) fn remove(&mut self, node: &str) {
        let Some((zone, was_ready)) = self.nodes.remove(node) else {
            return;
        };
        let Some(counts) = self.zones.get_mut(&zone) else {
            return;
        };
        *(if was_ready {
            &mut counts.ready
        } else {
            &mut counts.not_ready
        }) -= 1;
    }

    /// Whether eviction from `node` may begin at `now`; if so, the next node of its zone has to
    /// wait.
    pub(super) fn begin(&mut self, node: &str, now: Duration) -> Eviction {
        if self.is_all_down() {
            return Eviction::Stop;
        }
        let Some(zone) = self
            .nodes
            .get(node)
            .and_then(|(zone, _)| self.zones.get_mut(zone))
        else {
            return Eviction::Hold;
        };
        let due = zone
            .pause()
            .is_some_and(|pause| zone.begun.is_none_or(|begun| now >= begun + pause));
        if due {
            zone.begun = Some(now);
        }
        if due { Eviction::Begin } else { Eviction::Hold }
    }

    /// Whether no node at all is ready.
    pub(super) fn is_all_down(&self) -> bool {
        self.zones.values().all(|zone| zone.ready == 0)
    }
}

fn zone_of(node: &Node) -> String {
    let label = |name: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(name))
            .map_or("", String::as_str)
    };
    format!(
        "{}/{}",
        label("topology.kubernetes.io/region"),
        label("topology.kubernetes.io/zone")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, zone: &str, ready: bool) -> Node {
        let ready = if ready { "True" } else { "Unknown" };
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let labels = json!({"topology.kubernetes.io/zone": zone});
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    /// `down` nodes of `size` in zone `a` are down; one node of zone `b` is ready.
    fn zones(size: usize, down: usize) -> Zones {
        let mut zones = Zones::default();
        for number in 0..size {
            zones.observe(&node(&format!("n{number}"), "a", number >= down));
        }
        zones.observe(&node("other", "b", true));
        zones
    }

    /// How many nodes are evicted from within so many seconds.
    fn begun(zones: &mut Zones, down: usize, seconds: u64) -> usize {
        let mut left: Vec<String> = (0..down).map(|number| format!("n{number}")).collect();
        for now in 0..=seconds {
            left.retain(|name| zones.begin(name, Duration::from_secs(now)) != Eviction::Begin);
        }
        down - left.len()
    }

    #[test]
    fn eviction_is_slow_and_stops_when_most_of_a_zone_is_down() {
        // (nodes of the zone, of them down, evicted from within 200 s)
        let table = [
            (10, 1, 1),
            (10, 4, 4),
            (2, 2, 2),
            (3, 2, 2),
            (4, 3, 0),
            (10, 5, 5),
            (10, 6, 0),
            (10, 9, 0),
            // A whole zone may be gone.
            (10, 10, 10),
            (60, 30, 21),
            (60, 50, 3),
        ];
        for (size, down, expected) in table {
            assert_eq!(
                begun(&mut zones(size, down), down, 200),
                expected,
                "{down} of {size}"
            );
        }
    }

    #[test]
    fn zones_have_rates_of_their_own() {
        let mut zones = zones(4, 2);
        zones.observe(&node("m0", "b", false));
        let at = Duration::from_secs;
        assert_eq!(zones.begin("n0", at(0)), Eviction::Begin);
        assert_eq!(zones.begin("n1", at(9)), Eviction::Hold);
        assert_eq!(zones.begin("m0", at(9)), Eviction::Begin);
        assert_eq!(zones.begin("n1", at(10)), Eviction::Begin);
    }

    #[test]
    fn when_nothing_is_ready_nothing_is_evicted() {
        let mut zones = zones(3, 3);
        assert_eq!(zones.begin("n0", Duration::ZERO), Eviction::Begin);
        zones.observe(&node("other", "b", false));
        assert_eq!(zones.begin("n1", Duration::from_secs(60)), Eviction::Stop);
        zones.remove("other");
        assert_eq!(zones.begin("n1", Duration::from_secs(60)), Eviction::Stop);
        zones.observe(&node("n2", "moved", true));
        assert_eq!(zones.begin("n1", Duration::from_secs(60)), Eviction::Begin);
    }
}
