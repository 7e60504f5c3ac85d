//! The whole store as a file: for masters, and for nobody whom a role lets ask.

use std::sync::Arc;

use coracle_store::sqlite::{SqliteBackend, check};
use serde_json::json;

use super::raw::{CONFIG_MAPS, Raw, config_map};
use crate::{backup::PATH, testing, user::UserInfo};

#[tokio::test(flavor = "multi_thread")]
async fn masters_get_a_file_with_all_that_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteBackend::open(dir.path().join("store")).unwrap());
    let keys = || store.stats().keys;
    let server = testing::server_over(Arc::clone(&store) as _).await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    assert_eq!(admin.post(CONFIG_MAPS, config_map("kept")).await.0, 201);
    let answer = admin.response("GET", PATH, "", "").await;
    assert_eq!(answer.status(), 200);
    let length = answer.headers()["content-length"]
        .to_str()
        .unwrap()
        .to_owned();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    assert_eq!(bytes.len().to_string(), length);
    let file = dir.path().join("backup.db");
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(check::verify(&file).unwrap().keys, keys());
    assert_eq!(admin.send("HEAD", PATH, "", "").await.0, 404);
    assert_eq!(admin.send("POST", PATH, "", "").await.0, 404);
}

#[tokio::test]
async fn a_role_for_all_paths_does_not_open_it() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let role = json!({"metadata": {"name": "paths"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}]});
    let binding = json!({"metadata": {"name": "paths"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "paths"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scraper"}]});
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        assert_eq!(admin.post(&path, object).await.0, 201);
    }
    let scraper = Raw::of(&server, UserInfo::new("scraper", &[]));
    assert_eq!(scraper.send("GET", "/metrics", "", "").await.0, 200);
    let (code, status) = scraper.send("GET", PATH, "", "").await;
    assert_eq!(code, 403);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("system:masters"),
        "{status}"
    );
    let nobody = Raw::of(&server, UserInfo::new("nobody", &[]));
    assert_eq!(nobody.send("GET", PATH, "", "").await.0, 403);
}

#[tokio::test]
async fn what_is_in_memory_cannot_be_backed_up() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let (code, status) = admin.send("GET", PATH, "", "").await;
    assert_eq!(code, 400);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("--store memory"),
        "{status}"
    );
}
