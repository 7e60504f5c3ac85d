//! The Deployment plan: what it promises at every moment, and single decisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::*;

mod sim;

use sim::{START, Sim};

#[derive(Debug, Clone)]
enum Happening {
    Plan,
    Sync(usize),
    Ready(usize),
    Report(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => Just(Happening::Plan),
        2 => (0..4usize).prop_map(Happening::Sync),
        3 => (0..4usize).prop_map(Happening::Ready),
        2 => (0..4usize).prop_map(Happening::Report),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rolling_update_stays_within_its_bounds_and_ends(
        replicas in 1..15i32,
        surge in 0..5i32,
        unavailable in 0..5i32,
        happenings in prop::collection::vec(happening(), 0..150),
        second_update in 0..100usize,
    ) {
        let mut sim = Sim::rolled_out(replicas, surge, unavailable);
        let most = replicas + strategy::max_surge(&sim.deployment);
        let least = replicas - strategy::max_unavailable(&sim.deployment);
        sim.set_image("v2");
        for (number, happening) in happenings.into_iter().enumerate() {
            if number == second_update {
                sim.set_image("v3");
            }
            match happening {
                Happening::Plan => sim.step(),
                Happening::Sync(at) => sim.sync(at),
                Happening::Ready(at) => sim.ready(at),
                Happening::Report(at) => sim.report(at),
            }
            prop_assert!(sim.wanted_total() <= most, "{} wanted, at most {most} allowed", sim.wanted_total());
            prop_assert!(sim.available_total() >= least, "{} available, at least {least} needed", sim.available_total());
        }
        sim.settle();
        let sizes = sim.sizes();
        prop_assert_eq!(sizes.last().unwrap().0, replicas);
        prop_assert_eq!(sizes.iter().map(|(size, _)| size).sum::<i32>(), replicas);
        prop_assert_eq!(sim.reason("Progressing").1, "NewReplicaSetAvailable");
        let idle = sim.plan();
        prop_assert!(idle.create.is_none() && idle.update.is_empty() && idle.delete.is_empty() && idle.revision.is_none());
        prop_assert!(!status::differs(sim.deployment.status.as_ref(), &idle.status));
    }

    #[test]
    fn scaling_amid_a_rollout_adds_up(
        replicas in 2..30i32,
        target in 0..40i32,
        surge in 1..6i32,
        steps in 0..6usize,
    ) {
        let mut sim = Sim::rolled_out(replicas, surge, 0);
        sim.set_image("v2");
        for _ in 0..steps {
            sim.step();
            for at in 0..sim.sets.len() {
                sim.sync(at);
                sim.ready(at);
                sim.report(at);
            }
        }
        sim.resize(target);
        for _ in 0..3 {
            sim.step();
            let most = target + if target > 0 { strategy::max_surge(&sim.deployment) } else { 0 };
            prop_assert!(sim.wanted_total() <= most, "{:?} of at most {most}", sim.sizes());
        }
        sim.settle();
        prop_assert_eq!(sim.wanted_total(), target);
    }
}

#[test]
fn first_rollout_creates_one_replica_set_of_full_size() {
    let sim = Sim::new(3, 1, 0);
    let plan = sim.plan();
    let draft = plan.create.unwrap();
    assert_eq!((draft.from, draft.replicas()), (0, 3));
    let labels = draft.rs.metadata.labels.clone().unwrap();
    let hash = &labels["pod-template-hash"];
    assert_eq!(draft.name(), format!("web-{hash}"));
    assert_eq!(
        draft.rs.spec.selector.match_labels.as_ref().unwrap()["pod-template-hash"],
        *hash
    );
    assert_eq!(plan.revision.as_deref(), Some("1"));
    let annotations = draft.rs.metadata.annotations.unwrap();
    assert_eq!(
        annotations["deployment.kubernetes.io/desired-replicas"],
        "3"
    );
    assert_eq!(annotations["deployment.kubernetes.io/max-replicas"], "4");
}

#[test]
fn rollback_reuses_the_old_replica_set_under_a_new_revision() {
    let mut sim = Sim::rolled_out(2, 1, 0);
    sim.set_image("v2");
    sim.settle();
    sim.set_image("v1");
    sim.settle();
    assert_eq!(sim.sizes(), [(0, "2".to_owned()), (2, "3".to_owned())]);
    let history = sim.sets.iter().find_map(|set| {
        set.rs
            .metadata
            .annotations
            .as_ref()
            .unwrap()
            .get("deployment.kubernetes.io/revision-history")
            .cloned()
    });
    assert_eq!(history.as_deref(), Some("1"));
}

#[test]
fn history_keeps_the_newest_empty_replica_sets() {
    let mut sim = Sim::rolled_out(1, 1, 0);
    sim.deployment.spec.revision_history_limit = Some(2);
    for version in 2..7 {
        sim.set_image(&format!("v{version}"));
        sim.settle();
    }
    assert_eq!(
        sim.sizes(),
        [
            (0, "4".to_owned()),
            (0, "5".to_owned()),
            (1, "6".to_owned())
        ]
    );
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let mut sim = Sim::recreate(2);
    sim.set_image("v2");
    sim.step();
    assert_eq!(sim.sizes(), [(0, "1".to_owned())]);
    sim.step();
    assert_eq!(sim.sets.len(), 1, "old pods are still there");
    sim.sync(0);
    sim.report(0);
    sim.step();
    assert_eq!(sim.sizes(), [(0, "1".to_owned()), (2, "2".to_owned())]);
}

#[test]
fn recreate_brings_nothing_in_the_round_that_scales_down() {
    let mut sim = Sim::new(2, 0, 0);
    let strategy = json!({"type": "Recreate"});
    sim.deployment.spec.strategy = serde_json::from_value(strategy).unwrap();
    sim.step();
    sim.set_image("v2");
    // Of the first no pod was reported yet.
    sim.step();
    assert_eq!(sim.sizes(), [(0, "1".to_owned())]);
    sim.step();
    assert_eq!(sim.sizes(), [(0, "1".to_owned()), (2, "2".to_owned())]);
}

#[test]
fn the_history_of_a_replica_set_forgets_the_oldest() {
    let mut sim = Sim::rolled_out(1, 1, 0);
    for _ in 0..600 {
        for image in ["v2", "v1"] {
            sim.set_image(image);
            sim.step();
        }
    }
    for set in &sim.sets {
        let annotations = set.rs.metadata.annotations.as_ref().unwrap();
        let history = &annotations["deployment.kubernetes.io/revision-history"];
        assert!((1990..=2000).contains(&history.len()), "{}", history.len());
        let revision: u32 = annotations["deployment.kubernetes.io/revision"]
            .parse()
            .unwrap();
        let former = (revision - 2).to_string();
        assert_eq!(history.rsplit(',').next(), Some(&*former));
        assert!(!history.starts_with(','));
    }
}

#[test]
fn as_many_pods_as_there_are_numbers_are_made() {
    let mut sim = Sim::new(i32::MAX, 0, 0);
    let quarter = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    sim.deployment.spec.strategy = serde_json::from_value(quarter).unwrap();
    sim.step();
    assert_eq!(sim.sizes(), [(i32::MAX, "1".to_owned())]);
    for image in ["v2", "v3"] {
        sim.set_image(image);
        sim.step();
        (0..sim.sets.len()).for_each(|at| sim.report(at));
        sim.step();
    }
    sim.resize(i32::MAX - 1);
    sim.step();
    sim.resize(i32::MAX);
    sim.step();
}

#[test]
fn paused_deployment_scales_but_does_not_roll_out() {
    let mut sim = Sim::rolled_out(2, 1, 0);
    sim.deployment.spec.paused = Some(true);
    sim.set_image("v2");
    sim.resize(4);
    sim.settle();
    assert_eq!(sim.sizes(), [(4, "1".to_owned())]);
    assert_eq!(
        sim.reason("Progressing"),
        ("Unknown".into(), "DeploymentPaused".into())
    );
    sim.deployment.spec.paused = Some(false);
    sim.settle();
    assert_eq!(sim.sizes(), [(0, "1".to_owned()), (4, "2".to_owned())]);
}

#[test]
fn stuck_rollout_exceeds_its_deadline_and_recovers() {
    let mut sim = Sim::rolled_out(2, 1, 0);
    sim.set_image("v2");
    sim.step();
    assert!(sim.plan().again.is_some(), "the deadline is waited for");
    sim.clock += 601;
    sim.step();
    assert_eq!(
        sim.reason("Progressing"),
        ("False".into(), "ProgressDeadlineExceeded".into())
    );
    assert_eq!(sim.reason("Available").0, "True");
    sim.settle();
    assert_eq!(
        sim.reason("Progressing"),
        ("True".into(), "NewReplicaSetAvailable".into())
    );
}

#[test]
fn deleted_deployment_only_reports() {
    let mut sim = Sim::rolled_out(2, 1, 0);
    sim.deployment.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(START).unwrap()));
    sim.set_image("v2");
    let plan = sim.plan();
    assert!(plan.create.is_none() && plan.update.is_empty() && plan.delete.is_empty());
}
