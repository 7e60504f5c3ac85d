//! What becomes of an object whose owners were asked for. Pure.
//!
//! Source: `pkg/controller/garbagecollector/garbagecollector.go` (attemptToDeleteItem,
//! classifyReferences) at v1.37.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta};
use serde_json::{Value, json};

use super::graph::{FOREGROUND, ORPHAN, Snapshot};

/// What the server has in the place of an owner.
pub(super) enum Owner {
    Live(Box<ObjectMeta>),
    Absent,
    /// It has a namespace, and the object that names it has none: nothing can be asked.
    OutOfReach,
    /// Nobody serves its kind: what became of it can only have been seen.
    Unserved,
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Exists.
    Solid,
    /// Does not, or is another object of that name.
    Absent,
    /// Is being deleted and waits for this object.
    Waiting,
}

/// What is to be done about an object.
#[derive(Debug, PartialEq)]
pub(super) enum Settlement {
    Keep,
    /// Somebody still needs it: this patch leaves it the owners that do.
    Release(Value),
    Delete {
        params: DeleteParams,
        /// An owner waits for it, and it for its own dependents: one of those may be that owner.
        owner_waits: bool,
    },
}

/// Judges the owner that `reference` means.
pub(super) fn judge(reference: &OwnerReference, found: &Owner) -> Verdict {
    match found {
        Owner::OutOfReach | Owner::Unserved => Verdict::Solid,
        Owner::Live(live) if live.uid.as_deref() == Some(&reference.uid) => {
            if live.deletion_timestamp.is_some() && has_finalizer(live, FOREGROUND) {
                Verdict::Waiting
            } else {
                Verdict::Solid
            }
        }
        Owner::Live(_) | Owner::Absent => Verdict::Absent,
    }
}

/// Decides, by one verdict for each of its owner references.
pub(super) fn settle(live: &ObjectMeta, verdicts: &[Verdict], node: &Snapshot) -> Settlement {
    let any = |wanted: Verdict| verdicts.contains(&wanted);
    if any(Verdict::Solid) {
        return match any(Verdict::Absent) || any(Verdict::Waiting) {
            true => Settlement::Release(released(live, verdicts)),
            false => Settlement::Keep,
        };
    }
    let owner_waits = any(Verdict::Waiting) && !node.dependents.is_empty();
    let params = if owner_waits {
        DeleteParams::foreground()
    } else if has_finalizer(live, ORPHAN) {
        DeleteParams::orphan()
    } else if has_finalizer(live, FOREGROUND) {
        DeleteParams::foreground()
    } else {
        DeleteParams::background()
    };
    Settlement::Delete {
        params,
        owner_waits,
    }
}

/// The patch that leaves an object its solid owners alone.
fn released(live: &ObjectMeta, verdicts: &[Verdict]) -> Value {
    let references = live.owner_references.iter().flatten().zip(verdicts);
    let solid = references.filter(|(_, verdict)| **verdict == Verdict::Solid);
    let kept: Vec<&OwnerReference> = solid.map(|(reference, _)| reference).collect();
    json!({"metadata": {
        "uid": live.uid, "resourceVersion": live.resource_version, "ownerReferences": kept,
    }})
}

/// The patch by which an object keeps no owner waiting any more. It breaks a circle.
pub(super) fn unblocked(live: &ObjectMeta) -> Value {
    let references = live.owner_references.iter().flatten();
    let freed = references.map(|reference| OwnerReference {
        block_owner_deletion: Some(false),
        ..reference.clone()
    });
    json!({"metadata": {
        "uid": live.uid, "resourceVersion": live.resource_version,
        "ownerReferences": freed.collect::<Vec<_>>(),
    }})
}

/// Whether what was found of the owners of `former` is true of `latest` still.
pub(super) fn has_owners_of(latest: &ObjectMeta, former: &ObjectMeta) -> bool {
    let former = former.owner_references.as_deref().unwrap_or_default();
    latest.owner_references.as_deref().unwrap_or_default() == former
}

/// The patch that takes `finalizer` from an object; `None` if it is gone.
pub(super) fn without_finalizer(live: &ObjectMeta, finalizer: &str) -> Option<Value> {
    let present = live.finalizers.as_deref().unwrap_or_default();
    let kept: Vec<&String> = present.iter().filter(|other| *other != finalizer).collect();
    (kept.len() < present.len()).then(|| {
        json!({"metadata": {
            "uid": live.uid, "resourceVersion": live.resource_version, "finalizers": kept,
        }})
    })
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    let mut present = meta.finalizers.iter().flatten();
    present.any(|other| other == finalizer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::graph::Place, *};

    const SOLID: Verdict = Verdict::Solid;
    const ABSENT: Verdict = Verdict::Absent;
    const WAITING: Verdict = Verdict::Waiting;

    fn live(finalizers: &[&str]) -> ObjectMeta {
        let owner = |uid| json!({"apiVersion": "v1", "kind": "Secret", "name": uid, "uid": uid});
        let meta = json!({"uid": "me", "resourceVersion": "7", "finalizers": finalizers,
            "ownerReferences": [owner("a"), owner("b")]});
        serde_json::from_value(meta).unwrap()
    }

    fn node(dependents: &[&str]) -> Snapshot {
        let place = Place {
            kind: Arc::new((String::new(), "ConfigMap".to_owned())),
            namespace: "ns".into(),
            name: "me".into(),
        };
        Snapshot {
            place,
            deleting: false,
            deleting_dependents: false,
            is_virtual: false,
            dependents: dependents.iter().map(|uid| (*uid).into()).collect(),
            blocking: Vec::new(),
        }
    }

    #[test]
    fn an_owner_is_the_one_of_its_uid() {
        let reference = &live(&[]).owner_references.unwrap()[0];
        let found = |uid: &str, deleting: bool, finalizer: &str| {
            let time = deleting.then_some("2026-01-02T03:04:05Z");
            let meta = json!({"uid": uid, "deletionTimestamp": time, "finalizers": [finalizer]});
            Owner::Live(Box::new(serde_json::from_value(meta).unwrap()))
        };
        let table = [
            (found("a", false, FOREGROUND), SOLID),
            (found("a", true, ORPHAN), SOLID),
            (found("a", true, FOREGROUND), WAITING),
            (found("other", false, ORPHAN), ABSENT),
            (Owner::Absent, ABSENT),
            (Owner::OutOfReach, SOLID),
        ];
        for (at, (owner, expected)) in table.iter().enumerate() {
            assert_eq!(judge(reference, owner), *expected, "{at}");
        }
    }

    #[test]
    fn an_object_stays_for_as_long_as_one_owner_is_solid() {
        let (live, node) = (live(&[]), node(&[]));
        assert_eq!(settle(&live, &[SOLID, SOLID], &node), Settlement::Keep);
        for other in [ABSENT, WAITING] {
            let Settlement::Release(patch) = settle(&live, &[other, SOLID], &node) else {
                panic!("{other:?}: it is not released");
            };
            let meta = &patch["metadata"];
            assert_eq!(
                (&meta["uid"], &meta["resourceVersion"]),
                (&json!("me"), &json!("7"))
            );
            assert_eq!(meta["ownerReferences"].as_array().unwrap().len(), 1);
            assert_eq!(meta["ownerReferences"][0]["uid"], "b");
        }
    }

    #[test]
    fn it_goes_as_its_finalizers_and_its_waiting_owners_say() {
        let (foreground, orphan) = (DeleteParams::foreground, DeleteParams::orphan);
        let table = [
            (
                "no owner",
                &[ABSENT, ABSENT],
                "",
                "",
                DeleteParams::background(),
                false,
            ),
            ("orphans", &[ABSENT, ABSENT], ORPHAN, "", orphan(), false),
            (
                "waits itself",
                &[ABSENT, ABSENT],
                FOREGROUND,
                "",
                foreground(),
                false,
            ),
            (
                "has none",
                &[WAITING, ABSENT],
                "",
                "",
                DeleteParams::background(),
                false,
            ),
            (
                "has one",
                &[WAITING, ABSENT],
                ORPHAN,
                "child",
                foreground(),
                true,
            ),
            (
                "nobody waits",
                &[ABSENT, ABSENT],
                "",
                "child",
                DeleteParams::background(),
                false,
            ),
        ];
        for (why, verdicts, finalizer, child, params, owner_waits) in table {
            let named = |name: &'static str| match name {
                "" => vec![],
                name => vec![name],
            };
            let (live, node) = (live(&named(finalizer)), node(&named(child)));
            let expected = Settlement::Delete {
                params,
                owner_waits,
            };
            assert_eq!(settle(&live, verdicts, &node), expected, "{why}");
        }
    }

    #[test]
    fn patches_take_one_thing_and_leave_the_rest() {
        let held = live(&[FOREGROUND, "example.org/hold"]);
        assert_eq!(without_finalizer(&held, ORPHAN), None);
        let patch = without_finalizer(&held, FOREGROUND).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["example.org/hold"]));
        let patch = unblocked(&held);
        let references = patch["metadata"]["ownerReferences"].as_array().unwrap();
        let blocks = references.iter().map(|owner| &owner["blockOwnerDeletion"]);
        assert!(blocks.eq([&json!(false), &json!(false)]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7", "of these owners");
    }

    #[test]
    fn owners_are_the_same_whatever_else_changes() {
        let (former, mut latest) = (live(&[]), live(&[ORPHAN]));
        latest.resource_version = Some("8".into());
        assert!(has_owners_of(&latest, &former));
        latest.owner_references.as_mut().unwrap()[1].uid = "c".into();
        assert!(!has_owners_of(&latest, &former));
        latest.owner_references = None;
        assert!(!has_owners_of(&latest, &former));
        let none = ObjectMeta {
            owner_references: Some(Vec::new()),
            ..former
        };
        assert!(has_owners_of(&latest, &none));
    }
}
