//! Whether the proxy keeps up with what changes: for load balancers.
//!
//! Unlike upstream's, a proxy that has never written anything is unwell after the same time: its
//! node would draw traffic that it cannot send on.
//!
//! Source: `pkg/proxy/healthcheck/proxy_health.go` at v1.37.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// So long a change may wait for its rules: twice upstream's sync period.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Cheap to clone: the state is shared.
#[derive(Debug, Clone, Default)]
pub(super) struct ProxyHealth(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Since when something has waited to be written.
    behind: Option<Instant>,
    /// When everything was written last.
    updated: Option<Timestamp>,
}

impl ProxyHealth {
    /// Something is to be written.
    pub(super) fn falls_behind(&self) {
        self.0.lock().behind.get_or_insert_with(Instant::now);
    }

    /// Waits for what anything is written from: without it a node has no rules, or old ones.
    pub(super) async fn behind_until<T>(&self, known: impl Future<Output = T>) -> T {
        self.falls_behind();
        known.await
    }

    /// All is written.
    pub(super) fn catches_up(&self) {
        *self.0.lock() = State {
            behind: None,
            updated: Some(Timestamp::now()),
        };
    }

    /// Whether nothing has waited for too long.
    pub(super) fn is_healthy(&self) -> bool {
        let behind = self.0.lock().behind;
        behind.is_none_or(|since| since.elapsed() < TIMEOUT)
    }

    /// When everything was written last.
    pub(super) fn updated(&self) -> Option<Timestamp> {
        self.0.lock().updated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_may_wait_for_a_minute() {
        let health = ProxyHealth::default();
        assert!(health.is_healthy() && health.updated().is_none());
        health.falls_behind();
        tokio::time::advance(TIMEOUT / 2).await;
        // The first counts.
        health.falls_behind();
        assert!(health.is_healthy());
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(!health.is_healthy());
        health.catches_up();
        tokio::time::advance(TIMEOUT * 2).await;
        assert!(health.is_healthy() && health.updated().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_never_hears_of_services_is_unwell() {
        let health = ProxyHealth::default();
        let waiting = health.behind_until(std::future::pending::<()>());
        let waited = tokio::time::timeout(TIMEOUT / 2, waiting).await;
        assert!(waited.is_err() && health.is_healthy());
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(!health.is_healthy());
    }
}
