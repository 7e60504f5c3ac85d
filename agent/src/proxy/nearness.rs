//! How near traffic stays, by what endpoints are meant for. Pure.
//!
//! Source: `pkg/proxy/topology.go` (topologyModeFromHints, availableForTopology) at v1.37.

use crate::informers::SliceEndpoint;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearness {
    /// It goes anywhere.
    Cluster,
    /// To what is meant for the own zone.
    Zone,
    /// To what is meant for this node.
    Node,
}

/// Of these endpoints of one port. All that are ready have to be meant for somebody: one that is
/// not says that who made them had no whole picture.
pub(super) fn of<'a>(
    endpoints: impl Iterator<Item = &'a SliceEndpoint>,
    zone: Option<&str>,
) -> Nearness {
    let (mut by_node, mut by_zone) = (true, true);
    let (mut has_node, mut has_zone) = (false, false);
    for endpoint in endpoints.filter(|endpoint| endpoint.ready) {
        by_node &= endpoint.for_node.is_some();
        has_node |= Nearness::Node.covers(endpoint, zone);
        by_zone &= endpoint.for_zones.is_some();
        has_zone |= Nearness::Zone.covers(endpoint, zone);
    }
    if by_node && has_node {
        Nearness::Node
    } else if by_zone && has_zone {
        Nearness::Zone
    } else {
        Nearness::Cluster
    }
}

impl Nearness {
    /// Whether traffic goes there.
    pub(super) fn covers(self, endpoint: &SliceEndpoint, zone: Option<&str>) -> bool {
        match self {
            Self::Cluster => true,
            Self::Node => endpoint.for_node == Some(true),
            Self::Zone => {
                let zones = endpoint.for_zones.as_deref().unwrap_or_default();
                zone.is_some_and(|own| zones.iter().any(|zone| zone == own))
            }
        }
    }
}
