//! What nodes and the pods on them say that must never be: a node that is not Ready, a pod on two
//! nodes, a container that was started twice.

use std::collections::{BTreeMap, BTreeSet};

use super::{history::Facts, streams::Changes};

/// Nodes that were not Ready any more, once they had been.
pub fn lost(changes: &Changes) -> Vec<String> {
    let (mut were_ready, mut problems) = (BTreeSet::new(), Vec::new());
    for ((version, name), seen) in changes {
        let Facts::Node { ready } = &seen.object.facts else {
            continue;
        };
        if ready == "True" {
            were_ready.insert(name);
        } else if were_ready.contains(name) {
            problems.push(format!("node {name} at {version}: Ready is {ready}"));
        }
    }
    problems
}

/// What is known of one pod.
#[derive(Default)]
struct Known<'a> {
    node: &'a str,
    containers: BTreeSet<&'a str>,
}

/// Pods that were bound twice, or whose container was started twice; and how many pods ran.
pub fn pods(changes: &Changes) -> (Vec<String>, usize) {
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    let mut problems = Vec::new();
    for ((version, name), seen) in changes {
        let Facts::Pod {
            node,
            containers,
            restarts,
            ..
        } = &seen.object.facts
        else {
            continue;
        };
        let known = known.entry(&seen.object.uid).or_default();
        if !known.node.is_empty() && known.node != node {
            problems.push(format!(
                "pod {name} at {version}: on {node:?} after {}",
                known.node
            ));
        }
        known.node = node;
        let before = known.containers.len();
        known
            .containers
            .extend(containers.iter().map(String::as_str));
        if known.containers.len() > before.max(1) || *restarts > 0 {
            problems.push(format!(
                "pod {name} at {version}: started {:?}, again {restarts} times",
                known.containers
            ));
        }
    }
    let ran = known.values().filter(|known| !known.containers.is_empty());
    (problems, ran.count())
}

#[cfg(test)]
mod tests {
    use super::{
        super::history::{Change, Object, Seen},
        *,
    };

    fn changes(facts: Vec<Facts>) -> Changes {
        let seen = facts.into_iter().zip(1..).map(|(facts, version)| {
            let object = Object {
                name: "a".to_owned(),
                uid: "1".to_owned(),
                version,
                facts,
            };
            let seen = Seen {
                server: 0,
                kind: String::new(),
                change: Change::Modified,
                object,
            };
            ((version, "a".to_owned()), seen)
        });
        seen.collect()
    }

    fn pod(node: &str, containers: &[&str], restarts: u64) -> Facts {
        Facts::Pod {
            owner: String::new(),
            is_going: false,
            node: node.to_owned(),
            containers: containers.iter().map(|one| (*one).to_owned()).collect(),
            restarts,
        }
    }

    #[test]
    fn a_pod_is_bound_once_and_starts_once() {
        let good = vec![pod("", &[], 0), pod("n", &[], 0), pod("n", &["c"], 0)];
        assert_eq!(pods(&changes(good.clone())), (Vec::new(), 1));
        for (worse, expected) in [
            (pod("m", &["c"], 0), "on \"m\" after n"),
            (pod("", &["c"], 0), "after n"),
            (pod("n", &["d"], 0), "started"),
            (pod("n", &["c"], 1), "again 1 times"),
        ] {
            let bad = [good.clone(), vec![worse]].concat();
            let problems = pods(&changes(bad)).0;
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn a_node_that_was_ready_stays_so() {
        let node = |ready: &str| Facts::Node {
            ready: ready.to_owned(),
        };
        assert!(lost(&changes(vec![node("False"), node("True"), node("True")])).is_empty());
        assert_eq!(lost(&changes(vec![node("True"), node("Unknown")])).len(), 1);
    }
}
