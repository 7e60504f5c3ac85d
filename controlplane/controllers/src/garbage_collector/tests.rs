//! What changes of ownership call for.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
    jiff::Timestamp,
};

use super::*;

struct World(Graph);

impl World {
    fn see(
        &mut self,
        uid: &str,
        owners: &[(&str, bool)],
        finalizers: &[&str],
        deleting: bool,
    ) -> Vec<Work> {
        let meta = ObjectMeta {
            uid: Some(uid.into()),
            name: Some(uid.into()),
            owner_references: Some(
                owners
                    .iter()
                    .map(|(uid, blocks)| OwnerReference {
                        uid: (*uid).into(),
                        name: (*uid).into(),
                        kind: "Thing".into(),
                        api_version: "example.org/v1".into(),
                        block_owner_deletion: Some(*blocks),
                        controller: None,
                    })
                    .collect(),
            ),
            finalizers: Some(
                finalizers
                    .iter()
                    .map(|finalizer| (*finalizer).to_owned())
                    .collect(),
            ),
            deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        self.observe("ns", uid, &meta)
    }

    fn see_in(&mut self, namespace: &str, uid: &str, owners: &[(&str, bool)]) -> Vec<Work> {
        let owner = |uid: &str| OwnerReference {
            uid: uid.into(),
            name: uid.into(),
            kind: "Thing".into(),
            api_version: "example.org/v1".into(),
            ..OwnerReference::default()
        };
        let owners = owners.iter().map(|(uid, _)| owner(uid)).collect();
        let meta = ObjectMeta {
            uid: Some(uid.into()),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        self.observe(namespace, uid, &meta)
    }

    fn observe(&mut self, namespace: &str, uid: &str, meta: &ObjectMeta) -> Vec<Work> {
        let kind = self.0.kind("example.org", "Thing");
        self.0.observe(
            Place {
                kind,
                namespace: namespace.into(),
                name: uid.into(),
            },
            meta,
        )
    }
}

fn delete(uid: &str) -> Work {
    Work::Delete(uid.into())
}

#[test]
fn dependents_are_looked_at_when_their_owner_goes() {
    let mut world = World(Graph::default());
    assert_eq!(world.see("owner", &[], &[], false), []);
    assert_eq!(world.see("child", &[("owner", false)], &[], false), []);
    assert_eq!(world.0.remove("owner"), [delete("child")]);
}

#[test]
fn owner_that_was_never_seen_is_asked_for() {
    let mut world = World(Graph::default());
    assert_eq!(
        world.see("child", &[("ghost", false)], &[], false),
        [delete("ghost")]
    );
    assert!(world.0.snapshot("ghost").unwrap().is_virtual);
    assert_eq!(world.see("ghost", &[], &[], false), []);
    assert!(!world.0.snapshot("ghost").unwrap().is_virtual);
    assert_eq!(world.0.remove("ghost"), [delete("child")]);
}

#[test]
fn virtual_owner_does_not_outlive_its_last_dependent() {
    let mut world = World(Graph::default());
    world.see("child", &[("ghost", false)], &[], false);
    world.0.remove("child");
    assert!(world.0.snapshot("ghost").is_none());
}

#[test]
fn foreground_deletion_waits_for_blocking_dependents_only() {
    let mut world = World(Graph::default());
    world.see("owner", &[], &[], false);
    world.see("blocking", &[("owner", true)], &[], false);
    world.see("free", &[("owner", false)], &[], false);
    let mut work = world.see("owner", &[], &[FOREGROUND], true);
    work.sort_by_key(|work| format!("{work:?}"));
    assert_eq!(work, [delete("blocking"), delete("free"), delete("owner")]);
    let blocking = world.0.snapshot("owner").unwrap().blocking;
    assert_eq!(blocking, [("blocking".into(), false)]);
    assert_eq!(world.0.remove("blocking"), [delete("owner")]);
    assert!(world.0.snapshot("owner").unwrap().blocking.is_empty());
}

#[test]
fn dependent_that_stops_blocking_wakes_its_waiting_owner() {
    let mut world = World(Graph::default());
    world.see("owner", &[], &[], false);
    world.see("child", &[("owner", true)], &[], false);
    world.see("owner", &[], &[FOREGROUND], true);
    assert_eq!(
        world.see("child", &[("owner", false)], &[], false),
        [delete("owner")]
    );
}

#[test]
fn orphaning_owner_is_handed_out_once() {
    let mut world = World(Graph::default());
    world.see("owner", &[], &[], false);
    assert_eq!(
        world.see("owner", &[], &[ORPHAN], true),
        [Work::Orphan("owner".into())]
    );
    assert_eq!(world.see("owner", &[], &[ORPHAN], true), []);
}

#[test]
fn changed_owner_moves_the_dependent() {
    let mut world = World(Graph::default());
    world.see("a", &[], &[], false);
    world.see("b", &[], &[], false);
    world.see("child", &[("a", false)], &[], false);
    world.see("child", &[("b", false)], &[], false);
    assert_eq!(world.0.remove("a"), []);
    assert_eq!(world.0.remove("b"), [delete("child")]);
}

#[test]
fn an_owner_that_comes_back_still_has_its_dependents() {
    let mut world = World(Graph::default());
    world.see("owner", &[], &[], false);
    world.see("child", &[("owner", false)], &[], false);
    assert_eq!(world.0.remove("owner"), [delete("child")]);
    assert_eq!(world.see("owner", &[], &[], false), []);
    assert_eq!(world.0.remove("owner"), [delete("child")]);
    world.0.remove("child");
    assert!(
        world.0.snapshot("owner").is_none(),
        "nobody names it any more"
    );
}

#[test]
fn a_wrong_reference_takes_no_owner_from_its_own_dependents() {
    let mut world = World(Graph::default());
    // Names the uid of an object in another namespace, before that one is seen.
    let stranger = world.see_in("elsewhere", "stranger", &[("owner", false)]);
    assert_eq!(stranger, [delete("owner")]);
    let named = world.0.snapshot("owner").unwrap().place;
    world.see("owner", &[], &[], false);
    world.see("child", &[("owner", false)], &[], false);
    // The answer about the other namespace comes late.
    assert_eq!(world.0.absent("owner", &named), []);
    let mut work = world.0.remove("owner");
    work.sort_by_key(|work| format!("{work:?}"));
    assert_eq!(work, [delete("child"), delete("stranger")]);
}

#[test]
fn a_reference_that_does_not_fit_its_owner_is_looked_at() {
    let mut world = World(Graph::default());
    world.see("owner", &[], &[], false);
    assert_eq!(
        world.see_in("elsewhere", "stranger", &[("owner", false)]),
        [delete("stranger")]
    );
    assert_eq!(world.see("child", &[("owner", false)], &[], false), []);
}

#[test]
fn who_names_an_owner_that_is_gone_is_looked_at() {
    let mut world = World(Graph::default());
    world.see("first", &[("ghost", false)], &[], false);
    world.0.remove("ghost");
    assert_eq!(
        world.see("second", &[("ghost", false)], &[], false),
        [delete("second")]
    );
    world.see("first", &[], &[], false);
    world.see("second", &[], &[], false);
    assert!(world.0.snapshot("ghost").is_none());
}

#[test]
fn what_is_never_seen_is_asked_for_less_and_less() {
    let mut world = World(Graph::default());
    world.see("child", &[("ghost", false)], &[], false);
    let pauses: Vec<u64> = (0..13)
        .map(|_| unseen_pause(world.0.ask_again("ghost")).as_secs())
        .collect();
    assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    world.see("ghost", &[], &[], false);
    world.0.remove("ghost");
    assert_eq!(
        world.0.ask_again("ghost"),
        0,
        "seen and gone, it begins anew"
    );
}

#[test]
fn whose_end_was_seen_is_gone_until_it_is_seen_again() {
    let mut world = World(Graph::default());
    for owner in ["deleted", "unseen"] {
        world.see(owner, &[], &[], false);
        world.see(
            "child",
            &[("deleted", false), ("unseen", false)],
            &[],
            false,
        );
    }
    assert_eq!(world.0.delete("deleted"), [delete("child")]);
    assert_eq!(world.0.remove("unseen"), [delete("child")]);
    assert!(world.0.was_deleted("deleted") && !world.0.was_deleted("unseen"));
    world.see("deleted", &[], &[], false);
    assert!(!world.0.was_deleted("deleted"));
}
