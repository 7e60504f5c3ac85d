//! Which servers are asked about a name. Pure.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use hickory_proto::rr::Name;

/// Whom to ask.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The servers for all names without one of their own, in order of preference.
    pub servers: Vec<SocketAddr>,
    /// Domains with servers of their own. The longest that a name ends in decides; one without
    /// servers is asked of nobody.
    pub stubs: Vec<(Name, Vec<SocketAddr>)>,
    /// This server's own addresses. They are left out of the servers whatever the port: a question
    /// would come back.
    pub own: Vec<IpAddr>,
}

/// The same, ready to be looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Routes {
    servers: Arc<[SocketAddr]>,
    /// The longest domain first.
    stubs: Vec<(Name, Arc<[SocketAddr]>)>,
}

// === impl Routes ===

impl Routes {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings {
            servers,
            stubs,
            own,
        } = settings;
        let stubs = stubs.into_iter();
        let mut stubs: Vec<_> = stubs
            .map(|(domain, servers)| (domain.to_lowercase(), others(servers, &own)))
            .collect();
        stubs.sort_by_key(|(domain, _)| std::cmp::Reverse(domain.iter().count()));
        Self {
            servers: others(servers, &own),
            stubs,
        }
    }

    /// Those to ask about `name`: none, where there is nobody.
    pub(crate) fn servers(&self, name: &Name) -> &Arc<[SocketAddr]> {
        let stub = self.stubs.iter().find(|(domain, _)| domain.zone_of(name));
        stub.map_or(&self.servers, |(_, servers)| servers)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        let of_stubs = self.stubs.iter().flat_map(|(_, servers)| servers.iter());
        self.servers.iter().chain(of_stubs).copied()
    }
}

/// Each once, without our own. An IPv4 address written as IPv6 is the same address.
fn others(servers: Vec<SocketAddr>, own: &[IpAddr]) -> Arc<[SocketAddr]> {
    let mut others = Vec::with_capacity(servers.len());
    for server in servers {
        let is_own = |own: &IpAddr| own.to_canonical() == server.ip().to_canonical();
        if !own.iter().any(is_own) && !others.contains(&server) {
            others.push(server);
        }
    }
    others.into()
}
