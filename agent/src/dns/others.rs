//! Where names are asked for that are not the cluster's: where the node asks.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use coracle_api::cluster_dns::PORT;
use coracle_dns::{forward::Settings, name::Name};

use crate::{AgentConfig, pod_files};

/// What does not change, of where others are asked.
#[derive(Debug, Clone)]
pub(super) struct Others {
    own: Vec<IpAddr>,
    stubs: Vec<(Name, Vec<SocketAddr>)>,
}

impl Others {
    pub(super) fn of(config: &AgentConfig) -> Self {
        let stubs = config.dns_forward.iter().map(|stub| {
            let servers = stub.servers.iter().copied().map(at_port);
            (stub.domain.clone(), servers.collect())
        });
        Self {
            own: config.dns_address().into_iter().collect(),
            stubs: stubs.collect(),
        }
    }

    /// As the node's files say now. Blocks for a moment.
    pub(super) fn settings(&self) -> Settings {
        let servers = pod_files::nameservers(&resolv_conf());
        Settings {
            servers: servers.into_iter().map(at_port).collect(),
            stubs: self.stubs.clone(),
            own: self.own.clone(),
        }
    }

    /// What the node's own search path adds to that of pods.
    pub(super) fn searches(&self) -> Vec<Name> {
        let searches = pod_files::searches(&resolv_conf());
        searches
            .iter()
            .filter_map(|search| coracle_dns::name::whole(search))
            .collect()
    }
}

/// `None` where the node's files name nobody: they are being written, or cannot be read for now.
/// Whom they named before is asked on, and nothing that is remembered is forgotten.
pub(super) fn named(settings: Settings) -> Option<Settings> {
    (!settings.servers.is_empty()).then_some(settings)
}

fn resolv_conf() -> String {
    pod_files::node_resolv_conf(|path| fs::read_to_string(path).unwrap_or_default())
}

fn at_port(server: IpAddr) -> SocketAddr {
    SocketAddr::new(server, PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_name_nobody_change_nothing() {
        let stubs = vec![(
            coracle_dns::name::whole("corp.example").unwrap(),
            vec![at_port("192.0.2.2".parse().unwrap())],
        )];
        let others = Settings {
            stubs,
            ..Settings::default()
        };
        assert!(named(others.clone()).is_none());
        let server = at_port("192.0.2.1".parse().unwrap());
        let found = named(Settings {
            servers: vec![server],
            ..others
        });
        assert_eq!(found.map(|settings| settings.servers), Some(vec![server]));
    }
}
