//! What must be true in the end, whatever has happened on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coracle_tests::{kubectl::Kubectl, wait};
use serde_json::Value;

use super::kept::volumes;

/// How many pods of each there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub(super) deployment: usize,
    pub(super) set: usize,
    pub(super) nodes: usize,
}

/// A Job of some indexes, of which one may always fail.
#[derive(Debug)]
pub(super) struct WholeJob {
    name: String,
    fails: bool,
}

const INDEXES: usize = 5;
/// Where a pod says which of them it is for.
const INDEX: &str = "/metadata/labels/batch.kubernetes.io~1job-completion-index";
/// Until a minute is over, and its Job is there.
const A_MINUTE: Duration = Duration::from_secs(90);
/// All Jobs of all rounds, on two cores.
const ALL_JOBS: Duration = Duration::from_secs(120);

impl WholeJob {
    pub(super) fn new(round: u64, fails: bool) -> Self {
        Self {
            name: format!("whole-{round}"),
            fails,
        }
    }

    pub(super) fn manifest(&self) -> String {
        let Self { name, fails } = self;
        let fails = if *fails { "1" } else { "none" };
        format!(
            r#"
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  completionMode: Indexed
  completions: {INDEXES}
  parallelism: 3
  backoffLimitPerIndex: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: work, image: busybox, imagePullPolicy: IfNotPresent, command: [sh, -c, 'test "$JOB_COMPLETION_INDEX" != {fails}']}}]
"#
        )
    }

    /// Every index was worked on by one pod, and each pod is counted once.
    pub(super) fn is_right(&self, kubectl: &Kubectl) {
        let Self { name, fails } = self;
        let job = wait::until("the end of a Job", ALL_JOBS, || {
            let job = kubectl.json(&format!("job {name}"));
            let conditions = job["status"]["conditions"].as_array();
            let ends = |kind: &str| {
                let mut all = conditions.into_iter().flatten();
                all.any(|condition| condition["type"] == kind && condition["status"] == "True")
            };
            if ends(if *fails { "Failed" } else { "Complete" }) {
                Ok(job)
            } else {
                Err(job["status"].clone())
            }
        });
        let status = &job["status"];
        let (succeeded, failed, completed, failures) = match fails {
            true => (INDEXES - 1, 1, "0,2-4", Some("1")),
            false => (INDEXES, 0, "0-4", None),
        };
        assert_eq!(
            status["succeeded"].as_u64(),
            u64::try_from(succeeded).ok(),
            "{status}"
        );
        assert_eq!(status["failed"].as_u64().unwrap_or(0), failed, "{status}");
        assert_eq!(
            status["completedIndexes"].as_str(),
            Some(completed),
            "{status}"
        );
        assert_eq!(
            status["failedIndexes"]
                .as_str()
                .filter(|indexes| !indexes.is_empty()),
            failures,
            "{status}"
        );
        assert_eq!(status["active"].as_u64().unwrap_or(0), 0, "{status}");
        let uncounted = &status["uncountedTerminatedPods"];
        assert!(
            uncounted.as_object().is_none_or(serde_json::Map::is_empty),
            "{status}"
        );
        self.has_a_pod_for_each_index(kubectl);
    }

    fn has_a_pod_for_each_index(&self, kubectl: &Kubectl) {
        let name = &self.name;
        let pods = kubectl.json(&format!("pods -l batch.kubernetes.io/job-name={name}"));
        let pods = items(&pods);
        let indexes: Vec<_> = pods
            .iter()
            .map(|pod| {
                text(
                    pod,
                    "/metadata/labels/batch.kubernetes.io~1job-completion-index",
                )
            })
            .collect();
        assert_eq!(indexes.len(), INDEXES, "{name}: {indexes:?}");
        let different: BTreeSet<_> = indexes.iter().collect();
        assert_eq!(different.len(), INDEXES, "{name}: {indexes:?}");
        for pod in pods {
            let finalizers = &pod["metadata"]["finalizers"];
            assert!(finalizers.is_null(), "{name}: {finalizers}");
            let hostname = format!("{name}-{}", text(pod, INDEX));
            assert_eq!(text(pod, "/spec/hostname"), hostname);
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text(object: &Value, pointer: &str) -> String {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// No pod too many, none too few, no name and no node twice; all of the newest template.
pub(super) fn every_workload_has_its_pods(kubectl: &Kubectl, settled: Settled) {
    let of = |app: &str, count: usize| {
        kubectl.count_is(&format!("pods -l app={app}"), count);
        kubectl.json(&format!("pods -l app={app}"))
    };
    let set = of("db", settled.set);
    let names: BTreeSet<_> = items(&set)
        .iter()
        .map(|pod| text(pod, "/metadata/name"))
        .collect();
    let ordinals: BTreeSet<_> = (0..settled.set).map(|n| format!("db-{n}")).collect();
    assert_eq!(names, ordinals);
    one_value(items(&set), "/metadata/labels/controller-revision-hash");
    let each = of("each", settled.nodes);
    let nodes: BTreeSet<_> = items(&each)
        .iter()
        .map(|pod| text(pod, "/spec/nodeName"))
        .collect();
    assert_eq!(nodes.len(), settled.nodes, "{nodes:?}");
    one_value(items(&each), "/metadata/labels/controller-revision-hash");
    let web = of("web", settled.deployment);
    one_value(items(&web), "/metadata/labels/pod-template-hash");
}

fn one_value(pods: &[Value], pointer: &str) {
    let values: BTreeSet<_> = pods.iter().map(|pod| text(pod, pointer)).collect();
    assert_eq!(values.len(), 1, "{pointer}: {values:?}");
}

/// Neither as an object nor as a directory.
pub(super) fn no_volume_has_two_claims(kubectl: &Kubectl) {
    let claims = kubectl.json("pvc");
    let mut bound = BTreeMap::new();
    for claim in items(&claims) {
        let name = text(claim, "/metadata/name");
        assert_eq!(text(claim, "/status/phase"), "Bound", "{name}");
        let volume = text(claim, "/spec/volumeName");
        let uid = text(claim, "/metadata/uid");
        if let Some(other) = bound.insert(volume.clone(), (name.clone(), uid)) {
            panic!("{volume} is given to {other:?} and {name}");
        }
    }
    let volumes = volumes(kubectl);
    let paths: BTreeSet<_> = volumes.iter().map(|volume| &volume.path).collect();
    assert_eq!(paths.len(), volumes.len(), "{volumes:?}");
    let whose: BTreeSet<_> = volumes.iter().map(|volume| &volume.claim).collect();
    assert_eq!(whose.len(), volumes.len(), "{volumes:?}");
    for (name, (claim, uid)) in bound {
        let volume = volumes.iter().find(|volume| volume.name == name);
        let volume = volume.unwrap_or_else(|| panic!("{claim} has lost {name}: {volumes:?}"));
        assert_eq!((&*volume.phase, &volume.claim), ("Bound", &uid), "{claim}");
    }
}

/// One Job for each minute from the first on: none twice, none left out.
pub(super) fn a_job_was_made_each_minute(kubectl: &Kubectl, cron_job: &str) {
    let jobs = wait::until("a Job of a minute", A_MINUTE, || {
        let list = kubectl.json("jobs");
        let of = |job: &&Value| text(job, "/metadata/ownerReferences/0/name") == cron_job;
        let jobs: Vec<Value> = items(&list).iter().filter(of).cloned().collect();
        let succeeded = |job: &Value| job["status"]["succeeded"] == 1;
        if !jobs.is_empty() && jobs.iter().all(succeeded) {
            Ok(jobs)
        } else {
            Err(jobs)
        }
    });
    let minute = |job: &Value| {
        let name = text(job, "/metadata/name");
        let minute = name.rsplit('-').next().and_then(|last| last.parse().ok());
        minute.unwrap_or_else(|| panic!("{name} names no minute"))
    };
    let mut minutes: Vec<u64> = jobs.iter().map(minute).collect();
    minutes.sort_unstable();
    for pair in minutes.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "{minutes:?}");
    }
    let told = |job: &Value| {
        text(
            job,
            "/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp",
        )
    };
    let different: BTreeSet<_> = jobs.iter().map(told).collect();
    assert_eq!(different.len(), jobs.len(), "{different:?}");
}
