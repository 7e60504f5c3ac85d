//! The task that keeps history short: it drives [`Backend::compact`] and nothing else.
//!
//! It samples the revision at every tick and compacts to the newest sample that is old enough, so
//! no clock is needed in the store itself. After a restart nothing is compacted until the first
//! sample has aged.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;
use tokio_util::sync::CancellationToken;

use crate::{backend::Backend, types::Revision};

/// How much history stays.
#[derive(Debug, Clone, Copy)]
pub struct CompactionPolicy {
    /// How often to look.
    pub interval: Duration,
    /// What is younger than this stays, unless there is too much of it.
    pub keep_age: Duration,
    /// Never more than so many revisions.
    pub keep_revisions: u64,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            keep_age: Duration::from_secs(300),
            keep_revisions: 1_000_000,
        }
    }
}

/// What stays while the disk is full: what is deleted makes room only once it is forgotten.
const KEPT_WHEN_FULL: Duration = Duration::from_secs(30);

impl CompactionPolicy {
    /// The same of a store that has no room, or has.
    fn with(&self, is_full: bool) -> Self {
        let keep_age = match is_full {
            true => self.keep_age.min(KEPT_WHEN_FULL),
            false => self.keep_age,
        };
        Self { keep_age, ..*self }
    }
}

/// Compacts `backend` by `policy` until `shutdown`. A failure is logged and tried again at the next
/// tick.
pub async fn run(backend: Arc<dyn Backend>, policy: CompactionPolicy, shutdown: CancellationToken) {
    let mut samples = Samples::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(policy.interval) => {}
        }
        let asked = Instant::now();
        let current = match backend.current_revision().await {
            Ok(current) => current,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not ask the store how far it is");
                continue;
            }
        };
        let Some(to) = samples.plan(asked, current, &policy.with(backend.is_full())) else {
            continue;
        };
        match backend.compact(to).await {
            Ok(()) => tracing::debug!(%to, "compacted the store"),
            Err(error) => {
                tracing::warn!(%to, error = %ErrorChain(&error), "could not compact the store")
            }
        }
    }
}

/// Which revision was current when, oldest first.
#[derive(Default)]
struct Samples {
    seen: VecDeque<(Instant, Revision)>,
}

impl Samples {
    /// Where to compact to, if anywhere new.
    fn plan(
        &mut self,
        now: Instant,
        current: Revision,
        policy: &CompactionPolicy,
    ) -> Option<Revision> {
        self.seen.push_back((now, current));
        let mut to = None;
        while let Some(&(at, revision)) = self.seen.front()
            && now.duration_since(at) >= policy.keep_age
        {
            to = Some(revision);
            self.seen.pop_front();
        }
        let most = current.0.saturating_sub(policy.keep_revisions);
        to.max((most > 0).then_some(Revision(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> CompactionPolicy {
        CompactionPolicy {
            interval: Duration::from_secs(30),
            keep_age: Duration::from_secs(300),
            keep_revisions: 1000,
        }
    }

    #[test]
    fn young_history_stays() {
        let mut samples = Samples::default();
        let start = Instant::now();
        assert_eq!(samples.plan(start, Revision(10), &policy()), None);
        assert_eq!(
            samples.plan(start + Duration::from_secs(299), Revision(20), &policy()),
            None
        );
    }

    #[test]
    fn old_history_goes() {
        let mut samples = Samples::default();
        let start = Instant::now();
        samples.plan(start, Revision(10), &policy());
        samples.plan(start + Duration::from_secs(30), Revision(20), &policy());
        assert_eq!(
            samples.plan(start + Duration::from_secs(331), Revision(30), &policy()),
            Some(Revision(20))
        );
    }

    #[test]
    fn on_a_full_disk_less_stays() {
        let mut samples = Samples::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(31);
        assert_eq!(
            samples.plan(start, Revision(10), &policy().with(true)),
            None
        );
        let plan = samples.plan(later, Revision(20), &policy().with(false));
        assert_eq!(plan, None);
        let plan = samples.plan(later, Revision(20), &policy().with(true));
        assert_eq!(plan, Some(Revision(10)));
    }

    #[test]
    fn too_much_history_goes_whatever_its_age() {
        let mut samples = Samples::default();
        assert_eq!(
            samples.plan(Instant::now(), Revision(5000), &policy()),
            Some(Revision(4000))
        );
    }
}
