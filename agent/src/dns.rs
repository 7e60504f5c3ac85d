//! Names of Services and everything else that pods ask for, answered on this node.
//!
//! The address is the tenth of the Services' range, on the node's loopback link: nothing is
//! translated on the way there, nothing of it is counted as a connection, and no other node is
//! asked. What answers is [`coracle_dns`]; here is what it stands on: the address, the rules that
//! keep the kernel from following each question, the sockets, what is known of Services ([`names`])
//! and where other names are asked for.
//!
//! A Service of somebody else that has the address keeps it: then this node tells so and answers
//! nobody, until it is free.

mod ground;
mod names;
mod others;
mod remembered;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use coracle_api::cluster_dns::{NAMESPACE, PORT, SERVICE};
use coracle_dns::{
    directory::{Directory as _, ServiceName},
    forward::Forwarder,
    resolver::Resolver,
    server::{self, Sockets},
    zone::{InvalidDomain, Zone},
};
use coracle_netfilter::ProxyMode;
use coracle_telemetry::ErrorChain;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use self::{ground::Rules, others::Others};
pub(crate) use self::{
    ground::{GroundError, give_back},
    names::Names,
};
use crate::{
    AgentConfig,
    blocking::blocking,
    events::{EventRecorder, EventType},
};

/// Between two looks at whether all is still there.
const LOOK: Duration = Duration::from_secs(10);
/// At the rules with one of so many of them, where it takes another program to read them.
const RULES_EVERY: u64 = 30;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub(crate) struct DnsConfig {
    address: IpAddr,
    domain: String,
    others: Others,
    rules: ProxyMode,
}

/// Why names cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DnsError {
    #[error(transparent)]
    Domain(#[from] InvalidDomain),
    #[error(transparent)]
    Ground(#[from] GroundError),
    #[error("listen on {address} (does something else answer names there?)")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

impl DnsConfig {
    /// `None` if nobody is to be answered here.
    pub(crate) fn of(config: &AgentConfig) -> Option<Self> {
        Some(Self {
            address: config.dns_address()?,
            domain: config.cluster_domain.clone(),
            others: Others::of(config),
            rules: config.proxy_mode,
        })
    }
}

/// Answers names until `stop`. That this fails is told; who calls begins it anew.
///
/// # Errors
/// What is to be tried again.
pub(crate) async fn keep_answering(
    config: DnsConfig,
    names: Names,
    events: EventRecorder,
    stop: CancellationToken,
) -> Result<(), DnsError> {
    let ended = run(config, names, events.clone(), stop).await;
    if let Err(error) = &ended {
        let message = format!("this node answers no names: {}", ErrorChain(error));
        events.node(EventType::Warning, "DNSFailing", message);
    }
    ended
}

/// Answers until `stop`.
async fn run(
    config: DnsConfig,
    names: Names,
    events: EventRecorder,
    stop: CancellationToken,
) -> Result<(), DnsError> {
    let address = config.address;
    let forwarder = Forwarder::new(config.others.settings());
    let resolver = Arc::new(Resolver {
        zone: Zone::new(&config.domain, Some(address))?,
        names: Arc::new(names.clone()),
        others: forwarder.clone(),
        searches: config.others.searches(),
    });
    let serve = async {
        loop {
            if names.is_complete() {
                until_free(&config, &names, &events).await;
            }
            blocking(move || ground::take(address)).await?;
            let sockets = listen(SocketAddr::new(address, PORT)).await?;
            tokio::select! {
                () = server::run(sockets, Arc::clone(&resolver), stop.clone()) => return Ok(()),
                ended = until_taken(&config, &names, &forwarder) => ended?,
            }
            blocking(give_back).await?;
        }
    };
    stop.run_until_cancelled(serve).await.unwrap_or(Ok(()))
}

/// Keeps what the server stands on, until the address is somebody else's.
async fn until_taken(
    config: &DnsConfig,
    names: &Names,
    forwarder: &Forwarder,
) -> Result<(), DnsError> {
    let address = config.address;
    let mut rules = Rules::new(config.rules);
    names.listed().await;
    for look in 0_u64.. {
        if holder(config, names).is_some() {
            break;
        }
        let is_due = look.is_multiple_of(RULES_EVERY);
        rules = blocking(move || {
            if is_due || rules.is_disturbed() {
                rules.ensure(address);
            }
            rules
        })
        .await;
        tokio::time::sleep(LOOK).await;
        blocking(move || ground::take(address)).await?;
        if let Some(settings) = others::named(config.others.settings()) {
            forwarder.set(settings);
        }
    }
    Ok(())
}

/// Waits for as long as another Service has the address.
async fn until_free(config: &DnsConfig, names: &Names, events: &EventRecorder) {
    let mut told = false;
    while let Some(ServiceName { namespace, name }) = holder(config, names) {
        if !told {
            let message = format!(
                "this node answers no names: the Service {namespace}/{name} has the address {}, which is kept for {NAMESPACE}/{SERVICE}; \
                 recreate it without spec.clusterIP, or start server and agents with --no-dns",
                config.address
            );
            tracing::warn!("{message}");
            events.node(EventType::Warning, "DNSAddressTaken", message);
            told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Another Service with the address.
fn holder(config: &DnsConfig, names: &Names) -> Option<ServiceName> {
    let holder = names.service_at(config.address)?;
    (holder.namespace != NAMESPACE || holder.name != SERVICE).then_some(holder)
}

async fn listen(address: SocketAddr) -> Result<Sockets, DnsError> {
    let failed = |source| DnsError::Listen { address, source };
    Ok(Sockets {
        udp: UdpSocket::bind(address).await.map_err(failed)?,
        tcp: TcpListener::bind(address).await.map_err(failed)?,
    })
}
