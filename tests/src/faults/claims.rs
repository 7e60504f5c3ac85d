//! What the changes of a cluster say that must never be: two leaders, an address twice.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    history::{Change, Facts, LeaseFacts, Listed, Object},
    streams::Changes,
};

/// Leases by which one server of several leads.
pub const ELECTIONS: [&str; 2] = [
    "kube-system/kube-scheduler",
    "kube-system/kube-controller-manager",
];

/// How the Leases in [`ELECTIONS`] changed hands: problems, and how often they did.
pub fn leaders(changes: &Changes) -> (Vec<String>, usize) {
    let (mut problems, mut acquisitions) = (Vec::new(), 0);
    for election in ELECTIONS {
        let mut before: Option<&LeaseFacts> = None;
        for ((version, name), seen) in changes {
            let Facts::Lease(lease) = &seen.object.facts else {
                continue;
            };
            if name != election {
                continue;
            }
            if seen.change == Change::Deleted {
                problems.push(format!("{election} was deleted at {version}"));
            }
            if let Some(before) = before {
                acquisitions += usize::from(is_handed_over(before, lease));
                if let Some(why) = follows(before, lease) {
                    problems.push(format!(
                        "{election} at {version}: {why}: {before:?}, {lease:?}"
                    ));
                }
            }
            before = Some(lease);
        }
    }
    (problems, acquisitions)
}

fn is_handed_over(before: &LeaseFacts, lease: &LeaseFacts) -> bool {
    !lease.holder.is_empty() && lease.holder != before.holder
}

/// Why a Lease cannot come after another state of it.
fn follows(before: &LeaseFacts, lease: &LeaseFacts) -> Option<&'static str> {
    let handed_over = is_handed_over(before, lease);
    let until = before.renewed + before.seconds * 1_000_000;
    if handed_over && !before.holder.is_empty() && lease.acquired < until {
        return Some("another leads before the Lease has run out");
    }
    if lease.transitions != before.transitions + i64::from(handed_over) {
        return Some("the transitions are not counted");
    }
    if !lease.holder.is_empty() && !handed_over && lease.acquired != before.acquired {
        return Some("its holder got it twice");
    }
    (lease.renewed < before.renewed).then_some("it was renewed in the past")
}

/// Addresses and ports that two Services had at one time, and how many were given out.
pub fn addresses(first: &Listed, changes: &Changes) -> (Vec<String>, usize) {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let (mut problems, mut given) = (Vec::new(), 0);
    let mut give = |object: &Object, holders: &mut BTreeMap<String, String>| {
        let Facts::Service(taken) = &object.facts else {
            return;
        };
        holders.retain(|_, holder| *holder != object.uid);
        for address in taken {
            given += 1;
            if let Some(other) = holders.insert(address.clone(), object.uid.clone()) {
                problems.push(format!(
                    "{address} is given to {} at {} while {other} has it",
                    object.name, object.version
                ));
            }
        }
    };
    for object in &first.objects {
        give(object, &mut holders);
    }
    for seen in changes
        .values()
        .filter(|seen| seen.object.version > first.version)
    {
        match seen.change {
            Change::Added | Change::Modified => give(&seen.object, &mut holders),
            Change::Deleted => holders.retain(|_, holder| *holder != seen.object.uid),
        }
    }
    (problems, given)
}

/// How many pods one owner had at a time, at most; those that are being deleted do not count.
pub fn most_pods(changes: &Changes) -> usize {
    let mut pods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut most = 0;
    for ((_, name), seen) in changes {
        let Facts::Pod {
            owner, is_going, ..
        } = &seen.object.facts
        else {
            continue;
        };
        let of_owner = pods.entry(owner).or_default();
        if seen.change == Change::Deleted || *is_going {
            of_owner.remove(&**name);
        } else {
            of_owner.insert(name);
        }
        most = most.max(of_owner.len());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{super::history::Seen, *};

    fn lease(holder: &str, acquired: u64, renewed: u64, transitions: i64) -> LeaseFacts {
        LeaseFacts {
            holder: holder.to_owned(),
            renewed: renewed * 1_000_000,
            acquired: acquired * 1_000_000,
            seconds: 15,
            transitions,
        }
    }

    fn change(change: Change, name: &str, uid: &str, version: u64, facts: Facts) -> Seen {
        let object = Object {
            name: name.to_owned(),
            uid: uid.to_owned(),
            version,
            facts,
        };
        Seen {
            server: 0,
            kind: String::new(),
            change,
            object,
        }
    }

    fn changes(seen: Vec<Seen>) -> Changes {
        seen.into_iter()
            .map(|seen| ((seen.object.version, seen.object.name.clone()), seen))
            .collect()
    }

    fn led(history: &[LeaseFacts]) -> (usize, usize) {
        let seen = history.iter().zip(1..).map(|(lease, version)| {
            change(
                Change::Modified,
                ELECTIONS[0],
                "l",
                version,
                Facts::Lease(lease.clone()),
            )
        });
        let (problems, acquisitions) = leaders(&changes(seen.collect()));
        (problems.len(), acquisitions)
    }

    #[test]
    fn a_lease_is_taken_once_it_has_run_out_or_was_given_back() {
        assert_eq!(
            led(&[
                lease("a", 0, 0, 0),
                lease("a", 0, 2, 0),
                lease("b", 17, 17, 1)
            ]),
            (0, 1)
        );
        let mut back = lease("", 0, 2, 0);
        back.seconds = 1;
        assert_eq!(
            led(&[lease("a", 0, 1, 0), back, lease("b", 3, 3, 1)]),
            (0, 1)
        );
    }

    #[test]
    fn two_leaders_are_found() {
        assert_eq!(led(&[lease("a", 0, 2, 0), lease("b", 16, 16, 1)]), (1, 1));
        assert_eq!(led(&[lease("a", 0, 2, 0), lease("b", 17, 17, 0)]), (1, 1));
        assert_eq!(led(&[lease("a", 0, 2, 0), lease("a", 3, 3, 0)]), (1, 0));
        assert_eq!(led(&[lease("a", 0, 2, 0), lease("a", 0, 1, 0)]), (1, 0));
    }

    #[test]
    fn an_address_is_free_again_once_its_service_is_gone() {
        let taken = |addresses: &[&str]| {
            Facts::Service(addresses.iter().map(|one| (*one).to_owned()).collect())
        };
        let first = Listed {
            server: 0,
            kind: String::new(),
            version: 1,
            objects: Vec::new(),
        };
        let good = vec![
            change(Change::Added, "a", "1", 2, taken(&["10.0.0.1", "30000"])),
            change(Change::Modified, "a", "1", 3, taken(&["10.0.0.1", "30000"])),
            change(Change::Deleted, "a", "1", 4, taken(&["10.0.0.1", "30000"])),
            change(Change::Added, "b", "2", 5, taken(&["10.0.0.1", "30001"])),
        ];
        assert_eq!(
            addresses(&first, &changes(good.clone())).0,
            Vec::<String>::new()
        );
        let twice = change(Change::Added, "c", "3", 6, taken(&["10.0.0.2", "30001"]));
        let bad = [good, vec![twice]].concat();
        let problems = addresses(&first, &changes(bad)).0;
        assert!(
            problems.len() == 1 && problems[0].contains("30001 is given to c"),
            "{problems:?}"
        );
    }

    #[test]
    fn pods_are_counted_by_owner() {
        let pod = |owner: &str, is_going| Facts::Pod {
            owner: owner.to_owned(),
            is_going,
            node: String::new(),
            containers: Vec::new(),
            restarts: 0,
        };
        let seen = changes(vec![
            change(Change::Added, "a", "1", 1, pod("x", false)),
            change(Change::Added, "b", "2", 2, pod("x", false)),
            change(Change::Modified, "b", "2", 3, pod("x", true)),
            change(Change::Added, "c", "3", 4, pod("x", false)),
            change(Change::Added, "d", "4", 5, pod("y", false)),
        ]);
        assert_eq!(most_pods(&seen), 2);
    }
}
