//! Where pods are, and which of their changes count.

use serde_json::{Value, json};

use super::{
    super::pod::{changes_much, path_of},
    pod,
};

#[test]
fn a_pod_is_where_its_kind_has_it() {
    let template: &[&str] = &["spec", "template"];
    let of_cron_jobs: &[&str] = &["spec", "jobTemplate", "spec", "template"];
    let table: [(&str, &str, Option<&[&str]>); 12] = [
        ("", "pods", Some(&[])),
        ("", "podtemplates", Some(&["template"])),
        ("", "replicationcontrollers", Some(template)),
        ("apps", "deployments", Some(template)),
        ("apps", "replicasets", Some(template)),
        ("apps", "statefulsets", Some(template)),
        ("apps", "daemonsets", Some(template)),
        ("batch", "jobs", Some(template)),
        ("batch", "cronjobs", Some(of_cron_jobs)),
        ("", "services", None),
        ("apps", "controllerrevisions", None),
        ("example.org", "deployments", None),
    ];
    for (group, plural, expect) in table {
        assert_eq!(path_of(group, plural), expect, "{group} {plural}");
    }
}

#[test]
fn a_pod_is_looked_at_again_where_its_containers_are_others() {
    let check = |change: fn(&mut Value), expect: bool| {
        let mut old = pod(json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}));
        old["metadata"]["annotations"] = json!({"a": "b"});
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(changes_much(&new, &old), expect, "{new}");
    };
    check(|_| {}, false);
    check(
        |pod| pod["metadata"]["annotations"]["a"] = json!("c"),
        false,
    );
    check(|pod| pod["spec"]["activeDeadlineSeconds"] = json!(5), false);
    check(
        |pod| pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
        false,
    );
    // A resize.
    check(
        |pod| pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}}),
        false,
    );
    check(
        |pod| pod["spec"]["containers"][0]["image"] = json!("j"),
        true,
    );
    check(
        |pod| pod["spec"]["initContainers"][0]["image"] = json!("j"),
        true,
    );
    check(|pod| pod["spec"]["initContainers"] = json!([]), true);
    check(
        |pod| pod["spec"]["containers"] = json!([{"image": "i"}, {"image": "i"}]),
        true,
    );
    check(|pod| pod["spec"]["ephemeralContainers"] = json!([]), false);
    check(
        |pod| pod["spec"]["ephemeralContainers"][0]["image"] = json!("j"),
        true,
    );
    check(
        |pod| pod["spec"]["ephemeralContainers"][0]["name"] = json!("f"),
        true,
    );
}
