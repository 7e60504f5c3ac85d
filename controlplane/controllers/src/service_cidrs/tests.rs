use serde_json::{Value, json};

use super::*;

fn range(name: &str, cidrs: &[&str]) -> Arc<ServiceCIDR> {
    let object = json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn address(name: &str, labels: Value) -> Arc<IPAddress> {
    let parent = json!({"resource": "services", "name": "s"});
    let object =
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn given(name: &str) -> Arc<IPAddress> {
    address(name, json!({MANAGED_BY: ALLOCATOR}))
}

#[test]
fn a_range_is_needed_for_what_no_other_covers() {
    let going = range("going", &["10.97.0.0/24", "fd00::/112"]);
    for (staying, addresses, expect) in [
        (vec![], vec![], false),
        (vec![], vec!["10.97.0.9"], true),
        (vec![], vec!["fd00::9"], true),
        (vec![], vec!["10.98.0.9"], false),
        (vec!["10.97.0.0/24"], vec!["10.97.0.9"], false),
        (vec!["10.96.0.0/15"], vec!["10.97.0.9"], false),
        (vec!["10.96.0.0/15"], vec!["10.97.0.9", "fd00::9"], true),
        // Several cover it together.
        (
            vec!["10.97.0.0/28", "10.97.0.64/26"],
            vec!["10.97.0.9", "10.97.0.65"],
            false,
        ),
        (vec!["10.97.0.0/28"], vec!["10.97.0.65"], true),
        // It is that one's broadcast address.
        (vec!["10.97.0.0/28"], vec!["10.97.0.15"], true),
    ] {
        let ranges: Vec<_> = staying
            .iter()
            .map(|cidr| range("stays", &[*cidr]))
            .collect();
        let given: Vec<_> = addresses.iter().map(|name| given(name)).collect();
        let needed = is_needed(&going, &ranges, &given);
        assert_eq!(needed, expect, "{staying:?} {addresses:?}");
    }
}

#[test]
fn only_a_range_that_is_held_covers_what_others_leave() {
    let deleted = "2026-01-01T00:00:00Z";
    for (metadata, expect) in [
        (json!({"finalizers": [FINALIZER]}), true),
        (json!({"finalizers": ["somebody/else"]}), false),
        (json!({}), false),
        (
            json!({"finalizers": [FINALIZER], "deletionTimestamp": deleted}),
            false,
        ),
    ] {
        let object = json!({"metadata": metadata, "spec": {"cidrs": ["10.97.0.0/24"]}});
        let range = serde_json::from_value(object).unwrap();
        assert_eq!(is_staying(&range), expect, "{metadata}");
    }
}

#[test]
fn addresses_of_others_need_no_range() {
    let going = range("going", &["10.97.0.0/24"]);
    for labels in [json!({}), json!({MANAGED_BY: "somebody"})] {
        let addresses = [address("10.97.0.9", labels)];
        assert!(!is_needed(&going, &[], &addresses));
    }
}

#[test]
fn ranges_overlap_if_one_has_the_other() {
    for (one, other, expect) in [
        ("10.97.0.0/24", "10.97.0.0/24", true),
        ("10.97.0.0/24", "10.96.0.0/15", true),
        ("10.96.0.0/15", "10.97.0.0/24", true),
        ("10.97.0.0/24", "10.98.0.0/24", false),
        ("10.97.0.0/24", "fd00::/112", false),
    ] {
        let nets = nets(&range("a", &[one]));
        assert_eq!(overlap(&nets, &range("b", &[other])), expect);
    }
}

#[test]
fn the_wait_counts_from_the_deletion() {
    let at = |second| Timestamp::from_second(second).unwrap();
    for (now, expect) in [(100, Some(10)), (104, Some(6)), (110, None), (200, None)] {
        let expect = expect.map(Duration::from_secs);
        assert_eq!(left(at(100), at(now)), expect, "{now}");
    }
    // A clock that was set back.
    assert_eq!(left(at(100), at(50)), Some(GRACE));
}

#[test]
fn a_state_that_is_said_is_not_written_again() {
    let mut range = ServiceCIDR::clone(&range("a", &["10.97.0.0/24"]));
    let state = |status| State {
        status,
        reason: "",
        message: "m",
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    state("True").set(&mut range, at(1));
    let before = range.clone();
    state("True").set(&mut range, at(2));
    assert_eq!(range, before);
    state("False").set(&mut range, at(3));
    let conditions = range.status.unwrap().conditions.unwrap();
    let said = |one: &Condition| (one.status.clone(), one.last_transition_time.0);
    assert_eq!(
        conditions.iter().map(said).collect::<Vec<_>>(),
        [("False".to_owned(), at(3))]
    );
}
