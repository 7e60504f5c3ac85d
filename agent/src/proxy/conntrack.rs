//! Forgets UDP flows to endpoints that are no more: see [`coracle_netfilter::flows`].

use std::sync::Once;

use coracle_netfilter::flows::Targets;
use coracle_telemetry::ErrorChain;
use tokio::sync::watch;

/// Cleans whenever it is told new targets, one cleaning at a time. Of what is told meanwhile only
/// the last counts. Ends with the sender.
pub(super) async fn clean(mut told: watch::Receiver<Targets>) {
    while told.changed().await.is_ok() {
        let targets = told.borrow_and_update().clone();
        if targets.is_empty() {
            continue;
        }
        match tokio::task::spawn_blocking(move || targets.delete_stale()).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(count)) => tracing::debug!(count, "deleted flows to removed endpoints"),
            Ok(Err(error)) => {
                // Once: every change of a UDP Service comes here, and nothing changes until
                // somebody loads it.
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    tracing::warn!(error = %ErrorChain(&error), "cannot clean UDP flows of removed endpoints: is nf_conntrack_netlink there?");
                });
            }
        }
    }
}
