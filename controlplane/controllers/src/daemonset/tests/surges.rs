//! Updates by which two pods may be on one node.

use super::*;

#[test]
fn new_pods_come_beside_old_ones_where_they_may() {
    let ds = rolling(json!(0), json!(1));
    let old = |node: &str| ready(&format!("{node}-a"), "old");
    let pods = [old("n1"), old("n2")];
    assert_eq!(comes_and_goes(&ds, &nodes(2), &pods), expect("n1", ""));
    let pods = [old("n1"), unready("n1-b", "new"), old("n2")];
    assert_eq!(
        comes_and_goes(&ds, &nodes(2), &pods),
        expect("", ""),
        "until it is available"
    );
    let pods = [old("n1"), ready("n1-b", "new"), old("n2")];
    assert_eq!(comes_and_goes(&ds, &nodes(2), &pods), expect("", "n1-a"));
    let pods = [
        unready("n1-a", "old"),
        unready("n1-b", "new"),
        unready("n1-c", "new"),
    ];
    assert_eq!(
        comes_and_goes(&ds, &nodes(1), &pods),
        expect("", "n1-c n1-a")
    );
    let pods = [old("n1"), unready("n2-a", "old")];
    assert_eq!(comes_and_goes(&ds, &nodes(2), &pods), expect("n2 n1", ""));
    let mut waits = ds.clone();
    waits.spec.min_ready_seconds = Some(60);
    let (pods, nodes) = ([old("n1"), ready("n1-b", "new")], nodes(1));
    let view = View::new((&waits, "new"), &nodes, &pods, now());
    let planned = plan(&view, &mut Failures::default());
    assert!(planned.delete.is_empty());
    assert_eq!(planned.again, Some(std::time::Duration::from_secs(50)));
}

#[test]
fn no_new_pod_comes_where_none_belongs() {
    let ds = rolling(json!(0), json!(1));
    let mut all = nodes(1);
    all.push(node("n2", json!([{"key": "a", "effect": "NoSchedule"}])));
    for (why, pods, expected) in [
        (
            "it is of no use",
            [ready("n1-a", "new"), unready("n2-a", "old")],
            expect("", "n2-a"),
        ),
        (
            "it serves for the one that is missing",
            [unready("n1-a", "new"), ready("n2-a", "old")],
            expect("", ""),
        ),
        (
            "there are enough without it",
            [ready("n1-a", "new"), ready("n2-a", "old")],
            expect("", "n2-a"),
        ),
        (
            "it takes no place of another's",
            [ready("n1-a", "old"), ready("n2-a", "old")],
            expect("n1", "n2-a"),
        ),
    ] {
        assert_eq!(comes_and_goes(&ds, &all, &pods), expected, "{why}");
    }
}

#[test]
fn a_node_with_surplus_pods_has_more_than_its_own() {
    let ds = rolling(json!(0), json!(1));
    let failed = pod("n1-c", "new", |pod| {
        pod["status"]["phase"] = "Failed".into()
    });
    let pods = [
        ready("n1-a", "old"),
        unready("n1-b", "new"),
        failed,
        ready("n2-a", "old"),
    ];
    let (nodes, mut failures) = (nodes(2), Failures::default());
    let view = View::new((&ds, "new"), &nodes, &pods, now());
    assert_eq!(plan(&view, &mut failures).delete.len(), 1);
    let waits = plan(&view, &mut failures);
    assert!(waits.create.is_empty() && waits.delete.is_empty());
}

#[test]
fn a_failed_pod_that_waits_keeps_its_node_from_another() {
    let ds = rolling(json!(0), json!(1));
    for hash in ["new", "old"] {
        let failed = pod("n1-a", hash, |pod| pod["status"]["phase"] = "Failed".into());
        let (nodes, pods, mut failures) = (nodes(1), [failed], Failures::default());
        let view = View::new((&ds, "new"), &nodes, &pods, now());
        let first = plan(&view, &mut failures);
        assert_eq!((first.create.len(), first.delete.len()), (1, 1), "{hash}");
        let waits = plan(&view, &mut failures);
        assert!(waits.create.is_empty() && waits.delete.is_empty(), "{hash}");
    }
}
