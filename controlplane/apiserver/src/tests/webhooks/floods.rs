//! What a webhook that hangs takes from those who do not ask it.

use serde_json::json;

use super::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SECRETS: &str = "/api/v1/namespaces/default/secrets?dryRun=All";

/// Lets a group write.
async fn let_write(admin: &Raw, group: &str) {
    let of = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": group}});
    let mut role = of("ClusterRole");
    role["rules"] =
        json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]);
    assert_eq!(
        admin.post(&format!("{RBAC}/clusterroles"), role).await.0,
        201
    );
    let mut binding = of("ClusterRoleBinding");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group});
    binding["subjects"] =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]);
    let path = format!("{RBAC}/clusterrolebindings");
    assert_eq!(admin.post(&path, binding).await.0, 201);
}

#[tokio::test]
async fn writes_that_wait_for_a_webhook_keep_nobody_from_writing() {
    let (server, admin) = cluster().await;
    let_write(&admin, "writers").await;
    let hook = Hook::that(Reply::Hangs).await;
    let webhook = hook.webhook("a", json!({"timeoutSeconds": 30}));
    configure(&server, &admin, VALIDATING, "v", &[webhook]).await;
    let writer = |name: &str| Raw::outside(&server, UserInfo::new(name, &["writers"]));
    // As many as there are places for writes.
    let waiting: Vec<_> = (0..200)
        .map(|at| {
            let writer = writer(&format!("writer-{}", at % 4));
            coracle_telemetry::spawn("write", async move {
                let object = config_map(&format!("c{at}"));
                writer.post(CONFIG_MAPS, object).await
            })
        })
        .collect();
    let other = writer("other");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let trying = async {
        while hook.asked().len() < 100 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        while other.post(SECRETS, secret.clone()).await.0 != 201 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let tried = tokio::time::timeout(std::time::Duration::from_secs(15), trying).await;
    tried.expect("there is a place for who waits for nobody");
    assert!(waiting.iter().all(|write| !write.is_finished()));
    waiting.iter().for_each(|write| write.abort());
}
