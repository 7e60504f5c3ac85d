//! PUT of what is not there, PUT without a version, and objects that grow.

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, admin, config_map};
use crate::testing;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"leaseDurationSeconds": 10}})
}

#[tokio::test]
async fn put_makes_the_kinds_that_upstream_makes() {
    let raw = admin().await;
    assert_eq!(
        raw.put(&format!("{CONFIG_MAPS}/a"), config_map("a"))
            .await
            .0,
        404
    );
    let (code, made) = raw.put(&format!("{LEASES}/a"), lease("a")).await;
    assert_eq!(
        (code, made["metadata"]["uid"].is_string()),
        (201, true),
        "{made}"
    );
    for field in ["uid", "resourceVersion"] {
        let mut gone = lease("b");
        gone["metadata"][field] = "7".into();
        let (code, refused) = raw.put(&format!("{LEASES}/b"), gone).await;
        assert_eq!(
            (code, &refused["reason"]),
            (409, &json!("Conflict")),
            "{field}: {refused}"
        );
    }
    assert_eq!(raw.get(&format!("{LEASES}/b")).await.0, 404);
}

#[tokio::test]
async fn who_may_only_update_makes_nothing() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "updater"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update", "get"]}]});
    assert_eq!(
        admin.put(&format!("{ROLES}/updater"), role).await.0,
        201,
        "a role is made by PUT, too"
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "updater"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(admin.post(bindings, binding).await.0, 201);
    let alice = Raw::of(
        &server,
        UserInfo {
            name: "alice".to_owned(),
            ..UserInfo::default()
        },
    );
    let (code, refused) = alice.put(&format!("{LEASES}/a"), lease("a")).await;
    assert_eq!(code, 403, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("cannot create resource \"leases\""),
        "{refused}"
    );
    assert_eq!(admin.get(&format!("{LEASES}/a")).await.0, 404);
}

#[tokio::test]
async fn some_kinds_have_to_say_which_version_they_replace() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(
        raw.put(&format!("{CONFIG_MAPS}/a"), config_map("a"))
            .await
            .0,
        200
    );
    let (_, made) = raw.post(LEASES, lease("a")).await;
    let (code, refused) = raw.put(&format!("{LEASES}/a"), lease("a")).await;
    let message = "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
    assert_eq!((code, &refused["message"]), (422, &json!(message)));
    assert_eq!(raw.put(&format!("{LEASES}/a"), made).await.0, 200);
    assert_eq!(
        raw.merge(
            &format!("{LEASES}/a"),
            json!({"spec": {"leaseDurationSeconds": 20}})
        )
        .await
        .0,
        200
    );
}

#[tokio::test]
async fn an_object_does_not_grow_without_end() {
    let raw = admin().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "grow"}});
    assert_eq!(raw.post(accounts, account).await.0, 201);
    let path = format!("{accounts}/grow");
    let kind = "application/strategic-merge-patch+json";
    let more = |round: usize| {
        let secrets: Vec<_> = (0..8000)
            .map(|at| json!({"name": format!("{round}-{at}-{}", "x".repeat(60))}))
            .collect();
        json!({"secrets": secrets}).to_string()
    };
    let mut codes = Vec::new();
    for round in 0..4 {
        codes.push(raw.send("PATCH", &path, kind, more(round)).await.0);
    }
    assert_eq!(codes, [200, 200, 413, 413]);
    let (code, answer) = raw.send("PATCH", &path, kind, more(2)).await;
    assert_eq!(
        (code, &answer["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
    assert_eq!(
        answer["message"],
        "Request entity too large: limit is 1572864"
    );
    assert_eq!(raw.delete(&path, json!({})).await.0, 200);
}
