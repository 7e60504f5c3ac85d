//! Runs the pods of Jobs until so many have succeeded, or too many failed.
//!
//! Watches Jobs and Pods, creates and deletes Pods, counts each ended Pod exactly once, deletes finished Jobs whose
//! time is over. Not here: `podFailurePolicy`, `successPolicy` and limits per index, of which an Event warns; schedules are
//! CronJob's.
//!
//! Source: `pkg/controller/job/job_controller.go`, `pkg/controller/ttlafterfinished` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::{
    api::batch::v1::{Job, JobStatus},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
    core::SelectorExt,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{
        By, Cache, Change, Index, Key,
        labels::{pair_key, pair_of, selecting},
    },
    claim::claim_all,
    context::Context,
    controller::{self, CallContext, Outcome, ReconcileError, ignore_missing, or_event},
    errors::message_of,
    event_recorder::{EventRecorder, EventType},
    informer::Informer,
    owner::{controller_of, selector_of},
    pod::Pod,
    pod_control::PodControl,
    work_queue::WorkQueue,
};

mod backoff;
mod indexes;
mod plan;
mod release;
mod template;
#[cfg(test)]
mod tests;

use plan::{FINALIZER, Observed, Plan};
use release::Uids;

/// Jobs worked on at once.
const WORKERS: usize = 4;
const COMPONENT: &str = "job-controller";

/// The controller; all its state is in caches, its queues, its control, `dismissed` and `written`.
pub(crate) struct JobController {
    client: Client,
    recorder: EventRecorder,
    jobs: Arc<Cache<Job>>,
    selecting: By<Job>,
    pods: Arc<Cache<Pod>>,
    by_controller: By<Pod>,
    /// By namespace and name of the Job that they name, whichever uid it had.
    by_job: By<Pod>,
    queue: Arc<WorkQueue<Key>>,
    control: PodControl,
    /// Pods with the finalizer that no Job controls.
    orphans: Arc<WorkQueue<Key>>,
    /// Uids of pods that were let go uncounted, until they are gone: their end holds nothing back.
    dismissed: Uids,
    /// Statuses that do not show yet: an older Job has not counted the pods that were released since, and would get more
    /// of them.
    written: OwnWrites<Job>,
}

impl JobController {
    /// Registers with the informers; nothing happens before [`JobController::run`].
    pub(crate) fn new(context: &Context, jobs: &mut Informer<Job>, pods: &mut Informer<Pod>) -> Arc<Self> {
        let queue = context.queue("job");
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            jobs: jobs.cache(),
            selecting: jobs.index(Index::new("selects", |job, put| {
                let pair = job.spec.as_ref().and_then(|spec| pair_of(spec.selector.as_ref()?));
                put(&pair_key(job.metadata.namespace.as_deref().unwrap_or_default(), pair));
            })),
            pods: pods.cache(),
            by_controller: pods.index(Index::by_controller()),
            by_job: pods.index(Index::new("job", |pod, put| {
                if let Some(owner) = owner_key(pod) {
                    put(&owner.to_string());
                }
            })),
            control: PodControl::new(context, COMPONENT, pods, &queue),
            orphans: context.queue("job_orphan_pod"),
            dismissed: Uids::default(),
            written: OwnWrites::new(jobs, queue.clone()),
            queue,
        });
        let controller = this.clone();
        jobs.on_change(move |change| controller.job_changed(change));
        let controller = this.clone();
        pods.on_change(move |change| controller.pod_changed(change));
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let this = self.clone();
        let jobs = controller::run("job", self.queue.clone(), WORKERS, shutdown.clone(), move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
        let orphans = self.orphans.clone();
        let orphans = controller::run("job-orphan-pod", orphans, 1, shutdown, move |key| {
            let this = self.clone();
            async move { this.free_orphan(key).await }
        });
        tokio::join!(jobs, orphans);
    }

    fn job_changed(&self, change: &Change<'_, Job>) {
        let key = Key::of(change.latest().as_ref());
        if matches!(change, Change::Deleted(_)) {
            self.dismissed.forget(&key);
        }
        self.queue.add(key);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.latest();
        if let Change::Updated { old, .. } = change
            && let Some(former) = owner_key(old).filter(|former| owner_key(pod).as_ref() != Some(former))
        {
            self.queue.add(former);
        }
        let Some(owner) = owner_key(pod) else {
            if plan::has_finalizer(pod) {
                self.orphans.add(Key::of(pod.as_ref()));
            }
            return self.wake_possible_owners(pod);
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if matches!(change, Change::Deleted(_)) {
            self.dismissed.remove(&owner, uid);
        }
        self.queue.add(owner);
    }

    /// An orphan may be adopted by any Job that selects it; one that nobody counts any more is let go.
    fn wake_possible_owners(&self, pod: &Pod) {
        let Some(labels) = pod.metadata.labels.as_ref().filter(|_| controller_of(&pod.metadata).is_none()) else {
            return;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for job in selecting(&self.selecting, namespace, labels) {
            if selects(&job, labels) {
                self.queue.add(Key::of(job.as_ref()));
            }
        }
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let is_settled = self.control.writes.settled(&key).await.during("list pods")?;
        if !is_settled || !self.written.settled(&key).await.during("list Jobs")? {
            return Ok(None);
        }
        let job = self.jobs.get(&key);
        self.let_orphans_go(&key, job.as_deref()).await?;
        let Some(job) = job else { return Ok(None) };
        if plan::finished(&job).is_some() {
            // Whoever manages it.
            return self.expire(&job).await;
        }
        if is_managed_elsewhere(&job) {
            return Ok(None);
        }
        let dismissed = self.dismissed.of(&key);
        let pods = self.claim_pods(&job).await?;
        let seen = Observed { pods: &pods, dismissed: &dismissed, now: Timestamp::now() };
        let mut plan = plan::plan(&job, &seen);
        let failed = self.scale(&key, &job, &mut plan).await;
        self.write_status(&job, &plan).await?;
        self.release(&key, &plan.release).await?;
        match failed {
            Some(message) => Err(ReconcileError::NotYet(message)),
            None => Ok(plan.again),
        }
    }

    /// The pods that belong to `job`, after adopting and releasing.
    async fn claim_pods(&self, job: &Job) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let Some(selector) = job.spec.as_ref().and_then(|spec| selector_of(spec.selector.as_ref()?)) else {
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
        let created = self.control.create_all(key, job, plan.create.len(), pod).await;
        let before = usize::try_from(plan.status.active.unwrap_or(0)).unwrap_or(0);
        let active = (before + created.done).saturating_sub(deleted.done);
        plan.status.active = (active > 0).then(|| i32::try_from(active).unwrap_or(i32::MAX));
        let going = i32::try_from(deleted.done).unwrap_or(i32::MAX);
        plan.status.terminating = Some(plan.status.terminating.unwrap_or(0).saturating_add(going));
        unreleased.or_else(|| created.failed.or(deleted.failed).map(|error| message_of(&error)))
    }

    /// Writes the status and then tells what is new in it. A stale Job gives a conflict: nothing is counted twice.
    async fn write_status(&self, job: &Job, plan: &Plan) -> Result<(), ReconcileError> {
        let old = job.status.clone().unwrap_or_default();
        if old == plan.status {
            return Ok(());
        }
        let key = Key::of(job);
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let wanted = Job { status: Some(plan.status.clone()), ..job.clone() };
        let written = self.written.write(&key, api.replace_status(&key.name, &PostParams::default(), &wanted)).await;
        ignore_missing(written).during("update Job status")?;
        self.announce(job, &old, &plan.status);
        Ok(())
    }

    fn announce(&self, job: &Job, old: &JobStatus, new: &JobStatus) {
        let note = |kind, reason, message: &str| {
            self.recorder.record(COMPONENT, job, kind, reason, message.to_owned());
        };
        if old.start_time.is_none() && new.start_time.is_some() {
            for field in plan::not_honoured(job) {
                let message = format!("spec.{field} is set, and this controller does not act on it yet");
                note(EventType::Warning, "NotHonoured", &message);
            }
        }
        let appeared = |kind| plan::condition(new, kind).filter(|_| plan::condition(old, kind).is_none());
        if appeared("Suspended").is_some() {
            note(EventType::Normal, "Suspended", "Job suspended");
        }
        if plan::condition(old, "Suspended").is_some() && plan::condition(new, "Suspended").is_none() {
            note(EventType::Normal, "Resumed", "Job resumed");
        }
        if appeared("Complete").is_some() {
            note(EventType::Normal, "Completed", "Job completed");
        }
        if let Some(failed) = appeared("Failed") {
            let message = failed.message.as_deref().unwrap_or_default();
            let late = failed.reason.as_deref() == Some("DeadlineExceeded");
            note(EventType::Warning, if late { "DeadlineExceeded" } else { "BackoffLimitExceeded" }, message);
        }
    }

    /// Deletes a finished Job when its time is over.
    async fn expire(&self, job: &Job) -> Outcome {
        let Some(left) = plan::until_expiry(job, Timestamp::now()) else { return Ok(None) };
        if !left.is_zero() || job.metadata.deletion_timestamp.is_some() {
            return Ok(Some(left).filter(|left| !left.is_zero()));
        }
        let key = Key::of(job);
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        // One whose time was prolonged meanwhile stays.
        let same =
            Preconditions { uid: job.metadata.uid.clone(), resource_version: job.metadata.resource_version.clone() };
        let deleted = api.delete(&key.name, &DeleteParams::foreground().preconditions(same)).await;
        or_event(ignore_missing(deleted).during("delete expired Job"))?;
        Ok(None)
    }
}

/// What `spec.managedBy` says for Jobs of this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// Whether another controller runs the pods of `job`.
fn is_managed_elsewhere(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref()).is_some_and(|by| by != MANAGER)
}

fn selects(job: &Job, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let selector = job.spec.as_ref().and_then(|spec| selector_of(spec.selector.as_ref()?));
    selector.is_some_and(|selector| selector.matches(labels))
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The Job that controls `pod`.
fn owner_key(pod: &Pod) -> Option<Key> {
    let owner = controller_of(&pod.metadata)?;
    (owner.kind == "Job" && owner.api_version.starts_with("batch/"))
        .then(|| Key::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}
