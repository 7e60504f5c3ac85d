//! Where the `kubernetes` Service leads: to all servers of a store that is shared, and to none that
//! is no more.
//!
//! ```text
//! a server's key, with its address, renewed every 10 s         alive
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
use coracle_store::{Backend, StoreError};
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Endpoints};
use kube::Api;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::seen::Seen;
use crate::{
    alive,
    identity::{self, Identity},
    leading::NAMESPACE,
};

/// How often the keys are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often the objects are put right if nothing has changed.
const REPAIR: Duration = Duration::from_secs(10);
/// For one look, and what follows from it.
const DEADLINE: Duration = Duration::from_secs(5);
/// What is done at the end gets so long: others see anyway that nobody renews.
const FAREWELL: Duration = Duration::from_secs(2);

/// What there is to look at, and with what.
struct Ground {
    apiserver: Arc<ApiServer>,
    backend: Arc<dyn Backend>,
}

/// Why it is not known who is there.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("cannot read their keys in the store")]
    Keys(#[from] StoreError),
    #[error("cannot read the Endpoints of the Service kubernetes")]
    LedTo(#[source] Box<kube::Error>),
}

/// Tells of the server `identity` until `stop`, and then that it is gone.
pub(crate) async fn run(
    apiserver: Arc<ApiServer>,
    backend: Arc<dyn Backend>,
    identity: Identity,
    stop: CancellationToken,
) {
    let leases: Api<Lease> = Api::namespaced(apiserver.client(identity::user()), NAMESPACE);
    let ground = Ground { apiserver, backend };
    let mut seen = Seen::new(identity::name(&identity.host), identity.address);
    tokio::join!(
        identity::renew(leases, identity.clone(), stop.clone()),
        alive::renew(&*ground.backend, &identity, &stop),
        look(&ground, &mut seen, &stop),
    );
    let farewell = async {
        if let Err(error) = alive::withdraw(&*ground.backend, &identity).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot say that this API server is reached no more");
        }
        // Once more: somebody may have come a moment ago.
        if let Err(error) = look_at(&ground, &mut seen).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot look which other API servers there are");
        }
        lead_to(&ground.apiserver, &seen.others()).await;
    };
    if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
        tracing::warn!("there was no time to say that this API server is reached no more");
    }
}

async fn look(ground: &Ground, seen: &mut Seen, stop: &CancellationToken) {
    let mut done: Option<(Vec<SocketAddr>, Instant)> = None;
    loop {
        let looked = tokio::time::timeout(DEADLINE, look_once(ground, seen, &mut done));
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
    ground: &Ground,
    seen: &mut Seen,
    done: &mut Option<(Vec<SocketAddr>, Instant)>,
) {
    let alive = match look_at(ground, seen).await {
        Ok(alive) => alive,
        Err(error) => {
            return tracing::warn!(error = %ErrorChain(&error), "cannot look which API servers there are");
        }
    };
    let now = Instant::now();
    let is_done = done
        .as_ref()
        .is_some_and(|(before, at)| *before == alive && now < *at + REPAIR);
    if !is_done && lead_to(&ground.apiserver, &alive).await {
        *done = Some((alive, now));
    }
    for (name, renewed) in seen.forgotten(now) {
        if let Err(error) = alive::forget(&*ground.backend, &name, renewed).await {
            tracing::debug!(name, error = %ErrorChain(&error), "cannot forget an API server that is no more");
        }
    }
}

/// Who is alive.
async fn look_at(ground: &Ground, seen: &mut Seen) -> Result<Vec<SocketAddr>, LookError> {
    let found = alive::find(&*ground.backend).await?;
    let led_to = match seen.is_empty() {
        true => led_to(&ground.apiserver)
            .await
            .map_err(|error| LookError::LedTo(Box::new(error)))?,
        false => BTreeSet::new(),
    };
    let now = Instant::now();
    seen.look(&found, &led_to, now);
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
