//! What is asked of the server, and what its answers mean.

use std::{convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::controller::or_event;

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that answers everything with `code`, and what it was asked.
fn server(code: u16) -> (Client, Asked) {
    let asked = Asked::default();
    let of_server = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let asked = of_server.clone();
        async move {
            let call = format!("{} {}", request.method(), request.uri().path());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            asked.lock().push((call, body));
            let answer = match code {
                200 => json!({"metadata": {"name": "q", "resourceVersion": "8"}}),
                code => json!({"kind": "Status", "code": code, "reason": "Conflict"}),
            };
            let response = http::Response::builder().status(code);
            Ok::<_, Infallible>(
                response
                    .body(Body::from(answer.to_string().into_bytes()))
                    .unwrap(),
            )
        }
    });
    (Client::new(service, "default"), asked)
}

fn quota() -> ResourceQuota {
    let metadata = json!({"name": "q", "namespace": "ns", "uid": "u", "resourceVersion": "7"});
    serde_json::from_value(json!({"metadata": metadata, "status": {}})).unwrap()
}

const QUOTA: &str = "/api/v1/namespaces/ns/resourcequotas/q";

#[tokio::test]
async fn a_deletion_is_one_of_this_object_and_of_this_version_if_it_is_said() {
    let ((client, asked), quota) = (server(200), quota());
    let params = DeleteParams::background;
    let delete = || Write::to(&client, &quota, "delete");
    delete().delete(params()).await.unwrap();
    delete().if_unchanged().delete(params()).await.unwrap();
    let asked = asked.lock();
    let preconditions: Vec<_> = asked
        .iter()
        .map(|(_, body)| &body["preconditions"])
        .collect();
    assert_eq!(asked[0].0, format!("DELETE {QUOTA}"));
    assert_eq!(asked[0].1["propagationPolicy"], "Background");
    let versioned = json!({"uid": "u", "resourceVersion": "7"});
    assert_eq!(preconditions, [&json!({"uid": "u"}), &versioned]);
}

#[tokio::test]
async fn a_patch_says_which_object_it_means() {
    let (client, asked) = server(200);
    let quota = quota();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let write = || Write::to(&client, &quota, "patch");
    let patched = write().patch(patch).await.unwrap().unwrap();
    assert_eq!(patched.metadata.resource_version.as_deref(), Some("8"));
    let status = write().if_unchanged();
    let patch = json!({"status": {"hard": {}}});
    status.patch_status(patch).await.unwrap();
    let cluster_wide = json!({"metadata": {"name": "n"}});
    let cluster_wide: Namespace = serde_json::from_value(cluster_wide).unwrap();
    let write = Write::to(&client, &cluster_wide, "patch");
    write.patch(json!({})).await.unwrap();
    let expected = [
        (QUOTA.to_owned(), json!({"labels": {"a": "b"}, "uid": "u"})),
        (
            format!("{QUOTA}/status"),
            json!({"uid": "u", "resourceVersion": "7"}),
        ),
        ("/api/v1/namespaces/n".to_owned(), json!({"uid": null})),
    ];
    let asked = asked.lock();
    let asked = asked
        .iter()
        .map(|(call, body)| (call.clone(), body["metadata"].clone()));
    let expected = expected.map(|(path, metadata)| (format!("PATCH {path}"), metadata));
    assert_eq!(asked.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_status_is_written_where_it_differs() {
    let (client, asked) = server(200);
    let quota = quota();
    let write = || Write::to(&client, &quota, "write");
    let same = write().status(|quota| quota.status = Some(Default::default()));
    assert_eq!(same.await.unwrap(), None);
    assert!(asked.lock().is_empty());
    let other = write().status(|quota| quota.status = None);
    assert!(other.await.unwrap().is_some());
    let asked = asked.lock();
    assert_eq!(asked[0].0, format!("PUT {QUOTA}/status"));
    assert_eq!(asked[0].1["metadata"]["resourceVersion"], "7");
}

#[tokio::test]
async fn what_is_gone_needs_nothing_and_who_is_late_learns_it() {
    let quota = quota();
    let patch = || json!({"status": {}});
    let (client, _) = server(404);
    let write = || Write::to(&client, &quota, "write");
    write().delete(DeleteParams::default()).await.unwrap();
    assert_eq!(write().patch(patch()).await.unwrap(), None);
    assert_eq!(write().patch_status(patch()).await.unwrap(), None);
    assert_eq!(
        write().status(|quota| quota.status = None).await.unwrap(),
        None
    );
    let (client, _) = server(409);
    let write = || Write::to(&client, &quota, "write");
    let late = write().patch(patch()).await;
    assert_eq!(late.as_ref().unwrap_err().to_string(), "write");
    assert_eq!(or_event(late).unwrap(), None);
    assert!(write().delete(DeleteParams::default()).await.is_err());
    assert!(write().status(|quota| quota.status = None).await.is_err());
}
