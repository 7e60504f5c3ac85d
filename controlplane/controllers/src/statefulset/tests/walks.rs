//! Random walks: whatever happens to pods between two rounds, what holds for a set holds, and in
//! the end there is what is asked for.
//!
//! Source: `assertMonotonicInvariants`, `assertBurstInvariants` and `assertUpdateInvariants` in
//! `pkg/controller/statefulset/stateful_set_control_test.go` at v1.37.

use std::collections::BTreeSet;

use super::*;

const WALKS: u64 = 200;
const STEPS: usize = 60;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn ordinals(web: &World) -> Vec<(i32, bool)> {
    let held = web.held();
    let of_one = |pod: &Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap();
        let (_, ordinal) = identity::parent_and_ordinal(name).unwrap();
        let is_well = web.look(|view| view.is_well(pod));
        (ordinal, is_well)
    };
    held.iter().map(of_one).collect()
}

/// What no plan of a set in order does.
fn check_order(web: &World, planned: &str) {
    let mut places = ordinals(web);
    places.sort_unstable();
    let wanted = i32::try_from(web.set["spec"]["replicas"].as_i64().unwrap()).unwrap();
    let are_well = |below: i32| (0..below).all(|place| places.contains(&(place, true)));
    for action in planned.split(", ") {
        if let Some(ordinal) = action.strip_prefix("create web-") {
            let ordinal = ordinal.split(' ').next().unwrap().parse().unwrap();
            assert!(are_well(ordinal), "{planned} of {places:?}");
        }
        if let Some(ordinal) = action.strip_prefix("delete web-") {
            let ordinal: i32 = ordinal.parse().unwrap();
            let failed = |name: &str| {
                web.pods.iter().any(|pod| {
                    pod["metadata"]["name"] == name && pod["status"]["phase"] == "Failed"
                })
            };
            let is_last = places.iter().all(|(other, _)| *other <= ordinal);
            assert!(
                failed(&format!("web-{ordinal}"))
                    || are_well(wanted) && (is_last || ordinal < wanted),
                "{planned} of {places:?} with {wanted}"
            );
        }
    }
}

/// Something happens to a pod, or to what is asked for.
fn event(web: &mut World, dice: &mut Dice) {
    if dice.below(8) == 0 {
        web.set["spec"]["replicas"] = dice.below(5).into();
        return;
    }
    if dice.below(12) == 0 {
        let other = if web.update == "new" { "old" } else { "new" };
        (web.current, web.update) = (web.update, other);
        return;
    }
    if web.pods.is_empty() {
        return;
    }
    let number = dice.below(web.pods.len());
    let name = web.pods[number]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let goes = !web.pods[number]["metadata"]["deletionTimestamp"].is_null();
    match dice.below(8) {
        _ if goes => web.is_gone(&name),
        0 => web.fails(&name),
        1 => web.begins_to_go(&name),
        2 => web.is_gone(&name),
        _ => web.becomes_ready(&name),
    }
}

/// Pods do what they are told to.
fn settle(web: &mut World) {
    for _ in 0..100 {
        let names: Vec<_> = web
            .pods
            .iter()
            .map(|pod| {
                let goes = !pod["metadata"]["deletionTimestamp"].is_null();
                (
                    pod["metadata"]["name"].as_str().unwrap().to_owned(),
                    goes,
                    pod["status"]["phase"] == "Failed",
                )
            })
            .collect();
        for (name, goes, failed) in names {
            match (goes, failed) {
                (true, _) => web.is_gone(&name),
                (false, true) => {}
                (false, false) => web.becomes_ready(&name),
            }
        }
        if web.round().is_empty() {
            return;
        }
    }
    panic!("it never ends: {:?}", web.planned());
}

fn walk(seed: u64, policy: &str) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let template = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let deleted = ["Retain", "Delete"][dice.below(2)];
    let retention = json!({"whenDeleted": deleted, "whenScaled": "Retain"});
    let mut web = world(json!({
        "podManagementPolicy": policy, "volumeClaimTemplates": template,
        "persistentVolumeClaimRetentionPolicy": retention,
        "updateStrategy": rolling(i32::try_from(dice.below(3)).unwrap(), json!(1 + dice.below(3))),
    }));
    for _ in 0..STEPS {
        event(&mut web, &mut dice);
        if policy == "OrderedReady" {
            check_order(&web, &web.planned());
        }
        // That no ordinal is made twice is looked at as it happens.
        web.round();
    }
    settle(&mut web);
    let wanted = i32::try_from(web.set["spec"]["replicas"].as_i64().unwrap()).unwrap();
    let found: BTreeSet<_> = ordinals(&web).into_iter().collect();
    assert_eq!(
        found,
        (0..wanted).map(|ordinal| (ordinal, true)).collect(),
        "seed {seed}"
    );
    let partition = web.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
        .as_i64()
        .unwrap();
    for pod in web.held() {
        let (_, ordinal) =
            identity::parent_and_ordinal(pod.metadata.name.as_deref().unwrap()).unwrap();
        let revision = identity::revision_of(&pod);
        assert!(
            i64::from(ordinal) < partition || revision == web.update,
            "seed {seed}: {ordinal} is of {revision}"
        );
    }
    let claims: BTreeSet<_> = web
        .claims
        .iter()
        .map(|claim| claim["metadata"]["name"].to_string())
        .collect();
    assert_eq!(claims.len(), web.claims.len(), "no claim twice");
}

#[test]
fn a_set_in_order_keeps_it_and_comes_to_rest() {
    (0..WALKS).for_each(|seed| walk(seed, "OrderedReady"));
}

#[test]
fn a_set_in_parallel_has_no_ordinal_twice_and_comes_to_rest() {
    (0..WALKS).for_each(|seed| walk(seed, "Parallel"));
}
