//! What is told besides the way.

use super::*;

#[test]
fn what_is_not_certain_is_noted() {
    let mut world = world(&[]);
    world
        .unwritten
        .insert(key("web"), "its turn has not come".to_owned());
    world.trouble = Some("no iptables".to_owned());
    let says: &[&str] = &["its turn has not come", "no iptables"];
    check(&world, &[("default/b", "svc/web", Verdict::Arrives, says)]);
    let says: &[&str] = &["node n2 translates it"];
    check(&world, &[("default/c", "svc/web", Verdict::Arrives, says)]);
    world.policies.as_mut().unwrap().is_complete = false;
    let says: &[&str] = &["not all policies are known here yet"];
    check(
        &world,
        &[("default/a", "default/c:80", Verdict::Unknown, says)],
    );
}

#[test]
fn other_doors_are_named_where_the_one_that_is_asked_leads_nowhere() {
    let mut world = world(&[]);
    let web = world.services.get_mut(&key("web")).unwrap();
    web.balancer_ips = vec![ip("198.18.0.1")];
    let loopback: &[&str] = &["30080 is the node port of Service default/web, and node ports"];
    let outside: &[&str] = &["ask for 198.18.0.1:80 or node:30080"];
    check(
        &world,
        &[
            ("node", "127.0.0.1:30080", Verdict::Arrives, loopback),
            ("192.0.2.7", "svc/web", Verdict::Arrives, outside),
        ],
    );
    for (from, to) in [
        ("node", "127.0.0.1:30081"),
        ("node", "127.0.0.1:30080/udp"),
        ("node", "svc/web"),
        ("default/c", "10.244.1.3:80"),
        ("192.0.2.7", "198.18.0.1:80"),
    ] {
        let said = ask(&world, from, to).unwrap().notes;
        assert!(said.is_empty(), "{from} to {to}: {said:?}");
    }
}

#[test]
fn what_is_not_known_is_told_with_what_to_do() {
    let world = world(&[]);
    for (from, to, says) in [
        (
            "default/nobody",
            "default/a:80",
            "kubectl get pod -n default nobody",
        ),
        ("default/a", "svc/nothing:80", "kubectl get services"),
        ("default/a", "svc/peers:80", "it is headless"),
        ("default/a", "default/b", "as :PORT"),
        ("default/a", "default/b:http", "give its number"),
        ("default/a", "svc/web:dns", "80/tcp"),
        ("svc/web", "default/a:80", "sends nothing"),
        ("node/n9", "default/a:80", "kubectl get nodes"),
        ("fd00::1", "default/a:80", "different families"),
    ] {
        let error = ask(&world, from, to).unwrap_err();
        assert!(error.contains(says), "{from} to {to}: {error}");
    }
    let policy = Question::parse("netpol/none", None).unwrap();
    assert!(
        world
            .answer(&policy)
            .unwrap_err()
            .contains("networkpolicies")
    );
}
