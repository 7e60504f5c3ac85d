//! Kinds that another server has told of before this one serves them: who asks for one here waits a
//! moment, and is not told that there is none.

use std::{sync::Arc, time::Duration};

use coracle_api::status::Status;
use coracle_registry::{
    kinds::apiextensions::definition::conditions, store::cache_status, value::items,
};

use super::{resource, whole};
use crate::{catalog::Catalog, limits::Requester, request_info::ResourceRequest, state::State};

/// How long a kind may take from its definition to the catalog of a server that hears of it.
const LONGEST: Duration = Duration::from_secs(5);

/// The catalog with the kind that a request is about, once it has it.
///
/// # Errors
/// 404 if no such kind is established, 429 if too many wait, what the cache says if it cannot
/// follow, 503 if this server does not come to serve it.
pub(crate) async fn catalog(
    server: &State,
    requester: Requester,
    about: &ResourceRequest<'_>,
) -> Result<Arc<Catalog<State>>, Status> {
    let _seat = server.limits.waiting_seat(requester)?;
    // Who cannot tell what is defined does not say that this is not.
    server.store.cache.catch_up().await.map_err(cache_status)?;
    if !is_established(server, about) {
        return Err(Status::no_such_path());
    }
    let served = async {
        let mut changes = server.catalog.changes();
        loop {
            let now = server.catalog.now();
            let found = now.find(about.group, about.version, about.resource);
            if found.is_some() || changes.changed().await.is_err() {
                return now;
            }
        }
    };
    tokio::time::timeout(LONGEST, served).await.map_err(|_| {
        let what = format!("{}.{}", about.resource, about.group);
        Status::service_unavailable(format!(
            "{what} is established, and this server does not serve it yet: try again, or see its log"
        ))
    })
}

/// Whether a definition says that the path of a request is served.
fn is_established(server: &State, about: &ResourceRequest<'_>) -> bool {
    let name = format!("{}.{}", about.resource, about.group);
    let found = resource(server).and_then(|definitions| whole(&definitions, &name));
    found.is_some_and(|definition| {
        let mut versions = items(&definition["spec"]["versions"]).iter();
        conditions::is_true(&definition, "Established")
            && versions.any(|one| one["name"] == about.version && one["served"] == true)
    })
}
