//! Deletes finished Jobs once their `ttlSecondsAfterFinished` is over, whoever runs them.
//!
//! Watches Jobs. Their pods go with them, by the garbage collector.
//!
//! Source: `pkg/controller/ttlafterfinished/ttlafterfinished_controller.go` at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::batch::v1::Job, jiff::Timestamp};
use kube::{Client, api::DeleteParams};
use tracing::info;

use crate::{
    Manager,
    builder::Builder,
    cache::{Cache, Key},
    clock::Clock,
    context::Context,
    controller::{Outcome, Reconciler, or_event},
    job::finished,
    writes::Write,
};

/// Jobs looked at at once.
const WORKERS: usize = 4;

/// The controller; it keeps nothing.
pub(crate) struct TtlAfterFinished {
    client: Client,
    clock: Clock,
    jobs: Arc<Cache<Job>>,
}

impl TtlAfterFinished {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "ttl-after-finished-controller";
        let mut controller =
            Builder::managed_by(manager, name, "ttl_jobs_to_delete").workers(WORKERS);
        let jobs = controller.for_kind();
        controller.complete(Arc::new(Self {
            client: context.client.clone(),
            clock: context.config.clock.clone(),
            jobs,
        }));
    }
}

impl Reconciler for TtlAfterFinished {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(job) = self.jobs.get(&key) else {
            return Ok(None);
        };
        let now = self.clock.now();
        let Some(ends) = Ends::of(&job).filter(|_| job.metadata.deletion_timestamp.is_none())
        else {
            return Ok(None);
        };
        if ends.finished > now {
            info!(%key, finished = %ends.finished, "Job has finished in the future, deferring its cleanup: clocks differ");
        }
        if let Some(left) = ends.left(now) {
            return Ok(Some(left));
        }
        // One whose time was prolonged meanwhile stays.
        let expired = Write::to(&self.client, job.as_ref(), "delete expired Job").if_unchanged();
        or_event(expired.delete(DeleteParams::foreground()).await)?;
        Ok(None)
    }
}

/// When a Job was over, and how long it stays then.
struct Ends {
    finished: Timestamp,
    ttl: Duration,
}

impl Ends {
    /// `None` if it stays, or is not over.
    fn of(job: &Job) -> Option<Self> {
        let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
        Some(Self {
            finished: finished(job)?.last_transition_time.as_ref()?.0,
            ttl: Duration::from_secs(u64::try_from(ttl).ok()?),
        })
    }

    fn left(&self, now: Timestamp) -> Option<Duration> {
        let left = self
            .finished
            .checked_add(self.ttl)
            .ok()?
            .duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ENDED: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(ttl: Option<i32>, condition: Option<&str>) -> Job {
        let conditions: Value = condition
            .into_iter()
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": at(ENDED)}))
            .collect();
        let spec = json!({"ttlSecondsAfterFinished": ttl, "template": {}});
        let job =
            json!({"metadata": {"name": "j"}, "spec": spec, "status": {"conditions": conditions}});
        serde_json::from_value(job).unwrap()
    }

    /// Upstream's `TestTimeLeft`, and what it makes of a clock that was set.
    #[test]
    fn a_finished_job_stays_as_long_as_it_says() {
        // (TTL, condition, seconds since the end) -> seconds left, 0 if it goes
        let table = [
            (Some(30), Some("Complete"), 20, Some(10)),
            (Some(30), Some("Failed"), 20, Some(10)),
            (Some(30), Some("Complete"), 30, Some(0)),
            (Some(5), Some("Failed"), 20, Some(0)),
            (Some(0), Some("Complete"), 0, Some(0)),
            (None, Some("Complete"), 20, None),
            (Some(5), None, 20, None),
            (Some(5), Some("FailureTarget"), 20, None),
            (Some(30), Some("Complete"), -3600, Some(3630)),
        ];
        for (ttl, condition, since, expect) in table {
            let left = Ends::of(&job(ttl, condition)).map(|ends| {
                let left = ends.left(at(ENDED + since));
                left.map_or(0, |left| left.as_secs())
            });
            assert_eq!(left, expect, "{ttl:?} {condition:?} {since}");
        }
    }
}
