//! Keeps what is allocated to Services in step with them: before the first request, and then now
//! and again by one of the servers.

use std::{sync::Arc, time::Duration};

use coracle_registry::service_allocations::repair::repair;
use coracle_telemetry::ErrorChain;
use tokio_util::sync::CancellationToken;

use crate::{error::ApiServerError, state::State};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(10);

/// Looks once.
///
/// # Errors
/// [`ApiServerError::Bootstrap`] says what the store said.
pub(crate) async fn once(server: &State) -> Result<(), ApiServerError> {
    let repaired = repair(&server.store, &server.registry).await;
    repaired.map_err(|status| ApiServerError::Bootstrap {
        what: "what is allocated to services".to_owned(),
        message: status.message,
    })
}

/// Looks again and again until `stop`.
pub(crate) async fn run(server: Arc<State>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        if let Err(error) = once(&server).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot repair what is allocated to services");
        }
    }
}
