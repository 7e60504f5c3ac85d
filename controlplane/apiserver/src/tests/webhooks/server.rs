//! A webhook on loopback that does what a test says.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What comes back for a review.
#[derive(Clone)]
pub(in crate::tests) enum Reply {
    /// `response`, with the UID that was asked.
    Says(Value),
    /// Code and body.
    Raw(u16, Bytes),
    /// Leads elsewhere.
    Redirects,
    /// Nothing, ever.
    Hangs,
    /// Lets it pass after so long.
    Late(Duration),
}

type Answers = dyn Fn(&Value) -> Reply + Send + Sync;

/// One that listens, and what it was asked.
pub(in crate::tests) struct Hook {
    pub(in crate::tests) address: SocketAddr,
    ca_bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// Answers as `answer` says of the request of each review.
    pub(in crate::tests) async fn start(
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asked = Arc::<Mutex<Vec<Value>>>::default();
        let hook = Self {
            address: listener.local_addr().unwrap(),
            ca_bundle: BASE64_STANDARD.encode(certificate.pem()),
            asked: Arc::clone(&asked),
        };
        let answer: Arc<Answers> = Arc::new(answer);
        coracle_telemetry::spawn("webhook", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, asked, answer) =
                    (acceptor.clone(), Arc::clone(&asked), Arc::clone(&answer));
                coracle_telemetry::spawn("connection to a webhook", async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let serve = |request| respond(request, Arc::clone(&asked), Arc::clone(&answer));
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(serve))
                        .await;
                });
            }
        });
        hook
    }

    /// Answers all alike.
    pub(in crate::tests) async fn that(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    /// Lets everything pass.
    pub(in crate::tests) async fn allowing() -> Self {
        Self::that(Reply::Says(json!({"allowed": true}))).await
    }

    /// How a server finds it by a file.
    pub(in crate::tests) fn kubeconfig(&self) -> String {
        let cluster = json!({"server": format!("https://{}/images", self.address),
            "certificate-authority-data": self.ca_bundle});
        let config = json!({"clusters": [{"name": "a", "cluster": cluster}], "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "a"}}]});
        config.to_string()
    }

    /// The requests of the reviews so far; of those that have none, the reviews.
    pub(in crate::tests) fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }

    /// As a configuration has it, about new ConfigMaps of the namespace `default`; with these
    /// changes.
    pub(in crate::tests) fn webhook(&self, name: &str, changes: Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.example.org"),
            "clientConfig": {"url": format!("https://{}/{name}", self.address), "caBundle": self.ca_bundle},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        });
        for (field, value) in changes.as_object().unwrap() {
            webhook[field] = value.clone();
        }
        webhook
    }
}

/// A response that has a patch.
pub(in crate::tests) fn patch(operations: Value) -> Reply {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    Reply::Says(json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
}

async fn respond(
    request: Request<Incoming>,
    asked: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Answers>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let shown = request.headers().get(header::AUTHORIZATION).cloned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let mut request = review.get("request").unwrap_or(&review).clone();
    if let Some(shown) = shown {
        request["authorization"] = shown.to_str().unwrap().into();
    }
    asked.lock().unwrap().push(request.clone());
    let respond = |code: u16, body: Bytes| {
        let response = Response::builder().status(code);
        let response = response.header(header::CONTENT_TYPE, "application/json");
        response.body(Full::new(body)).unwrap()
    };
    let mut reply = answer(&request);
    if let Reply::Late(after) = reply {
        tokio::time::sleep(after).await;
        reply = Reply::Says(json!({"allowed": true}));
    }
    Ok(match reply {
        Reply::Hangs | Reply::Late(_) => std::future::pending().await,
        Reply::Raw(code, body) => respond(code, body),
        Reply::Redirects => {
            let mut response = respond(307, Bytes::new());
            let elsewhere = "https://127.0.0.1:1/".parse().unwrap();
            response.headers_mut().insert(header::LOCATION, elsewhere);
            response
        }
        Reply::Says(mut response) => {
            if response.is_object() && response["uid"].is_null() {
                response["uid"] = request["uid"].clone();
            }
            let answer = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview",
                "response": response});
            respond(200, answer.to_string().into())
        }
    })
}
