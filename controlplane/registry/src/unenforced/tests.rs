use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::json;

use super::{acted_on::KINDS, *};
use crate::{kinds, testing::minimal::minimal};

fn all() -> impl Iterator<Item = ApiResource> {
    kinds::all()
        .iter()
        .map(|strategy| ApiResource::from(strategy.resource()))
}

fn info(group: &str, plural: &str) -> ApiResource {
    all()
        .find(|info| info.is(group, plural))
        .unwrap_or_else(|| panic!("no {plural}.{group}"))
}

fn told(group: &str, plural: &str, object: &Value) -> Vec<String> {
    warnings(&info(group, plural), object, None)
}

#[test]
fn every_served_kind_has_one_line_that_says_who_acts_on_it() {
    let mut lines = BTreeMap::new();
    for (group, plural, _) in KINDS {
        *lines.entry((*group, *plural)).or_insert(0) += 1;
    }
    assert!(lines.values().all(|count| *count == 1), "{lines:?}");
    let served: Vec<_> = all().collect();
    let served: BTreeSet<_> = served
        .iter()
        .map(|info| (&*info.group, &*info.plural))
        .collect();
    let listed: BTreeSet<_> = lines.into_keys().collect();
    let apart: Vec<_> = served.symmetric_difference(&listed).collect();
    assert!(apart.is_empty(), "served or listed, not both: {apart:?}");
}

#[test]
fn who_acts_on_a_kind_is_there_and_names_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (group, plural, who) in KINDS {
        let ActedOn::By(path) = who else { continue };
        let text = fs::read_to_string(root.join(path))
            .unwrap_or_else(|error| panic!("{plural}: {path}: {error}"));
        let kind = info(group, plural).kind;
        assert!(
            text.contains(&*kind) || text.contains(plural),
            "{path} does not name {kind}"
        );
    }
}

#[test]
fn a_kind_is_warned_of_if_and_only_if_nobody_acts_on_it() {
    for strategy in kinds::all() {
        let info = ApiResource::from(strategy.resource());
        let said = warnings(&info, &minimal(*strategy), None);
        match acted_on::who(&info.group, &info.plural) {
            Some(ActedOn::Nobody(consequence) | ActedOn::Addon(consequence)) => {
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(said[0].starts_with(&*info.kind), "{said:?}");
                assert!(said[0].ends_with(consequence), "{said:?}");
            }
            _ => assert_eq!(said, [""; 0], "{}", info.kind),
        }
    }
}

#[test]
fn a_change_is_warned_of_where_it_asks_for_more() {
    let check = |group: &str, plural: &str, old: Value, new: Value, expect: usize| {
        let said = warnings(&info(group, plural), &new, Some(&old));
        assert_eq!(said.len(), expect, "{old} to {new}: {said:?}");
    };
    const STORAGE: &str = "storage.k8s.io";
    let attached = |node: &str, finalizer: &str| json!({"metadata": {"finalizers": [finalizer]}, "spec": {"nodeName": node}});
    let nobodys = "volumeattachments";
    check(
        STORAGE,
        nobodys,
        attached("n1", "a"),
        attached("n2", "a"),
        1,
    );
    check(
        STORAGE,
        nobodys,
        attached("n1", "a"),
        attached("n1", "b"),
        0,
    );
    let mut told = attached("n1", "a");
    told["status"] = json!({"attached": true});
    check(STORAGE, nobodys, attached("n1", "a"), told, 0);
    let service = |kind: &str, class: Value| json!({"metadata": {}, "spec": {"type": kind, "loadBalancerClass": class}});
    let own = service("ClusterIP", Value::Null);
    let balanced = service("LoadBalancer", json!("example.org/a"));
    check("", "services", own.clone(), balanced.clone(), 1);
    check("", "services", balanced, own, 0);
}

#[test]
fn isolation_that_no_node_has_is_warned_of_wherever_pods_come_from() {
    let template: &[&str] = &["spec", "template", "spec"];
    let of_cron_jobs: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec"];
    let table: [(&str, &str, &[&str]); 9] = [
        ("batch", "cronjobs", of_cron_jobs),
        ("", "pods", &["spec"]),
        ("", "podtemplates", &["template", "spec"]),
        ("", "replicationcontrollers", template),
        ("apps", "daemonsets", template),
        ("apps", "deployments", template),
        ("apps", "replicasets", template),
        ("apps", "statefulsets", template),
        ("batch", "jobs", template),
    ];
    for (group, plural, path) in table {
        let wrap = |inner, key: &&str| json!({*key: inner});
        let said = |host_users: bool| {
            let spec = json!({"hostUsers": host_users});
            told(group, plural, &path.iter().rev().fold(spec, wrap))
        };
        assert_eq!(said(true), [""; 0], "{plural}");
        let expect = format!("{}.hostUsers false is refused", path.join("."));
        let said = said(false);
        assert!(said.len() == 1 && said[0].starts_with(&expect), "{said:?}");
    }
    let class = |handler: &str| {
        told(
            "node.k8s.io",
            "runtimeclasses",
            &json!({"handler": handler}),
        )
    };
    assert_eq!((class("runc").len(), class("coracle").len()), (0, 0));
    let said = class("gvisor").concat();
    assert!(said.starts_with("handler \"gvisor\" is refused"), "{said}");
}

#[test]
fn services_that_ask_for_what_is_not_done_are_warned_of() {
    let check = |spec: Value, expect: &[&str]| {
        let object = json!({"metadata": {}, "spec": spec});
        let said = told("", "services", &object);
        let begins = |(said, expect): (&String, &&str)| said.starts_with(expect);
        assert!(
            said.len() == expect.len() && said.iter().zip(expect).all(begins),
            "{said:?}"
        );
    };
    check(json!({"type": "ClusterIP"}), &[]);
    let local = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    check(local, &[]);
    let address = "spec.loadBalancerClass \"example.org/a\" needs an addon";
    let balanced = |policy: &str, class: Value| json!({"type": "LoadBalancer", "externalTrafficPolicy": policy, "loadBalancerClass": class});
    let of_others = || json!("example.org/a");
    check(balanced("Cluster", Value::Null), &[]);
    check(balanced("Cluster", json!("coracle.dev/node")), &[]);
    check(balanced("Cluster", of_others()), &[address]);
    check(balanced("Local", Value::Null), &[]);
    check(balanced("Local", of_others()), &[address]);
    check(
        json!({"type": "ExternalName", "externalName": "a.example"}),
        &[],
    );
}

#[test]
fn slices_that_ask_for_what_is_not_done_are_warned_of() {
    let count = |family: &str| {
        let slice = json!({"addressType": family, "endpoints": []});
        told("discovery.k8s.io", "endpointslices", &slice).len()
    };
    assert_eq!((count("IPv4"), count("IPv6")), (0, 1));
}

#[test]
fn metrics_that_nobody_serves_are_warned_of() {
    let said = |kinds: &[&str]| {
        let metrics: Vec<_> = kinds.iter().map(|kind| json!({"type": kind})).collect();
        let object = json!({"spec": {"metrics": metrics}});
        told("autoscaling", "horizontalpodautoscalers", &object)
    };
    assert_eq!(said(&["Resource", "ContainerResource"]), [""; 0]);
    let custom = said(&["Resource", "Pods", "Object"]);
    let begins = |said: &str, index: u8| said.starts_with(&format!("spec.metrics[{index}] has no"));
    assert!(custom.len() == 2 && begins(&custom[0], 1) && begins(&custom[1], 2));
    assert!(said(&["External"])[0].contains(" external.metrics.k8s.io "));
}
