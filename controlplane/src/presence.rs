//! Where the `kubernetes` Service leads: to all servers of a store that is shared, and to none that
//! is no more.
//!
//! ```text
//! a server's Lease, with its address, renewed every 10 s       identity
//!   > every server looks at all of them every 2 s: which have changed lately, by its own clock   seen
//!     > Endpoints and EndpointSlice                             the API server's
//! ```
//! All servers do this, and come to the same. Why each by its own clock: those of machines differ,
//! and one that is wrong must not take the others out.
//!
//! Source: `pkg/controlplane/reconcilers/lease.go` at v1.37, whose leases with a TTL are etcd's.

mod seen;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use coracle_apiserver::ApiServer;
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Endpoints};
use kube::Api;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::seen::{Look, Seen};
use crate::{
    identity::{self, Identity},
    leading::NAMESPACE,
};

/// How often Leases are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often the objects are put right if nothing has changed.
const REPAIR: Duration = Duration::from_secs(10);
/// For one look, and what follows from it.
const DEADLINE: Duration = Duration::from_secs(5);
/// What is done at the end gets so long: others see anyway that nobody renews.
const FAREWELL: Duration = Duration::from_secs(2);

/// Tells of the server `identity` until `stop`, and then that it is gone.
pub(crate) async fn run(apiserver: Arc<ApiServer>, identity: Identity, stop: CancellationToken) {
    let leases: Api<Lease> = Api::namespaced(apiserver.client(identity::user()), NAMESPACE);
    let mut seen = Seen::new(identity::name(&identity.host), identity.address);
    tokio::join!(
        identity::renew(leases.clone(), identity.clone(), stop.clone()),
        look(&apiserver, &leases, &mut seen, stop),
    );
    let farewell = async {
        if let Err(error) = identity::withdraw(&leases, &identity).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot say that this API server is reached no more");
        }
        // Once more: somebody may have come a moment ago.
        if let Err(error) = look_at(&apiserver, &leases, &mut seen).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot look which other API servers there are");
        }
        lead_to(&apiserver, &seen.others()).await;
    };
    if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
        tracing::warn!("there was no time to say that this API server is reached no more");
    }
}

async fn look(
    apiserver: &Arc<ApiServer>,
    leases: &Api<Lease>,
    seen: &mut Seen,
    stop: CancellationToken,
) {
    let mut done: Option<(Vec<SocketAddr>, Instant)> = None;
    loop {
        let looked = tokio::time::timeout(DEADLINE, look_once(apiserver, leases, seen, &mut done));
        match stop.run_until_cancelled(looked).await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(_)) => tracing::warn!("cannot look in time which API servers there are"),
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(LOOK))
            .await
            .is_none()
        {
            return;
        }
    }
}

async fn look_once(
    apiserver: &Arc<ApiServer>,
    leases: &Api<Lease>,
    seen: &mut Seen,
    done: &mut Option<(Vec<SocketAddr>, Instant)>,
) {
    let alive = match look_at(apiserver, leases, seen).await {
        Ok(alive) => alive,
        Err(error) => {
            return tracing::warn!(error = %ErrorChain(&error), "cannot look which API servers there are");
        }
    };
    let now = Instant::now();
    let is_done = done
        .as_ref()
        .is_some_and(|(before, at)| *before == alive && now < *at + REPAIR);
    if !is_done && lead_to(apiserver, &alive).await {
        *done = Some((alive, now));
    }
}

/// Who is alive.
async fn look_at(
    apiserver: &Arc<ApiServer>,
    leases: &Api<Lease>,
    seen: &mut Seen,
) -> kube::Result<Vec<SocketAddr>> {
    let found = identity::list(leases).await?;
    let led_to = match seen.is_empty() {
        true => led_to(apiserver).await?,
        false => BTreeSet::new(),
    };
    let now = Instant::now();
    let looks = found.iter().map(|lease| Look {
        name: lease.metadata.name.as_deref().unwrap_or_default(),
        version: lease
            .metadata
            .resource_version
            .as_deref()
            .unwrap_or_default(),
        address: identity::address(lease),
    });
    seen.look(looks, &led_to, now);
    Ok(seen.alive(now))
}

/// Whether it could be done.
async fn lead_to(apiserver: &ApiServer, servers: &[SocketAddr]) -> bool {
    match apiserver.lead_to(servers).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(error = %ErrorChain(&error), "cannot lead the Service kubernetes to all API servers");
            false
        }
    }
}

/// Where it leads now: who stands there was alive a moment ago for somebody who has looked for
/// longer.
async fn led_to(apiserver: &Arc<ApiServer>) -> kube::Result<BTreeSet<SocketAddr>> {
    let endpoints: Api<Endpoints> = Api::namespaced(apiserver.client(identity::user()), "default");
    let found = endpoints.get_opt("kubernetes").await?;
    let subsets = found.and_then(|found| found.subsets).unwrap_or_default();
    let mut servers = BTreeSet::new();
    for subset in subsets {
        for address in subset.addresses.iter().flatten() {
            for port in subset.ports.iter().flatten() {
                let ip = address.ip.parse::<IpAddr>().ok();
                servers.extend(ip.zip(u16::try_from(port.port).ok()).map(SocketAddr::from));
            }
        }
    }
    Ok(servers)
}
