//! Who gets a name that several ask for.

use serde_json::json;

use super::{DEFINITIONS, WIDGETS, cluster, definition, established, has, memory, until};

#[tokio::test]
async fn a_name_is_given_once() {
    let cluster = cluster(&memory()).await;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let mut other = definition(json!({"type": "integer"}));
    other["metadata"]["name"] = "gadgets.example.org".into();
    other["spec"]["names"]["plural"] = "gadgets".into();
    let (code, _) = cluster.admin.post(DEFINITIONS, other).await;
    assert_eq!(code, 201);
    let path = format!("{DEFINITIONS}/gadgets.example.org");
    let refused = until(&cluster.admin, &path, |_, now| {
        has(now, "NamesAccepted", "False")
    })
    .await;
    assert!(has(&refused, "Established", "False"));
    let gadgets = "/apis/example.org/v1/namespaces/default/gadgets";
    assert_eq!(cluster.admin.get(gadgets).await.0, 404);
    // With the first one goes what it had.
    cluster
        .admin
        .delete(&format!("{DEFINITIONS}/widgets.example.org"), json!({}))
        .await;
    until(&cluster.admin, &path, |_, now| {
        has(now, "Established", "True")
    })
    .await;
    assert_eq!(cluster.admin.get(gadgets).await.0, 200);
}

#[tokio::test]
async fn what_is_built_in_is_nobody_elses_and_stays() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    let group = "rbac.authorization.k8s.io";
    let roles = format!("/apis/{group}/v1/namespaces/default/roles");
    let role = json!({"metadata": {"name": "mine"}, "rules": []});
    assert_eq!(admin.post(&roles, role).await.0, 201);
    for (plural, kind, reason) in [
        ("roles", "Other", "PluralConflict"),
        ("others", "Role", "ListKindConflict"),
    ] {
        let mut other = definition(json!({"type": "integer"}));
        let name = format!("{plural}.{group}");
        other["metadata"] = json!({"name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved"}});
        other["spec"]["group"] = group.into();
        other["spec"]["names"] = json!({"plural": plural, "kind": kind});
        assert_eq!(admin.post(DEFINITIONS, other).await.0, 201);
        let path = format!("{DEFINITIONS}/{name}");
        let refused = until(admin, &path, |_, now| has(now, "NamesAccepted", "False")).await;
        assert!(refused.to_string().contains(reason), "{refused}");
        assert!(has(&refused, "Established", "False"), "{refused}");
        assert_eq!(admin.delete(&path, json!({})).await.0, 200);
        until(admin, &path, |code, _| code == 404).await;
    }
    let (code, _) = admin.get(&format!("{roles}/mine")).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_kind_is_served_by_no_other_plural() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let path = format!("{DEFINITIONS}/widgets.example.org");
    let names = json!({"status": {"acceptedNames": {"plural": "gadgets", "kind": "Gadget"}}});
    let (code, _) = admin.merge(&format!("{path}/status"), names).await;
    assert_eq!(code, 200);
    until(admin, &path, |_, now| {
        now["status"]["acceptedNames"]["kind"] == "Widget"
    })
    .await;
    until(admin, WIDGETS, |code, list| {
        code == 200 && list["kind"] == "WidgetList"
    })
    .await;
    let gadgets = "/apis/example.org/v1/namespaces/default/gadgets";
    assert_eq!(admin.get(gadgets).await.0, 404);
}
