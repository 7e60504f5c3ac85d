//! Rounds in which all kinds of workloads are changed, and the server whose controllers work is
//! killed before it is through.

use std::{path::Path, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    faults::plan::Random,
    kubectl::{Kubectl, PATIENCE},
    several::Several,
    wait,
};

use super::{
    kept::{Volume, volumes},
    outcome::{Settled, WholeJob},
};

/// Beside the set: what has pods without data, and what keeps data without a set.
pub(super) const OTHERS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "36000"]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: each}
spec:
  selector: {matchLabels: {app: each}}
  template:
    metadata: {labels: {app: each}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: each, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "36000"]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: retained}
provisioner: coracle.dev/local-path
reclaimPolicy: Retain
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: retained}
spec: {storageClassName: retained, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  containers:
  - {name: writer, image: busybox, imagePullPolicy: IfNotPresent, command: [sh, -c, "echo precious >/data/file; sync"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: retained}}]
"#;

/// How many pods of each there are in the end, on so many nodes.
pub(super) const fn settled(nodes: usize) -> Settled {
    Settled {
        deployment: 3,
        set: 3,
        nodes,
    }
}

/// Until the server is killed after a change: into whatever follows from it.
const SOON_MILLIS: u64 = 1500;
/// Until a Lease that nobody renews is another's, and its controllers have started.
const LEADS_SOON: Duration = Duration::from_secs(60);
/// A roll-out on two cores that are busy, and with a server that has just been started.
const ROLLED_OUT: &str = "--timeout=150s";

/// What was done in all rounds.
#[derive(Debug, Default)]
pub(super) struct Kills {
    pub(super) jobs: Vec<WholeJob>,
}

/// A volume that nobody may delete, for its class says so.
#[derive(Debug)]
pub(super) struct Retained(Volume);

impl Retained {
    pub(super) fn is_there(&self, kubectl: &Kubectl) {
        let Self(volume) = self;
        wait::until("a volume without its claim", PATIENCE, || {
            let all = volumes(kubectl);
            let mut same = all.iter().filter(|now| now.name == volume.name);
            if same.any(|now| now.phase == "Released" && now.claim == volume.claim) {
                Ok(())
            } else {
                Err(all)
            }
        });
        let kept = std::fs::read_to_string(Path::new(&volume.path).join("file"));
        assert_eq!(kept.ok().as_deref(), Some("precious\n"), "{volume:?}");
    }
}

/// Has a volume written to, and deletes pod and claim: the server may be killed while it sees to
/// that.
pub(super) fn retain(kubectl: &Kubectl) -> Retained {
    kubectl.ok("wait --for=jsonpath={.status.phase}=Succeeded pod/writer --timeout=60s");
    let claim = kubectl.ok("get pvc retained -o jsonpath={.metadata.uid}");
    let volume = volumes(kubectl)
        .into_iter()
        .find(|volume| volume.claim == claim.trim())
        .expect("the claim has a volume");
    kubectl.ok("delete pvc retained --wait=false");
    kubectl.ok("delete pod writer --wait=false");
    Retained(volume)
}

/// The only server, which is started again at once.
pub(super) fn kill_server(cluster: &mut Cluster) {
    cluster.server.as_mut().expect("the server runs").kill();
    cluster.start_server();
}

/// The one whose controllers work; it is started again once another's do.
pub(super) fn kill_leader(several: &mut Several) {
    let leading = wait::until("a server that leads", LEADS_SOON, || {
        several.leader().ok_or("nobody leads")
    });
    several.servers[leading].process.kill();
    let other = several.kubectl((leading + 1) % several.servers.len());
    wait::until("another server leads", LEADS_SOON, || {
        match several.leader_by(&other) {
            Some(next) if next != leading => Ok(()),
            now => Err(now),
        }
    });
    several.start_server(leading);
}

/// Changes everything and has a server killed, so many times.
pub(super) fn play(
    kubectl: &Kubectl,
    count: u64,
    random: &mut Random,
    mut kill: impl FnMut(),
) -> Kills {
    let mut kills = Kills::default();
    for round in 0..count {
        let job = WholeJob::new(round, random.below(2) == 0);
        kubectl.apply(&job.manifest());
        kills.jobs.push(job);
        let (web, db) = (random.below(6), 1 + random.below(3));
        kubectl.ok(&format!("scale deployment web --replicas {web}"));
        kubectl.ok(&format!("scale statefulset db --replicas {db}"));
        let what = ["deployment/web", "statefulset/db", "daemonset/each"];
        let restart = format!("rollout restart {}", what[random.index(what.len())]);
        // kubectl refuses a second one of the same second.
        wait::until("a restart", PATIENCE, || {
            let outcome = kubectl.run(&restart);
            match outcome.code {
                0 => Ok(()),
                _ => Err(outcome.stderr),
            }
        });
        let soon = Duration::from_millis(random.below(SOON_MILLIS));
        wait::quietly(soon, || None::<()>);
        kill();
        eprintln!("kill {round}: {web} of web, {db} of db, after {soon:?}");
    }
    kills
}

/// Asks for what is known at the end, and waits until it is there.
pub(super) fn settle(kubectl: &Kubectl, settled: Settled) {
    let Settled {
        deployment, set, ..
    } = settled;
    kubectl.ok(&format!("scale deployment web --replicas {deployment}"));
    kubectl.ok(&format!("scale statefulset db --replicas {set}"));
    for what in ["deployment/web", "statefulset/db", "daemonset/each"] {
        kubectl.ok(&format!("rollout status {what} {ROLLED_OUT}"));
    }
}
