//! Traffic policies and source ranges, and where packets end under them.

use super::*;

/// A pod of another node.
const FAR_POD: &str = "10.244.7.7";

#[test]
fn internal_policy_local_binds_the_cluster_ip_only() {
    let mut view = exposed();
    view.internal_local = true;
    check(
        view.clone(),
        &[
            (POD, "10.96.0.10:80", 1, to("10.244.1.2:8080")),
            (NODE, "10.96.0.10:80", 1, masqueraded("10.244.1.2:8080")),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.7:80", 2, masqueraded("10.244.3.2:8080")),
            (OUTSIDE, "203.0.113.8:80", 2, masqueraded("10.244.3.2:8080")),
        ],
    );
    // No endpoint here: what comes to the cluster IP is dropped, what comes from outside goes on.
    view.ports[0].local.clear();
    check(
        view,
        &[
            (POD, "10.96.0.10:80", 0, Outcome::Dropped),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.7:80", 2, masqueraded("10.244.3.2:8080")),
        ],
    );
}

#[test]
fn external_policy_local_keeps_the_client_and_stays_on_the_node() {
    let mut view = exposed();
    view.external_local = true;
    check(
        view.clone(),
        &[
            (OUTSIDE, "192.168.0.1:30080", 1, to("10.244.1.2:8080")),
            (OUTSIDE, "203.0.113.7:80", 2, to("10.244.1.2:8080")),
            (OUTSIDE, "203.0.113.8:80", 2, to("10.244.1.2:8080")),
            (FAR_POD, "192.168.0.1:30080", 1, to("10.244.1.2:8080")),
            // The cluster IP has a policy of its own.
            (POD, "10.96.0.10:80", 1, to("10.244.2.2:8080")),
            // As if a balancer had brought it back in: pods of this node under their own address,
            // the node under its.
            (POD, "203.0.113.8:80", 1, to("10.244.2.2:8080")),
            (POD, "192.168.0.1:30080", 2, to("10.244.3.2:8080")),
            (NODE, "203.0.113.8:80", 1, masqueraded("10.244.2.2:8080")),
            (NODE, "192.168.0.1:30080", 1, masqueraded("10.244.2.2:8080")),
        ],
    );
    view.ports[0].local.clear();
    check(
        view.clone(),
        &[
            (OUTSIDE, "192.168.0.1:30080", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.7:80", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped),
            (FAR_POD, "192.168.0.1:30080", 1, Outcome::Dropped),
            (POD, "203.0.113.8:80", 1, to("10.244.2.2:8080")),
            (NODE, "192.168.0.1:30080", 1, masqueraded("10.244.2.2:8080")),
            (POD, "10.96.0.10:80", 1, to("10.244.2.2:8080")),
        ],
    );
    // Nobody anywhere: refused, as under every policy.
    view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
    check(
        view,
        &[
            (
                OUTSIDE,
                "192.168.0.1:30080",
                0,
                Outcome::Rejected("tcp-reset"),
            ),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Rejected("tcp-reset")),
            (POD, "10.96.0.10:80", 0, Outcome::Rejected("tcp-reset")),
        ],
    );
}

#[test]
fn both_policies_local_leave_the_cluster_ip_to_the_internal_one() {
    let mut view = web();
    view.internal_local = true;
    view.external_local = true;
    check(view, &[(POD, "10.96.0.10:80", 0, to("10.244.1.2:8080"))]);
}

#[test]
fn source_ranges_guard_the_balancer_addresses_only() {
    let mut view = exposed();
    view.source_ranges = Some(vec!["198.51.100.0/24".parse().unwrap()]);
    check(
        view.clone(),
        &[
            (
                "198.51.100.9",
                "203.0.113.8:80",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped),
            (POD, "203.0.113.8:80", 0, Outcome::Dropped),
            (NODE, "203.0.113.8:80", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.7:80", 1, masqueraded("10.244.2.2:8080")),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
        ],
    );
    view.source_ranges = Some(vec!["0.0.0.0/0".parse().unwrap()]);
    check(
        view.clone(),
        &[(OUTSIDE, "203.0.113.8:80", 1, masqueraded("10.244.2.2:8080"))],
    );
    view.source_ranges = Some(vec![]);
    check(view, &[(OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped)]);
}
