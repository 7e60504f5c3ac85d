//! Makes the Jobs of CronJobs when they are due, and deletes old ones.
//!
//! Watches CronJobs and Jobs. The name of a Job is that of its minute, so that no minute has two;
//! the status is written once a round, after the Job is made. Not here: what a schedule says, which
//! is `coracle_api::cron`'s, and what becomes of a Job.
//!
//! Source: `pkg/controller/cronjob/cronjob_controllerv2.go` at v1.37.

use std::{collections::HashSet, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use jiff::tz::TimeZone;
use k8s_openapi::api::{
    batch::v1::{CronJob, CronJobStatus, Job},
    core::v1::ObjectReference,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key, controlled_by},
    clock::Clock,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing, or_event},
    errors::{is_already_exists, is_namespace_terminating, message_of},
    event_recorder::component::ComponentRecorder,
    owner::is_controlled_by,
};

mod due;
mod job;
mod plan;
#[cfg(test)]
mod tests;

use due::Due;
use plan::{Plan, Seen, Told};

/// CronJobs worked on at once.
const WORKERS: usize = 5;
const COMPONENT: &str = "cronjob-controller";

/// The controller; it keeps what it has written until that shows.
pub(crate) struct CronJobController {
    client: Client,
    clock: Clock,
    recorder: ComponentRecorder,
    cron_jobs: Arc<Cache<CronJob>>,
    jobs: By<Job>,
    made: OwnWrites<Job>,
    written: OwnWrites<CronJob>,
}

impl CronJobController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "cronjob-controller";
        let mut controller = Builder::managed_by(manager, name, "cronjob").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            clock: context.config.clock.clone(),
            recorder: context.recorder.of(COMPONENT),
            cron_jobs: controller.reads(),
            // Nobody adopts Jobs.
            jobs: controller.owns::<CronJob, Job>(|_| None),
            made: controller.own_writes(),
            written: controller.own_writes(),
        });
        controller.on_change(&this, Self::changed);
        controller.complete(this);
    }

    /// What a new schedule would have made due before is not made up for: it is looked at when it
    /// is due next.
    fn changed(&self, change: &Change<'_, CronJob>, queue: &Queue) {
        let cron_job = change.latest();
        let key = Key::of(cron_job.as_ref());
        let Change::Updated { old, .. } = change else {
            return queue.add(key);
        };
        let schedule = |cron_job: &CronJob| {
            let spec = &cron_job.spec;
            (spec.schedule.clone(), spec.time_zone.clone())
        };
        if schedule(old) == schedule(cron_job) {
            return queue.add(key);
        }
        match Due::of(cron_job, &TimeZone::system()) {
            Ok(due) => {
                if let Some(wait) = due.until_next(cron_job, self.clock.now()) {
                    queue.add_after(key, wait);
                }
            }
            Err(_) => {
                let (text, _) = schedule(cron_job);
                let message = format!("unparseable schedule for cronjob: {text}");
                let reason = "UnParseableCronJobSchedule";
                self.recorder.warning(cron_job.as_ref(), reason, message);
            }
        }
    }
}

impl Reconciler for CronJobController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(cron_job) = self.cron_jobs.get(&key) else {
            return Ok(None);
        };
        let uid = cron_job.uid().unwrap_or_default();
        let jobs = self.jobs.get(&controlled_by(&key.namespace, &uid));
        let missing = self.missing(&key, &cron_job, &jobs).await?;
        let seen = Seen {
            jobs: &jobs,
            missing: &missing,
            now: self.clock.now(),
            local: &TimeZone::system(),
        };
        let mut plan = plan::plan(&cron_job, &seen);
        self.remove(&key, &cron_job, &plan.remove).await;
        for told in &plan.tell {
            self.tell(&cron_job, told);
        }
        let started = self.start(&key, &cron_job, &jobs, &mut plan).await;
        self.write_status(&key, &cron_job, &plan.status).await?;
        started?;
        Ok(plan.again)
    }
}

impl CronJobController {
    /// The uids of Jobs that the status names as active and that are gone. Asked of the server
    /// itself: the cache may not have come to them.
    async fn missing(
        &self,
        key: &Key,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
    ) -> Result<HashSet<String>, ReconcileError> {
        let mut missing = HashSet::new();
        for active in plan::unseen(cron_job, jobs) {
            let (uid, name) = (active.uid.as_deref(), active.name.as_deref());
            let api = self.api(key);
            let found = api.get_metadata_opt(name.unwrap_or_default()).await;
            let found = found.during("get an active Job")?;
            if found.is_none_or(|found| found.uid().as_deref() != uid) {
                missing.insert(uid.unwrap_or_default().to_owned());
            }
        }
        Ok(missing)
    }

    /// Deletes old Jobs. What fails is tried again when the CronJob is looked at next.
    async fn remove(&self, key: &Key, cron_job: &CronJob, jobs: &[Arc<Job>]) {
        for job in jobs {
            // It tells of what fails.
            drop(self.delete(key, cron_job, job).await);
        }
    }

    /// Deletes a Job with its pods.
    async fn delete(&self, key: &Key, cron_job: &CronJob, job: &Job) -> Result<(), ReconcileError> {
        let same = Preconditions {
            uid: job.uid(),
            resource_version: None,
        };
        let (api, params) = (
            self.api(key),
            DeleteParams::background().preconditions(same),
        );
        let (name, call) = (job.name_any(), "delete Job");
        let deleted = self.made.delete(key, job, api.delete(&name, &params)).await;
        match ignore_missing(deleted) {
            Ok(_) => {
                let message = format!("Deleted job {name}");
                self.recorder.normal(cron_job, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) => {
                let message = format!("Deleted job: {}", message_of(&error));
                self.recorder.warning(cron_job, "FailedDelete", message);
                Err(error).during(call)
            }
        }
    }

    /// Makes the Job that is due, once those are gone that it replaces; notes it in the status.
    async fn start(
        &self,
        key: &Key,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
        plan: &mut Plan,
    ) -> Result<(), ReconcileError> {
        let Some(start) = plan.start.take() else {
            return Ok(());
        };
        for replaced in std::mem::take(&mut plan.replace) {
            let job = jobs.iter().find(|job| job.uid() == replaced.uid);
            let deleted = match job {
                Some(job) => self.delete(key, cron_job, job).await,
                None => Err(ReconcileError::NotYet(format!(
                    "the Job {} that is to be replaced is not seen yet",
                    replaced.name.as_deref().unwrap_or_default()
                ))),
            };
            if deleted.is_err() {
                plan.status.active.get_or_insert_default().push(replaced);
                return deleted;
            }
        }
        let job = self.create(key, cron_job, &start.job).await?;
        let Some(job) = job else { return Ok(()) };
        let reference = job.object_ref(&());
        let active = plan.status.active.get_or_insert_default();
        if !active.iter().any(|known| known.uid == reference.uid) {
            active.push(ObjectReference {
                resource_version: job.resource_version(),
                ..reference
            });
        }
        plan.status.last_schedule_time = Some(start.time);
        Ok(())
    }

    /// The Job, made now or before by this controller; `None` if another has its name.
    async fn create(
        &self,
        key: &Key,
        cron_job: &CronJob,
        job: &Job,
    ) -> Result<Option<Job>, ReconcileError> {
        let api = self.api(key);
        let created = self
            .made
            .write(key, api.create(&PostParams::default(), job))
            .await;
        match created {
            Ok(created) => {
                let message = format!("Created job {}", created.name_any());
                self.recorder.normal(cron_job, "SuccessfulCreate", message);
                Ok(Some(created))
            }
            // It may have been made, and this controller ended before it was noted.
            Err(error) if is_already_exists(&error) => {
                let found = api.get_opt(&job.name_any()).await;
                let found = found.during("get the Job of that name")?;
                let uid = cron_job.uid().unwrap_or_default();
                Ok(found.filter(|found| is_controlled_by(found.meta(), &uid)))
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating job: {}", message_of(&error));
                    self.recorder.warning(cron_job, "FailedCreate", message);
                }
                Err(error).during("create Job")
            }
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        cron_job: &CronJob,
        status: &CronJobStatus,
    ) -> Result<(), ReconcileError> {
        if *status == plan::status_of(cron_job) {
            return Ok(());
        }
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), &key.namespace);
        let wanted = CronJob {
            status: Some(status.clone()),
            ..cron_job.clone()
        };
        let params = PostParams::default();
        let call = api.replace_status(&key.name, &params, &wanted);
        let written = self.written.write(key, call).await;
        or_event(ignore_missing(written).during("update CronJob status")).map(drop)
    }

    fn tell(&self, cron_job: &CronJob, told: &Told) {
        let message = told.message.as_str();
        match told.is_warning {
            true => self.recorder.warning(cron_job, told.reason, message),
            false => self.recorder.normal(cron_job, told.reason, message),
        }
    }

    fn api(&self, key: &Key) -> Api<Job> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}
