//! A store that another release has written.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use coracle_store::{Backend, Compare, Op, Txn, TxnOutcome, memory::MemoryBackend};
use serde_json::{Value, json};

use super::raw::Raw;
use crate::testing;

/// Changes the stored bytes of `key`, as no request can.
async fn edit(backend: &Arc<dyn Backend>, key: &str, change: impl Fn(&mut Value)) {
    let stored = backend.get(key).await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&stored.value).unwrap();
    change(&mut object);
    let op = Op::Put {
        key: key.into(),
        value: coracle_registry::encode::encode(&object).unwrap(),
    };
    let txn = Txn {
        compare: vec![Compare::ModRevision(key.into(), stored.mod_revision)],
        ops: vec![op],
        ..Txn::default()
    };
    assert!(matches!(
        backend.txn(txn).await.unwrap(),
        TxnOutcome::Committed(_)
    ));
}

async fn admin_over(backend: &Arc<dyn Backend>) -> (Arc<crate::ApiServer>, Raw) {
    let server = testing::server_over(Arc::clone(backend)).await;
    let raw = Raw::of(&server, UserInfo::master("test"));
    (server, raw)
}

#[tokio::test]
async fn a_default_that_is_new_changes_all_templates_before_anybody_compares_them() {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let (server, raw) = admin_over(&backend).await;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let kinds = [("Deployment", "deployments"), ("ReplicaSet", "replicasets")];
    for (kind, plural) in kinds {
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec});
        let (code, made) = raw
            .post(
                &format!("/apis/apps/v1/namespaces/default/{plural}"),
                object,
            )
            .await;
        assert_eq!(code, 201, "{made}");
    }
    server.stop().await;
    let deployment = "/registry/apps/deployments/default/web";
    for key in [deployment, "/registry/apps/replicasets/default/web"] {
        edit(&backend, key, |object| {
            let pod = object["spec"]["template"]["spec"].as_object_mut().unwrap();
            assert_eq!(pod.remove("terminationGracePeriodSeconds"), Some(json!(30)));
            assert!(
                pod["containers"][0]
                    .as_object_mut()
                    .unwrap()
                    .remove("terminationMessagePath")
                    .is_some()
            );
        })
        .await;
    }

    let (server, raw) = admin_over(&backend).await;
    let mut pods = Vec::new();
    for (_, plural) in kinds {
        let (_, read) = raw
            .get(&format!("/apis/apps/v1/namespaces/default/{plural}/web"))
            .await;
        assert_eq!(read["metadata"]["generation"], 1, "{read}");
        pods.push(read["spec"]["template"]["spec"].clone());
    }
    assert_eq!(pods[0], pods[1]);
    assert_eq!(pods[0]["terminationGracePeriodSeconds"], 30);
    server.stop().await;
    // Once is enough.
    let revision = |stored: Option<coracle_store::KeyValue>| stored.unwrap().mod_revision;
    let before = revision(backend.get(deployment).await.unwrap());
    let (server, _) = admin_over(&backend).await;
    assert_eq!(revision(backend.get(deployment).await.unwrap()), before);
    server.stop().await;
}

#[tokio::test]
async fn a_store_of_before_servers_were_several_gets_what_they_compare() {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let (server, raw) = admin_over(&backend).await;
    let (services, maps) = (
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/configmaps",
    );
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}})
    };
    assert_eq!(raw.post(services, service("a")).await.0, 201);
    server.stop().await;
    let entries = [
        "/registry/ranges/servicenodeports/30080",
        "/registry/open-namespaces/default",
    ];
    let forget = async || {
        let delete = |key: &str| Op::Delete { key: key.into() };
        let ops = Vec::from(entries.map(delete));
        let txn = Txn {
            ops,
            ..Txn::default()
        };
        backend.txn(txn).await.unwrap();
    };
    forget().await;
    let (server, raw) = admin_over(&backend).await;
    for key in entries {
        assert!(backend.get(key).await.unwrap().is_some(), "{key}");
    }
    assert_eq!(raw.post(services, service("b")).await.0, 422);
    // Missed while it runs, it is made by who misses it.
    forget().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (code, made) = raw.post(maps, map).await;
    assert_eq!(code, 201, "{made}");
    assert!(backend.get(entries[1]).await.unwrap().is_some());
    server.stop().await;
}
