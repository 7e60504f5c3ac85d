//! What is programmed, and the way of an answer to the program.

use super::*;

fn shown(world: &World, what: &str) -> String {
    let answer = world.answer(&Question::parse(what, None).unwrap());
    answer.unwrap().to_string()
}

#[test]
fn what_is_programmed_is_shown() {
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": 80}]}]);
    let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"], "ingress": from_b});
    let mut world = world(&[("only-b", spec)]);
    let web = world.services.get_mut(&key("web")).unwrap();
    web.affinity_secs = Some(60);
    web.withheld.insert((ip("198.18.0.1"), Protocol::Tcp, 80));
    let rule = "from pods with pod=b in namespace default: 80/tcp";
    for (what, says) in [
        (
            "default/a",
            &[
                "pod default/a, on node n1 (nftables)",
                "Service default/web port 80/tcp, at 8080",
                &*format!("default/only-b spec.ingress[0]: {rule}"),
                "everything: no policy selects it",
            ][..],
        ),
        (
            "svc/web",
            &[
                "port 80/tcp (http), node port 30080",
                "10.244.1.2:8080 pod default/a, on this node",
                "10.244.2.2:8080 pod default/c",
                "stays with its endpoint for 60 s",
                "198.18.0.1:80/tcp has no rule",
                "as here",
            ],
        ),
        ("svc/empty", &["refused: no endpoint is ready"]),
        ("svc/peers", &["none: it is headless"]),
        (
            "netpol/only-b",
            &[
                "pods with pod=a in namespace default",
                "default/a 10.244.1.2",
                &*format!("spec.ingress[0]: {rule}"),
                "ingress, 1 rules",
                "10.244.1.3 (pod default/b)",
            ],
        ),
    ] {
        let text = shown(&world, what);
        for part in says {
            assert!(text.contains(part), "{what}: no {part:?} in\n{text}");
        }
    }
}

#[test]
fn an_answer_is_the_same_after_the_way_to_the_program() {
    let none = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    let world = world(&[("none", none)]);
    for (from, to) in [
        ("default/b", Some("svc/web")),
        ("default/a", Some("192.0.2.7:443")),
        ("svc/web", None),
        ("netpol/none", None),
    ] {
        let question = Question::parse(from, to).unwrap();
        let line = serde_json::to_string(&question).unwrap();
        assert_eq!(serde_json::from_str::<Question>(&line).unwrap(), question);
        let answer = world.answer(&question).unwrap();
        let back: Answer = serde_json::from_str(&answer.to_json()).unwrap();
        assert_eq!(back, answer);
    }
}
