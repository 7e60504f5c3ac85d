//! A definition whose versions a webhook over TLS turns into one another.

use std::net::SocketAddr;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use super::*;

const WIDGETS_V2: &str = "/apis/example.org/v2/namespaces/default/widgets";

/// What a webhook shows, and who vouches for it.
struct Identity {
    tls: TlsAcceptor,
    bundle: String,
}

fn identity() -> Identity {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key)
        .unwrap();
    Identity {
        tls: TlsAcceptor::from(Arc::new(config)),
        bundle: BASE64_STANDARD.encode(pem),
    }
}

/// A webhook that listens for as long as it is not ended.
async fn listen(identity: &Identity, address: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, tls) = (listener.local_addr().unwrap(), identity.tls.clone());
    let serving = async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            coracle_telemetry::spawn_in(&mut connections, "connection", async move {
                if let Ok(stream) = tls.accept(stream).await {
                    let serving = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(convert));
                    drop(serving.await);
                }
            });
        }
    };
    (address, coracle_telemetry::spawn("webhook", serving))
}

/// The size of v1 is the `length` of v2.
async fn convert(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(request.uri(), "/convert?timeout=30s");
    let body = request.into_body().collect().await?.to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let mut request = review["request"].take();
    let mut objects = request["objects"].take();
    for object in objects.as_array_mut().unwrap() {
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        let spec = object["spec"].as_object_mut().unwrap();
        let (from, to) = match request["desiredAPIVersion"] == "example.org/v2" {
            true => ("size", "length"),
            false => ("length", "size"),
        };
        if let Some(value) = spec.remove(from) {
            spec.insert(to.to_owned(), value);
        }
    }
    let answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
    Ok(Response::new(Full::new(answer.to_string().into())))
}

fn of_two_versions(address: SocketAddr, identity: &Identity) -> Value {
    let mut definition = definition(json!({"type": "integer"}));
    let spec = json!({"type": "object", "properties": {
        "length": {"type": "integer"}, "mode": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let second = json!({"name": "v2", "served": true, "storage": false,
        "schema": {"openAPIV3Schema": schema}});
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(second);
    definition["spec"]["names"]["listKind"] = "Shelf".into();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://{address}/convert"), "caBundle": identity.bundle}}});
    definition
}

#[tokio::test]
async fn a_webhook_that_goes_and_comes_is_asked_over_tls() {
    let identity = identity();
    let (address, webhook) = listen(&identity, ([127, 0, 0, 1], 0).into()).await;
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, of_two_versions(address, &identity)).await;
    let (code, made) = admin.post(WIDGETS, widget("a", json!({"size": 3}))).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{WIDGETS_V2}/a");
    let (code, found) = admin.get(&path).await;
    assert_eq!(
        (code, &found["spec"]["length"]),
        (200, &json!(3)),
        "{found}"
    );
    let (_, list) = admin.get(WIDGETS_V2).await;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("Shelf"), &json!("Widget"))
    );
    let (code, patched) = admin.merge(&path, json!({"spec": {"length": 4}})).await;
    assert_eq!(
        (code, &patched["spec"]["length"]),
        (200, &json!(4)),
        "{patched}"
    );
    assert_eq!(
        admin.get(&format!("{WIDGETS}/a")).await.1["spec"]["size"],
        4
    );
    webhook.abort();
    drop(webhook.await);
    let (code, refused) = admin.merge(&path, json!({"spec": {"length": 5}})).await;
    let told = format!(
        "conversion webhook for example.org/v1, Kind=Widget failed: Post \"https://{address}/convert?timeout=30s\": "
    );
    let message = refused["message"].as_str().unwrap();
    assert_eq!((code, message.starts_with(&told)), (500, true), "{message}");
    let (_, webhook) = listen(&identity, address).await;
    let (code, patched) = admin.merge(&path, json!({"spec": {"length": 5}})).await;
    assert_eq!(
        (code, &patched["spec"]["length"]),
        (200, &json!(5)),
        "{patched}"
    );
    // It goes with nobody to convert what is stored.
    webhook.abort();
    let name = format!("{DEFINITIONS}/widgets.example.org");
    assert_eq!(admin.delete(&name, json!({})).await.0, 200);
    until(admin, &name, |code, _| code == 404).await;
}
