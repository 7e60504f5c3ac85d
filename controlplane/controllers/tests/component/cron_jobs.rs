//! CronJobs, by a clock that the test sets.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use coracle_controllers::Clock;
use coracle_telemetry::metrics::MetricsRegistry;
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobStatus, Job},
        core::v1::Event,
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    jobs::{end_pods, status},
    own_writes::poke,
};

const HOUR: i64 = 3600;

/// How much later than now it is.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<AtomicI64>);

impl Hands {
    pub(crate) fn clock(&self) -> Clock {
        let hands = self.clone();
        Clock::of(move || hands.now())
    }

    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn set(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// All controllers by a clock, and who looks when it is set.
struct Clocked {
    cluster: Cluster,
    hands: Hands,
    metrics: MetricsRegistry,
    pokes: AtomicI64,
}

impl Clocked {
    async fn start() -> Self {
        let (hands, metrics) = (Hands::default(), MetricsRegistry::default());
        let (clock, counted) = (hands.clock(), metrics.clone());
        let adjust = |config: &mut coracle_controllers::ControllersConfig| {
            config.clock = clock;
            config.metrics = counted;
        };
        Self {
            cluster: Cluster::start_with(adjust).await,
            hands,
            metrics,
            pokes: AtomicI64::new(0),
        }
    }

    fn change(&self) -> Value {
        let number = self.pokes.fetch_add(1, Ordering::Relaxed);
        json!({"metadata": {"annotations": {"looked": number.to_string()}}})
    }

    /// Sets the clock and has the controller look, as its queue does when it notices.
    async fn set(&self, seconds: i64) {
        self.hands.set(seconds);
        poke::<CronJob>(
            &self.cluster,
            "tick",
            self.change(),
            &self.metrics,
            "cronjob",
        )
        .await;
    }

    async fn create(&self, more: Value) {
        self.cluster
            .create::<CronJob>("default", cron_job(more))
            .await;
    }

    async fn status(&self) -> CronJobStatus {
        let cron_job = self.cluster.get_opt::<CronJob>("default", "tick").await;
        cron_job.unwrap().status.unwrap_or_default()
    }

    /// The minutes of its Jobs.
    async fn minutes(&self) -> Vec<i64> {
        minutes(&self.cluster).await
    }

    async fn wait_for_jobs(&self, count: usize) {
        let made = || async { self.minutes().await.len() == count };
        self.cluster.wait("so many Jobs", made).await;
    }

    async fn told(&self, reason: &str) -> bool {
        let events = self.cluster.list::<Event>("default").await;
        events
            .iter()
            .any(|event| event.reason.as_deref() == Some(reason))
    }
}

/// One of an hour in which nothing is due but what the clock is set to.
pub(crate) fn cron_job(more: Value) -> Value {
    let container = json!({"name": "c", "image": "i"});
    let mut spec = json!({"schedule": "* * * * *", "successfulJobsHistoryLimit": 100, "failedJobsHistoryLimit": 100,
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "tick"}, "spec": spec})
}

/// The minutes of all Jobs of CronJobs, in their order.
pub(crate) async fn minutes(cluster: &Cluster) -> Vec<i64> {
    let jobs = cluster.list::<Job>("default").await;
    let minute = |job: &Job| job.name_any().rsplit_once('-')?.1.parse::<i64>().ok();
    let mut minutes: Vec<i64> = jobs.iter().filter_map(minute).collect();
    minutes.sort_unstable();
    minutes
}

/// A schedule that is due once an hour, half an hour from now: a test takes less.
fn hourly() -> Value {
    let half = Timestamp::now() + SignedDuration::from_mins(30);
    json!(format!("{} * * * *", half.as_second() / 60 % 60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_made_when_it_is_due_and_noted() {
    let clocked = Clocked::start().await;
    let cluster = &clocked.cluster;
    cluster.run_agent();
    clocked
        .create(json!({"schedule": hourly(), "timeZone": "Etc/UTC"}))
        .await;
    clocked.set(1).await;
    assert_eq!(clocked.minutes().await, [0; 0]);
    clocked.set(HOUR).await;
    clocked.wait_for_jobs(1).await;
    let job = cluster.list::<Job>("default").await.remove(0);
    let owner = &job.owner_references()[0];
    assert_eq!(
        (&*owner.kind, &*owner.name, owner.controller),
        ("CronJob", "tick", Some(true))
    );
    let due = Timestamp::from_second(clocked.minutes().await[0] * 60).unwrap();
    assert!(due < clocked.hands.now());
    let scheduled = &job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(*scheduled, due.to_string());
    let noted = || async {
        clocked
            .status()
            .await
            .active
            .is_some_and(|active| active.len() == 1)
    };
    cluster.wait("the Job to be noted", noted).await;
    let before = clocked.status().await;
    assert_eq!(before.last_schedule_time.map(|time| time.0), Some(due));
    let reference = &before.active.unwrap()[0];
    assert_eq!(
        (reference.uid.clone(), reference.kind.as_deref()),
        (job.uid(), Some("Job"))
    );
    let name = job.name_any();
    let succeeded = || async {
        end_pods(cluster, "Succeeded").await;
        let status = clocked.status().await;
        status.active.is_none() && status.last_successful_time.is_some()
    };
    cluster.wait("its success to be noted", succeeded).await;
    assert_eq!(status(cluster, &name).await.succeeded, Some(1));
    for reason in ["SuccessfulCreate", "SawCompletedJob"] {
        cluster.wait(reason, || clocked.told(reason)).await;
    }
    // It goes with its CronJob.
    cluster
        .api::<CronJob>("default")
        .delete("tick", &Default::default())
        .await
        .unwrap();
    clocked.wait_for_jobs(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_by_an_hour_makes_no_job_twice_and_loses_none_that_is_still_due() {
    let clocked = Clocked::start().await;
    clocked.create(json!({"schedule": hourly()})).await;
    clocked.set(HOUR).await;
    clocked.wait_for_jobs(1).await;
    let first = clocked.minutes().await[0];
    // Back: what was made is not made again, nor anything else until it is due once more.
    clocked.set(-HOUR).await;
    clocked.set(HOUR).await;
    assert_eq!(clocked.minutes().await, [first]);
    // On: of several that were missed at once the last.
    clocked.set(3 * HOUR).await;
    clocked.wait_for_jobs(2).await;
    assert_eq!(clocked.minutes().await, [first, first + 180]);
    clocked.set(-HOUR).await;
    clocked.set(2 * HOUR).await;
    clocked.wait_for_jobs(3).await;
    assert_eq!(clocked.minutes().await, [first, first + 180, first + 240]);
    assert!(!clocked.told("TooManyMissedTimes").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_at_a_time_waits_or_is_replaced() {
    let clocked = Clocked::start().await;
    // Without an agent they stay active.
    clocked
        .create(json!({"schedule": hourly(), "concurrencyPolicy": "Forbid"}))
        .await;
    clocked.set(HOUR).await;
    clocked.wait_for_jobs(1).await;
    let first = clocked.minutes().await[0];
    clocked.set(HOUR).await;
    clocked
        .cluster
        .wait("the event", || clocked.told("JobAlreadyActive"))
        .await;
    assert_eq!(clocked.minutes().await, [first]);
    let replace = json!({"spec": {"concurrencyPolicy": "Replace"}});
    clocked
        .cluster
        .merge::<CronJob>("default", "tick", replace)
        .await;
    let replaced = || async { clocked.minutes().await == [first + 60] };
    clocked
        .cluster
        .wait("the Job to be replaced", replaced)
        .await;
    let noted = || async {
        let active = clocked.status().await.active.unwrap_or_default();
        active.len() == 1 && active[0].name == Some(format!("tick-{}", first + 60))
    };
    clocked.cluster.wait("the other to be noted", noted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_schedule_makes_up_for_nothing_and_history_is_cut() {
    let clocked = Clocked::start().await;
    let cluster = &clocked.cluster;
    cluster.run_agent();
    clocked
        .create(json!({"schedule": hourly(), "successfulJobsHistoryLimit": 1, "suspend": true}))
        .await;
    clocked.set(HOUR).await;
    assert_eq!(clocked.minutes().await, [0; 0], "it is suspended");
    let resume = json!({"spec": {"suspend": false}});
    cluster.merge::<CronJob>("default", "tick", resume).await;
    clocked.wait_for_jobs(1).await;
    let first = clocked.minutes().await[0];
    for hours in 1..=2 {
        let ended = || async {
            end_pods(cluster, "Succeeded").await;
            clocked.status().await.active.is_none()
        };
        cluster.wait("the Job to end", ended).await;
        clocked.set(HOUR).await;
        let made = || async { clocked.minutes().await.contains(&(first + 60 * hours)) };
        cluster.wait("the next", made).await;
    }
    let cut = || async { clocked.minutes().await == [first + 60, first + 120] };
    cluster.wait("the oldest to go", cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_stays_its_time_by_a_clock_that_is_set() {
    let clocked = Clocked::start().await;
    let (cluster, now) = (&clocked.cluster, Timestamp::now());
    let spec = json!({"managedBy": "example.org/queue", "ttlSecondsAfterFinished": HOUR});
    cluster
        .create::<Job>("default", crate::jobs::job("kept", spec))
        .await;
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Done", "lastTransitionTime": at});
    let status = json!({"startTime": at, "completionTime": at, "succeeded": 1, "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    let done = Patch::Merge(json!({"status": status}));
    cluster
        .api::<Job>("default")
        .patch_status("kept", &PatchParams::default(), &done)
        .await
        .unwrap();
    let queue = "ttl_jobs_to_delete";
    for seconds in [-HOUR, HOUR, HOUR / 2] {
        clocked.hands.set(seconds);
        poke::<Job>(cluster, "kept", clocked.change(), &clocked.metrics, queue).await;
    }
    clocked.hands.set(HOUR);
    cluster
        .merge::<Job>("default", "kept", clocked.change())
        .await;
    let gone = || async { cluster.get_opt::<Job>("default", "kept").await.is_none() };
    cluster.wait("it to expire", gone).await;
}
