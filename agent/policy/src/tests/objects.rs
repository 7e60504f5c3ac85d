//! What policies speak of, and what they may say.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    blocks::{union, without},
    objects::PodView,
};

fn view(change: impl FnOnce(&mut Value)) -> Option<PodView> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "x", "name": "a", "labels": {"pod": "a"}},
        "spec": {"nodeName": "one", "containers": [
            {"name": "c", "ports": [{"name": "web", "containerPort": 80}, {"containerPort": 81}]},
        ]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    change(&mut pod);
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    PodView::from_pod(&pod)
}

#[test]
fn pod_is_seen_with_its_named_ports() {
    let view = view(|_| {}).expect("a pod that policies speak of");
    assert_eq!(view.addresses.len(), 1);
    assert_eq!(view.ports.len(), 1);
    assert_eq!(view.labels.get("pod"), Some("a"));
}

#[test]
fn policies_do_not_speak_of_such_pods() {
    assert!(view(|pod| pod["spec"]["hostNetwork"] = true.into()).is_none());
    assert!(view(|pod| pod["status"]["phase"] = "Succeeded".into()).is_none());
    assert!(view(|pod| pod["status"]["phase"] = "Failed".into()).is_none());
    assert!(view(|pod| pod["status"] = json!({"phase": "Pending"})).is_none());
}

#[test]
fn block_without_its_excepts_is_disjoint() {
    let net = |text: &str| text.parse::<IpNet>().expect("a net");
    let check = |block: &str, excepts: &[&str], expected: &[(&str, &str)]| {
        let excepts: Vec<_> = excepts.iter().map(|e| net(e)).collect();
        let ranges = union(without(net(block), &excepts));
        let found: Vec<_> = ranges
            .iter()
            .map(|r| (r.first.to_string(), r.last.to_string()))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(first, last)| ((*first).to_owned(), (*last).to_owned()))
            .collect();
        assert_eq!(found, expected);
    };
    check("10.0.0.0/30", &[], &[("10.0.0.0", "10.0.0.3")]);
    check("10.0.0.0/30", &["10.0.0.0/32"], &[("10.0.0.1", "10.0.0.3")]);
    check("10.0.0.0/30", &["10.0.0.0/29"], &[]);
    let both = [("10.0.0.0", "10.0.0.0"), ("10.0.0.2", "10.0.0.3")];
    check("10.0.0.0/30", &["10.0.0.1/32", "fd00::/8"], &both);
    check(
        "::/0",
        &["8000::/1"],
        &[("::", "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")],
    );
}
