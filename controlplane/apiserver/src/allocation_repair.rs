//! Keeps what is allocated to Services in step with them: before the first request, and then now
//! and again by one of the servers, which tells what it finds.

use std::{collections::HashSet, sync::Arc, time::Duration};

use coracle_registry::service_allocator::repair::{Finding, repair};
use coracle_telemetry::ErrorChain;
use tokio_util::sync::CancellationToken;

use crate::{error::ApiServerError, state::State};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(10);

/// Looks once. What lasts of what is found is left to [`run`], which knows what was told before.
///
/// # Errors
/// [`ApiServerError::Bootstrap`] says what the store said.
pub(crate) async fn once(server: &State) -> Result<Vec<Finding>, ApiServerError> {
    let repaired = repair(&server.store, &server.registry, server.allocators.as_ref()).await;
    repaired.map_err(|status| ApiServerError::Bootstrap {
        what: "what is allocated to services".to_owned(),
        message: status.message,
    })
}

/// Looks again and again until `stop`, and tells what is new.
pub(crate) async fn run(server: Arc<State>, stop: CancellationToken, tell: impl Fn(Finding)) {
    let mut told = Told::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        match once(&server).await {
            Ok(found) => {
                for finding in told.new_of(found) {
                    let Finding { about, message, .. } = &finding;
                    let (namespace, name) = (&about.namespace, &about.name);
                    tracing::warn!(kind = about.kind, namespace, name, "{message}");
                    tell(finding);
                }
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot repair what is allocated to services");
            }
        }
    }
}

/// What the last look has found: it has been told.
#[derive(Default)]
struct Told(HashSet<(String, String)>);

impl Told {
    /// Of all that was found now, what the last look has not.
    fn new_of(&mut self, found: Vec<Finding>) -> Vec<Finding> {
        let key = |finding: &Finding| (finding.about.uid.clone(), finding.message.clone());
        let now = found.iter().map(key).collect();
        let before = std::mem::replace(&mut self.0, now);
        let new = found.into_iter();
        new.filter(|finding| !before.contains(&key(finding)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use coracle_registry::service_allocator::repair::About;

    use super::*;

    #[test]
    fn what_lasts_is_told_once_and_again_when_it_comes_again() {
        let finding = |uid: &str| Finding {
            about: About {
                api_version: "v1",
                kind: "Service",
                namespace: "default".to_owned(),
                name: "a".to_owned(),
                uid: uid.to_owned(),
            },
            component: "ipallocator-repair-controller",
            reason: "ClusterIPOutOfRange",
            message: "it is out of range".to_owned(),
        };
        let mut told = Told::default();
        for (found, expected) in [
            (vec!["1"], vec!["1"]),
            (vec!["1", "2"], vec!["2"]),
            (vec!["1"], vec![]),
            (vec!["1", "2"], vec!["2"]),
        ] {
            let new = told.new_of(found.iter().map(|uid| finding(uid)).collect());
            let new: Vec<_> = new.iter().map(|one| one.about.uid.as_str()).collect();
            assert_eq!(new, expected, "{found:?}");
        }
    }
}
