//! Names, labels and volumes.

use super::*;

#[test]
fn a_pod_is_known_by_its_name() {
    for (name, expect) in [
        ("web-0", Some(("web", 0))),
        ("a-b-12", Some(("a-b", 12))),
        ("web-01", None),
        ("web-+1", None),
        ("web-", None),
        ("web", None),
        ("web--1", Some(("web-", 1))),
        ("web-2147483648", None),
        ("web-1a", None),
    ] {
        assert_eq!(identity::parent_and_ordinal(name), expect, "{name}");
    }
    let parents = |claim| identity::parents_of_claim(claim).collect::<Vec<_>>();
    assert_eq!(parents("data-a-web-0"), ["a-web", "web"]);
    assert_eq!(parents("data"), [""; 0]);
}

#[test]
fn a_pod_is_made_of_the_template_and_what_is_its_own() {
    let web = world(json!({
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["example.org/f"]},
            "spec": {"containers": [{"name": "c", "image": "i"}], "hostname": "other", "volumes": [
                {"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}]},
        },
        "volumeClaimTemplates": [
            {"metadata": {"name": "data", "labels": {"app": "mine", "l": "v"}}, "spec": {"accessModes": ["ReadWriteOnce"]}},
            {"metadata": {"name": "logs"}, "spec": {}},
        ],
    }));
    let plan = web.look(plan);
    let Action::Create { pod, claims } = &plan.steps[0][0] else {
        panic!("{plan:?}");
    };
    let pod = json!(pod);
    assert_eq!(
        pod["metadata"],
        json!({
            "name": "web-0", "namespace": "n", "generateName": "web-", "annotations": {"a": "b"},
            "finalizers": ["example.org/f"],
            "labels": {"app": "web", "controller-revision-hash": "new", "statefulset.kubernetes.io/pod-name": "web-0",
                "apps.kubernetes.io/pod-index": "0"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "me",
                "controller": true, "blockOwnerDeletion": true}],
        })
    );
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("web-0"), &json!("webs"))
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "logs", "persistentVolumeClaim": {"claimName": "logs-web-0"}},
            {"name": "more", "emptyDir": {}},
        ])
    );
    let made = json!(claims.create);
    assert_eq!(
        made[0]["metadata"],
        json!({"name": "data-web-0", "namespace": "n", "labels": {"app": "web", "l": "v"}})
    );
    assert_eq!(made[1]["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(made[0]["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
}

#[test]
fn a_pod_that_is_not_itself_is_made_so() {
    let mut web = world(json!({"replicas": 1})).has("web-0", "new");
    web.pod("web-0")["metadata"]["labels"] =
        json!({"app": "web", "controller-revision-hash": "new"});
    assert_eq!(web.round(), "update web-0");
    let labels = web.pod("web-0")["metadata"]["labels"].clone();
    assert_eq!(
        labels,
        json!({"app": "web", "controller-revision-hash": "new", "statefulset.kubernetes.io/pod-name": "web-0",
            "apps.kubernetes.io/pod-index": "0"})
    );
    assert_eq!(web.round(), "");
    web.set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    assert_eq!(
        web.round(),
        "update web-0 +data-web-0",
        "it has no such volume"
    );
    assert_eq!(web.round(), "");
    web.pod("web-0")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] =
        "data-web-9".into();
    assert_eq!(web.planned(), "update web-0");
}

#[test]
fn pods_with_other_names_have_no_place() {
    let web = world(json!({"replicas": 1}))
        .has("web-01", "new")
        .has("other-0", "new")
        .has("web-0", "new");
    assert_eq!(web.planned(), "");
    assert_eq!(web.status()["replicas"], 1);
}
