//! A Deployment amid a world that does what its plans say, with delay.

use k8s_openapi::{
    api::{
        apps::v1::{DeploymentSpec, DeploymentStrategy, ReplicaSetStatus, RollingUpdateDeployment},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, Time},
        util::intstr::IntOrString,
    },
};
use kube::api::ObjectMeta;

use super::super::{replica_set::REVISION, *};

pub(super) const START: i64 = 1_000_000;

fn template(image: &str) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "web".into(),
                image: Some(image.into()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
    }
}

/// A ReplicaSet with its pods: the truth, and in `rs.status` what was reported of it last.
pub(super) struct Set {
    pub(super) rs: ReplicaSet,
    actual: i32,
    available: i32,
}

/// A Deployment and a world that follows its plans with delay.
pub(super) struct Sim {
    pub(super) deployment: Deployment,
    pub(super) sets: Vec<Set>,
    pub(super) clock: i64,
}

impl Sim {
    pub(super) fn new(replicas: i32, surge: i32, unavailable: i32) -> Self {
        let deployment = Deployment {
            metadata: ObjectMeta {
                name: Some("web".into()),
                namespace: Some("ns".into()),
                uid: Some("d".into()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            spec: DeploymentSpec {
                replicas: Some(replicas),
                progress_deadline_seconds: Some(600),
                revision_history_limit: Some(10),
                selector: LabelSelector {
                    match_labels: Some([("app".to_owned(), "web".to_owned())].into()),
                    ..LabelSelector::default()
                },
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".into()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(IntOrString::Int(surge)),
                        max_unavailable: Some(IntOrString::Int(unavailable)),
                    }),
                }),
                template: template("v1"),
                ..DeploymentSpec::default()
            },
            status: None,
        };
        Self {
            deployment,
            sets: Vec::new(),
            clock: START,
        }
    }

    pub(super) fn rolled_out(replicas: i32, surge: i32, unavailable: i32) -> Self {
        let mut sim = Self::new(replicas, surge, unavailable);
        sim.settle();
        sim
    }

    pub(super) fn recreate(replicas: i32) -> Self {
        let mut sim = Self::new(replicas, 0, 0);
        sim.deployment.spec.strategy = Some(DeploymentStrategy {
            type_: Some("Recreate".into()),
            rolling_update: None,
        });
        sim.settle();
        sim
    }

    pub(super) fn set_image(&mut self, image: &str) {
        self.deployment.spec.template = template(image);
        self.deployment.metadata.generation = self
            .deployment
            .metadata
            .generation
            .map(|generation| generation + 1);
    }

    pub(super) fn resize(&mut self, replicas: i32) {
        self.deployment.spec.replicas = Some(replicas);
        self.deployment.metadata.generation = self
            .deployment
            .metadata
            .generation
            .map(|generation| generation + 1);
    }

    pub(super) fn plan(&self) -> Plan {
        let replica_sets: Vec<_> = self
            .sets
            .iter()
            .map(|set| Arc::new(set.rs.clone()))
            .collect();
        let now = Timestamp::from_second(self.clock).unwrap();
        plan::plan(&Input {
            deployment: &self.deployment,
            replica_sets: &replica_sets,
            pods: &[],
            now,
        })
    }

    pub(super) fn apply(&mut self, plan: Plan) {
        self.clock += 1;
        if let Some(draft) = plan.create {
            let mut rs = draft.rs;
            rs.metadata.uid = Some(format!("rs{}", self.clock));
            rs.metadata.generation = Some(1);
            rs.metadata.creation_timestamp =
                Some(Time(Timestamp::from_second(self.clock).unwrap()));
            self.sets.push(Set {
                rs,
                actual: 0,
                available: 0,
            });
        }
        for draft in plan.update {
            let set = self
                .sets
                .iter_mut()
                .find(|set| set.rs.metadata.name == draft.rs.metadata.name)
                .unwrap();
            let generation = set.rs.metadata.generation.map(|generation| generation + 1);
            set.rs = draft.rs;
            set.rs.metadata.generation = generation;
        }
        for draft in plan.delete {
            self.sets
                .retain(|set| set.rs.metadata.name != draft.rs.metadata.name);
        }
        if let Some(revision) = plan.revision {
            self.deployment
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(REVISION.into(), revision);
        }
        self.deployment.status = Some(plan.status);
    }

    pub(super) fn step(&mut self) {
        let plan = self.plan();
        self.apply(plan);
    }

    /// The ReplicaSet controller creates and deletes pods; unready ones go first.
    pub(super) fn sync(&mut self, at: usize) {
        let Some(set) = self.sets.get_mut(at) else {
            return;
        };
        let wanted = set.rs.spec.replicas.unwrap();
        let surplus = (set.actual - wanted).max(0);
        let unready = set.actual - set.available;
        set.available -= (surplus - unready).max(0);
        set.actual = wanted;
    }

    /// One pod becomes ready.
    pub(super) fn ready(&mut self, at: usize) {
        let Some(set) = self.sets.get_mut(at) else {
            return;
        };
        set.available = (set.available + 1).min(set.actual);
    }

    pub(super) fn report(&mut self, at: usize) {
        let Some(set) = self.sets.get_mut(at) else {
            return;
        };
        set.rs.status = Some(ReplicaSetStatus {
            replicas: set.actual,
            ready_replicas: Some(set.available),
            available_replicas: Some(set.available),
            observed_generation: set.rs.metadata.generation,
            ..ReplicaSetStatus::default()
        });
    }

    /// Lets everything happen until nothing changes any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..500 {
            let before: Vec<_> = self
                .sets
                .iter()
                .map(|set| (set.rs.clone(), set.actual, set.available))
                .collect();
            let status = self.deployment.status.clone();
            self.step();
            for at in 0..self.sets.len() {
                self.sync(at);
                (0..3).for_each(|_| self.ready(at));
                self.report(at);
            }
            let after: Vec<_> = self
                .sets
                .iter()
                .map(|set| (set.rs.clone(), set.actual, set.available))
                .collect();
            if before == after && status == self.deployment.status {
                return;
            }
        }
        panic!("never settles");
    }

    pub(super) fn wanted_total(&self) -> i32 {
        self.sets
            .iter()
            .map(|set| set.rs.spec.replicas.unwrap())
            .sum()
    }

    pub(super) fn available_total(&self) -> i32 {
        self.sets.iter().map(|set| set.available).sum()
    }

    /// Size and revision, by revision.
    pub(super) fn sizes(&self) -> Vec<(i32, String)> {
        let mut sizes: Vec<_> = self
            .sets
            .iter()
            .map(|set| {
                (
                    set.rs.spec.replicas.unwrap(),
                    set.rs.metadata.annotations.as_ref().unwrap()[REVISION].clone(),
                )
            })
            .collect();
        sizes.sort_by_key(|(_, revision)| revision.parse::<i64>().unwrap());
        sizes
    }

    pub(super) fn reason(&self, kind: &str) -> (String, String) {
        let conditions = self
            .deployment
            .status
            .as_ref()
            .unwrap()
            .conditions
            .clone()
            .unwrap();
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_.as_deref() == Some(kind))
            .unwrap();
        (found.status.unwrap(), found.reason.unwrap())
    }
}
