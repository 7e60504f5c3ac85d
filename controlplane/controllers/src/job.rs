//! Runs the pods of Jobs until so many have succeeded, or too many failed.
//!
//! Watches Jobs and Pods, creates and deletes Pods, counts each ended Pod exactly once. Not here:
//! Jobs that another manager runs; when Jobs are made and when they go is `cronjob`'s and
//! `ttl_after_finished`'s.
//!
//! Source: `pkg/controller/job/job_controller.go` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::{Api, Client, api::PostParams};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    claim::claim_all,
    clock::Clock,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing},
    errors::message_of,
    event_recorder::component::ComponentRecorder,
    owner::{owner_key, selector_of},
    pod::Pod,
    pod_control::PodControl,
};

mod backoff;
mod conditions;
mod failure_policy;
mod indexes;
mod observed;
mod per_index;
mod plan;
mod release;
mod removal;
mod scale;
mod success_policy;
mod template;
#[cfg(test)]
mod tests;
mod tracking;

use backoff::Records;
use conditions::condition;
pub(crate) use conditions::finished;
use observed::{FINALIZER, Observed};
use plan::Plan;
use release::Uids;

/// Jobs worked on at once.
const WORKERS: usize = 4;
const COMPONENT: &str = "job-controller";

/// The controller; all its state is in caches, its control, `dismissed`, `backoffs` and
/// `written`.
pub(crate) struct JobController {
    client: Client,
    clock: Clock,
    recorder: ComponentRecorder,
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
    by_controller: By<Pod>,
    /// By namespace and name of the Job that they name, whichever uid it had.
    by_job: By<Pod>,
    control: PodControl,
    /// Uids of pods that were let go uncounted, until they are gone: their end holds nothing back.
    dismissed: Uids,
    /// Failures of pods that may be gone.
    backoffs: Records,
    /// Statuses that do not show yet: an older Job has not counted the pods that were released
    /// since, and would get more of them.
    written: OwnWrites<Job>,
}

impl JobController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, "job-controller", "job").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            clock: context.config.clock.clone(),
            recorder: context.recorder.of(COMPONENT),
            jobs: controller.reads(),
            pods: controller.reads(),
            by_controller: controller.index(Index::by_controller()),
            by_job: controller.index(Index::by_key("job", owner_key::<Job>)),
            control: PodControl::new(context, COMPONENT, &mut controller),
            dismissed: Uids::default(),
            backoffs: Records::default(),
            written: controller.own_writes(),
        });
        controller.on_change(&this, Self::job_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.owns::<Job, Pod>(|job| job.spec.as_ref()?.selector.as_ref().map(Cow::Borrowed));
        release::let_orphans_go(&mut controller, context, &this);
        controller.complete(this);
    }

    fn job_changed(&self, change: &Change<'_, Job>, queue: &Queue) {
        let key = Key::of(change.latest().as_ref());
        if matches!(change, Change::Deleted(_)) {
            self.dismissed.forget(&key);
            self.backoffs.forget(change.latest());
        }
        queue.add(key);
    }

    /// Keeps account of pods; their Jobs are woken as any owner is.
    fn pod_changed(&self, change: &Change<'_, Pod>, _: &Queue) {
        let pod = change.latest();
        if matches!(change, Change::Deleted(_))
            && let Some(owner) = owner_key::<Job>(pod.as_ref())
        {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            self.dismissed.remove(&owner, uid);
        }
    }
}

impl Reconciler for JobController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let job = self.jobs.get(&key);
        self.release_forgotten(&key, job.as_deref()).await?;
        let Some(job) = job else { return Ok(None) };
        if finished(&job).is_some() {
            self.backoffs.forget(&job);
            return Ok(None);
        }
        if is_managed_elsewhere(&job) {
            return Ok(None);
        }
        let (dismissed, record) = (self.dismissed.of(&key), self.backoffs.of(&job));
        let pods = self.claim_pods(&job).await?;
        let seen = Observed {
            pods: &pods,
            dismissed: &dismissed,
            record: &record,
            now: self.clock.now(),
        };
        let mut plan = plan::plan(&job, &seen);
        if let Some(spec) = &job.spec {
            self.backoffs.keep(&job, record.after(spec, &seen));
        }
        let failed = self.scale(&key, &job, &mut plan).await;
        self.write_status(&job, &plan).await?;
        self.release(&key, &plan.release).await?;
        match failed {
            Some(message) => Err(ReconcileError::NotYet(message)),
            None => Ok(plan.again),
        }
    }
}

impl JobController {
    /// The pods that belong to `job`, after adopting and releasing.
    async fn claim_pods(&self, job: &Job) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let Some(selector) = job
            .spec
            .as_ref()
            .and_then(|spec| selector_of(spec.selector.as_ref()?))
        else {
            return Ok(Vec::new());
        };
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let candidates = self.by_controller.controlled_or_orphaned(namespace, uid);
        claim_all(&self.client, job, &selector, candidates, Some(FINALIZER)).await
    }

    /// Creates and deletes; what failed, in words. `plan.status.active` tells the outcome.
    async fn scale(&self, key: &Key, job: &Job, plan: &mut Plan) -> Option<String> {
        if plan.create.is_empty() && plan.delete.is_empty() && plan.dismiss.is_empty() {
            return None;
        }
        let (dismiss, unreleased) = self.release_first(key, &plan.dismiss).await;
        let delete: Vec<Arc<Pod>> = plan.delete.iter().chain(&dismiss).cloned().collect();
        let deleted = self.control.delete_all(key, job, &delete).await;
        let pod = |number: usize| Cow::Owned(template::pod(job, plan.create[number]));
        let created = self
            .control
            .create_all(key, job, plan.create.len(), pod)
            .await;
        let before = usize::try_from(plan.status.active.unwrap_or(0)).unwrap_or(0);
        let active = (before + created.done).saturating_sub(deleted.done);
        plan.status.active = (active > 0).then(|| i32::try_from(active).unwrap_or(i32::MAX));
        // Of those that go some were ready.
        plan.status.ready = plan.status.ready.min(Some(plan.status.active.unwrap_or(0)));
        let going = i32::try_from(deleted.done).unwrap_or(i32::MAX);
        plan.status.terminating = Some(plan.status.terminating.unwrap_or(0).saturating_add(going));
        unreleased.or_else(|| {
            created
                .failed
                .or(deleted.failed)
                .map(|error| message_of(&error))
        })
    }

    /// Writes the status and then tells what is new in it. A stale Job gives a conflict: nothing is
    /// counted twice.
    async fn write_status(&self, job: &Job, plan: &Plan) -> Result<(), ReconcileError> {
        let old = job.status.clone().unwrap_or_default();
        if old == plan.status {
            return Ok(());
        }
        let key = Key::of(job);
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let wanted = Job {
            status: Some(plan.status.clone()),
            ..job.clone()
        };
        let written = self
            .written
            .write(
                &key,
                api.replace_status(&key.name, &PostParams::default(), &wanted),
            )
            .await;
        ignore_missing(written).during("update Job status")?;
        self.announce(job, &old, &plan.status);
        Ok(())
    }

    fn announce(&self, job: &Job, old: &JobStatus, new: &JobStatus) {
        let appeared = |kind| condition(new, kind).filter(|_| condition(old, kind).is_none());
        if appeared("Suspended").is_some() {
            self.recorder.normal(job, "Suspended", "Job suspended");
        }
        if condition(old, "Suspended").is_some() && condition(new, "Suspended").is_none() {
            self.recorder.normal(job, "Resumed", "Job resumed");
        }
        if appeared("Complete").is_some() {
            let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
            if wanted.is_some_and(|wanted| new.succeeded.unwrap_or(0) > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                self.recorder.warning(job, "TooManySucceededPods", message);
            }
            self.recorder.normal(job, "Completed", "Job completed");
        }
        if let Some(failed) = appeared("Failed") {
            let message = failed.message.as_deref().unwrap_or_default();
            let reason = failed.reason.as_deref().unwrap_or_default();
            let known = FAILURES.into_iter().find(|known| *known == reason);
            self.recorder
                .warning(job, known.unwrap_or("Failed"), message);
        }
    }
}

/// Why Jobs fail: the reasons of conditions and events.
const FAILURES: [&str; 5] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
];

/// What `spec.managedBy` says for Jobs of this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// Whether another controller runs the pods of `job`.
fn is_managed_elsewhere(job: &Job) -> bool {
    job.spec
        .as_ref()
        .and_then(|spec| spec.managed_by.as_deref())
        .is_some_and(|by| by != MANAGER)
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
