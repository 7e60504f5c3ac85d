//! What is done about claims: sets 1, 2 and 3 of upstream's cases.

use std::sync::Arc;

use coracle_api::volume::{BIND_COMPLETED, BOUND_BY_CONTROLLER, IS_DEFAULT_CLASS, SELECTED_NODE};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::{Value, json};

use super::{
    super::claim_plan::{self, ClaimPlan, Seen, Tell},
    annotated, claim, class, merge, of, volume,
};

fn planned(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    classes: &[Arc<StorageClass>],
) -> ClaimPlan {
    let seen = Seen {
        claim,
        volumes,
        classes,
        unscheduled: &[],
    };
    claim_plan::plan(&seen).unwrap()
}

/// What is done, in a word and what it is done with.
fn said(plan: ClaimPlan) -> String {
    let tell = |tell: Tell| format!("{}: {}", tell.reason, tell.message);
    match plan {
        ClaimPlan::Bind(volume) => format!("bind {}", volume.metadata.name.as_ref().unwrap()),
        ClaimPlan::Assign(class) => format!("assign {class}"),
        ClaimPlan::Provision(by) => format!("provision {by}"),
        ClaimPlan::Wait(None) => "wait".to_owned(),
        ClaimPlan::Wait(Some(why)) => format!("wait {}", tell(why)),
        ClaimPlan::Tell(what) => format!("tell {}", tell(what)),
        ClaimPlan::Lost(what) => format!("lost {}", tell(what)),
        ClaimPlan::Misbound(what) => format!("misbound {}", tell(what)),
    }
}

#[test]
fn a_claim_that_names_no_volume_gets_one_that_fits() {
    let plain = claim(&json!({}));
    let many = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1Gi"}}});
    let large = json!({"spec": {"capacity": {"storage": "10Gi"}}});
    let none = "wait FailedBinding: no persistent volumes available for this claim and no storage class is set";
    for (case, volumes, expect) in [
        ("1-1", vec![volume("v", &json!({}))], "bind v"),
        (
            "1-2",
            vec![volume(
                "v",
                &json!({"spec": {"capacity": {"storage": "1Mi"}}}),
            )],
            none,
        ),
        (
            "1-4",
            vec![volume("large", &large), volume("fits", &json!({}))],
            "bind fits",
        ),
        // Fewer access modes go before a better size.
        (
            "1-5",
            vec![volume("many", &many), volume("large", &large)],
            "bind large",
        ),
        (
            "1-6",
            vec![volume("fits", &json!({})), volume("kept", &of("c", ""))],
            "bind kept",
        ),
        (
            "1-7",
            vec![volume("kept", &of("other", "")), volume("fits", &json!({}))],
            "bind fits",
        ),
        ("1-8", vec![volume("v", &of("c", "u"))], "bind v"),
        ("1-9", vec![volume("v", &of("c", "former"))], none),
        ("1-10", vec![volume("v", &of("other", "x"))], none),
        (
            "",
            vec![volume(
                "v",
                &json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
            )],
            none,
        ),
        ("", vec![], none),
    ] {
        assert_eq!(said(planned(&plain, &volumes, &[])), expect, "{case}");
    }
}

#[test]
fn a_claim_of_a_class_waits_for_a_volume_to_be_made() {
    let default = json!({"metadata": {"annotations": {IS_DEFAULT_CLASS: "true"}}});
    let delayed = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    let in_tree = json!({"provisioner": "kubernetes.io/no-provisioner"});
    let of_class = |name: &str| json!({"spec": {"storageClassName": name}});
    let selected = json!({"spec": {"storageClassName": "a"}, "metadata": {"annotations": {SELECTED_NODE: "n1"}}});
    let waits =
        "wait WaitForFirstConsumer: waiting for first consumer to be created before binding";
    let none = "wait FailedBinding: no persistent volumes available for this claim and no storage class is set";
    for (asks, more, expect) in [
        (json!({}), &default, "assign a"),
        (of_class(""), &default, none),
        (json!({}), &json!({}), none),
        (of_class("a"), &json!({}), "provision example.com/disk"),
        (of_class("a"), &delayed, waits),
        (selected, &delayed, "provision example.com/disk"),
        (
            of_class("a"),
            &in_tree,
            "tell ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner",
        ),
        (
            of_class("b"),
            &json!({}),
            "tell ProvisioningFailed: storageclass.storage.k8s.io \"b\" not found",
        ),
    ] {
        let plan = planned(&claim(&asks), &[], &[class("a", more)]);
        assert_eq!(said(plan), expect, "{asks} {more}");
    }
    // The scheduler chooses among those that nobody has; what is the claim's is finished here.
    let waiting = claim(&of_class("a"));
    let classes = [class("a", &delayed)];
    let mut own = of("c", "u");
    merge(&mut own, &of_class("a"));
    let free = [volume("v", &of_class("a"))];
    assert_eq!(said(planned(&waiting, &free, &classes)), waits);
    assert_eq!(
        said(planned(&waiting, &[volume("v", &own)], &classes)),
        "bind v"
    );
}

#[test]
fn a_claim_says_which_pods_it_waits_for() {
    let classes = [class(
        "a",
        &json!({"volumeBindingMode": "WaitForFirstConsumer"}),
    )];
    let claim = claim(&json!({"spec": {"storageClassName": "a"}}));
    for (pods, expect) in [
        (
            vec!["p"],
            "wait WaitForPodScheduled: waiting for pod p to be scheduled",
        ),
        (
            vec!["p", "q"],
            "wait WaitForPodScheduled: waiting for pods p,q to be scheduled",
        ),
    ] {
        let unscheduled: Vec<_> = pods.into_iter().map(str::to_owned).collect();
        let seen = Seen {
            claim: &claim,
            volumes: &[],
            classes: &classes,
            unscheduled: &unscheduled,
        };
        assert_eq!(said(claim_plan::plan(&seen).unwrap()), expect);
    }
}

#[test]
fn a_claim_that_names_a_volume_gets_that_or_none() {
    let named = json!({"spec": {"volumeName": "v"}});
    let mut by_us = annotated(BOUND_BY_CONTROLLER);
    merge(&mut by_us, &named);
    let taken = "FailedBinding: volume \"v\" already bound to a different claim.";
    let cannot = "wait VolumeMismatch: Cannot bind to requested volume \"v\":";
    for (case, asks, volumes, expect) in [
        ("2-1", &named, vec![], "wait".to_owned()),
        (
            "2-2",
            &named,
            vec![volume("v", &json!({}))],
            "bind v".to_owned(),
        ),
        (
            "2-3",
            &named,
            vec![volume("v", &of("c", ""))],
            "bind v".to_owned(),
        ),
        (
            "2-4",
            &named,
            vec![volume("v", &of("c", "u"))],
            "bind v".to_owned(),
        ),
        (
            "2-5",
            &named,
            vec![volume("v", &of("other", "x"))],
            format!("wait {taken}"),
        ),
        (
            "2-6",
            &by_us,
            vec![volume("v", &of("other", "x"))],
            format!("misbound {taken}"),
        ),
        (
            "2-8",
            &named,
            vec![volume(
                "v",
                &json!({"spec": {"capacity": {"storage": "1Mi"}}}),
            )],
            format!("{cannot} requested PV is too small"),
        ),
        (
            "2-9",
            &named,
            vec![volume("v", &json!({"spec": {"storageClassName": "x"}}))],
            format!("{cannot} storageClassName does not match"),
        ),
        (
            "2-10",
            &named,
            vec![volume(
                "v",
                &json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
            )],
            format!("{cannot} incompatible accessMode"),
        ),
    ] {
        assert_eq!(said(planned(&claim(asks), &volumes, &[])), expect, "{case}");
    }
}

#[test]
fn a_bound_claim_whose_volume_is_not_its_own_is_lost() {
    let bound = |name: Value| {
        let mut object = annotated(BIND_COMPLETED);
        merge(
            &mut object,
            &json!({"spec": {"volumeName": name}, "status": {"phase": "Bound"}}),
        );
        claim(&object)
    };
    let gone =
        "lost ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    let no_reference = "lost ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
    let twice = "lost ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly";
    for (case, name, volumes, expect) in [
        (
            "3-1",
            Value::Null,
            vec![volume("v", &json!({}))],
            no_reference,
        ),
        ("3-2", json!("v"), vec![], gone),
        ("3-3", json!("v"), vec![volume("v", &json!({}))], "bind v"),
        (
            "3-4",
            json!("v"),
            vec![volume("v", &of("c", "u"))],
            "bind v",
        ),
        ("3-5", json!("v"), vec![volume("v", &of("c", ""))], twice),
        (
            "3-6",
            json!("v"),
            vec![volume("v", &of("other", "x"))],
            twice,
        ),
        ("", json!("v"), vec![volume("v", &of("c", "former"))], twice),
    ] {
        assert_eq!(said(planned(&bound(name), &volumes, &[])), expect, "{case}");
    }
}
