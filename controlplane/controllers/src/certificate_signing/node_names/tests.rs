//! Whose a name is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const NOW: i64 = 1_000_000;

/// Made so many seconds ago.
fn secret(keys: &[&str], age: i64) -> Secret {
    let made = Timestamp::from_second(NOW - age).unwrap();
    let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    Secret {
        metadata: ObjectMeta {
            creation_timestamp: Some(Time(made)),
            ..ObjectMeta::default()
        },
        data: Some(data(&keys)),
        ..Secret::default()
    }
}

#[test]
fn a_name_is_the_machines_that_has_its_key() {
    let exists = || {
        Claim::Refuse(Taken::Exists {
            node: "n1".to_owned(),
        })
    };
    let reserved = || {
        Claim::Refuse(Taken::Reserved {
            node: "n1".to_owned(),
        })
    };
    let reservation = i64::try_from(RESERVATION.as_secs()).unwrap();
    let table = [
        (None, HasNode::No, Claim::Take),
        // Made by somebody else, or joined before keys were kept.
        (None, HasNode::Yes, exists()),
        (Some(secret(&["own"], 5)), HasNode::No, Claim::Own),
        (Some(secret(&["old", "own"], 5)), HasNode::Yes, Claim::Own),
        (Some(secret(&["other"], 5)), HasNode::Yes, exists()),
        (Some(secret(&["other"], 99_999)), HasNode::Yes, exists()),
        (
            Some(secret(&["other"], reservation - 1)),
            HasNode::No,
            reserved(),
        ),
        (
            Some(secret(&["other"], reservation)),
            HasNode::No,
            Claim::Replace,
        ),
        (Some(secret(&[], 5)), HasNode::Yes, exists()),
    ];
    for (known, has_node, expected) in table {
        let now = Timestamp::from_second(NOW).unwrap();
        let judged = judge("n1", known.as_ref(), has_node, "own", now);
        assert_eq!(judged, expected, "{known:?} {has_node:?}");
    }
}

#[test]
fn who_is_refused_is_told_which_name_and_what_to_do() {
    let node = || "n1".to_owned();
    assert_eq!(
        Taken::Exists { node: node() }.to_string(),
        "node \"n1\" exists, and this machine does not have its key: give this machine another --node-name; \
         if it takes that one's place, first delete the node (kubectl delete node n1)"
    );
    let said = Taken::Reserved { node: node() }.to_string();
    let advice = "kubectl -n kube-system delete secret n1.node-key.coracle.dev";
    assert!(said.contains(advice), "{said}");
}
