//! The node's HTTPS API on port 10250: logs, exec, attach, port-forward, and what runs here.
//!
//! For the API server only: its client certificate is required on every route. Without one 401,
//! with another identity 403, whatever the route.

mod auth;
mod connection;
mod exec;
mod logs;
mod metrics;
mod port_forward;
mod query;
mod reply;
mod summary;
mod tunnel;
mod usage;
mod websocket;

use std::{sync::Arc, time::Duration};

use coracle_api::kubelet_ca;
use coracle_relay::Connections;
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff, Health};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::PodStatus;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    context::NodeContext,
    join::{self, Purpose, Renewal, keep_renewed},
    pod::PodExt,
    proxy::health::RulesView,
    runtime::types::{ContainerState, ContainerStatus, PodUid},
};
use auth::Acceptor;
use reply::{Body, ReplyError, exposition, json, text};
pub(crate) use usage::Recorder;

/// Most connections; those of nobody in particular go first. As many as the API server takes.
const MOST_CONNECTIONS: usize = 4096;
/// For a certificate and for the port.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// What the server needs.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) ctx: Arc<NodeContext>,
    pub(crate) client: kube::Client,
    pub(crate) ca: CertificateDer<'static>,
    pub(crate) usage: Arc<Recorder>,
    pub(crate) rules: RulesView,
    pub(crate) health: Health,
    pub(crate) connections: Arc<Connections>,
}

/// None yet, and how many there may be.
pub(crate) fn connections() -> Arc<Connections> {
    Connections::new(MOST_CONNECTIONS)
}

/// Why the node's API is not served.
#[derive(Debug, thiserror::Error)]
#[error("set up TLS of the node's API")]
pub(crate) struct ServeError(#[source] auth::AcceptorError);

/// Serves until `shutdown`.
///
/// # Errors
/// The certificates do not do. Others may come: the caller tries again.
pub(crate) async fn run(
    server: ServerContext,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = serve(server, shutdown.clone()) => ended,
    }
}

async fn serve(server: ServerContext, shutdown: CancellationToken) -> Result<(), ServeError> {
    let config = &server.ctx.config;
    let pki = join::pki_dir(config);
    let purpose = || Purpose::serving(&config.node_name, config.node_ip);
    let (identity, listener) = tokio::join!(obtain(&server, purpose(), &pki), listen(&server));
    let acceptor = Acceptor::new(Arc::clone(&identity), server.ca.clone()).map_err(ServeError)?;
    let ctx = Arc::clone(&server.ctx);
    // The view is held for as long as it takes to copy.
    let announced_ca = move || {
        let node = ctx.node.lock().clone()?;
        let pem = node
            .metadata
            .annotations
            .as_ref()?
            .get(kubelet_ca::ANNOTATION)?;
        join::first_certificate(pem.as_bytes())
    };
    let renewal = Renewal {
        client: server.client.clone(),
        pki,
        purpose: purpose(),
        identity,
        announced_ca,
    };
    let connections = Arc::clone(&server.connections);
    let answer = move |request| {
        let server = server.clone();
        async move { route(&server, request).await }
    };
    tokio::join!(
        keep_renewed(renewal, shutdown),
        connection::accept(listener, acceptor, connections, answer)
    );
    Ok(())
}

async fn obtain(
    server: &ServerContext,
    purpose: Purpose,
    pki: &std::path::Path,
) -> Arc<join::Identity> {
    let mut retry = Backoff::of(RETRY);
    loop {
        match purpose.obtain(&server.client, pki).await {
            Ok(identity) => return identity,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot obtain the serving certificate; trying again")
            }
        }
        tokio::time::sleep(retry.pause()).await;
    }
}

async fn listen(server: &ServerContext) -> TcpListener {
    let mut retry = Backoff::of(RETRY);
    loop {
        match TcpListener::bind(server.ctx.config.listen).await {
            Ok(listener) => return listener,
            Err(error) => {
                tracing::warn!(address = %server.ctx.config.listen, error = %ErrorChain(&error), "cannot listen for the node's API; trying again")
            }
        }
        tokio::time::sleep(retry.pause()).await;
    }
}

/// `ok`, or what is unwell, as the API server says it.
fn health(health: &Health) -> Response<Body> {
    let lines = health
        .unwell()
        .into_iter()
        .map(|part| format!("[-]{part} failed: it has died and is started again\n"));
    let wrong: String = lines.collect();
    if wrong.is_empty() {
        return text(StatusCode::OK, "ok");
    }
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        wrong + "healthz check failed\n",
    )
}

async fn route(
    server: &ServerContext,
    request: Request<Incoming>,
) -> Result<Response<Body>, ReplyError> {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let method = request.method().clone();
    match (method.clone(), parts.as_slice()) {
        (Method::GET, ["healthz"]) => Ok(health(&server.health)),
        (Method::GET, ["healthz", "service-rules"]) => Ok(match server.rules.report() {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        }),
        (Method::GET, ["pods" | "runningpods"]) => Ok(pods(server)),
        (Method::GET, ["spec"]) => Ok(json(&summary::spec(server))),
        (Method::GET, ["metrics"]) => Ok(exposition(metrics::agent(server).await)),
        (Method::GET, ["metrics", "resource"]) => Ok(exposition(metrics::resource(server).await)),
        (Method::GET, ["stats", "summary"]) => Ok(json(&summary::stats(server).await)),
        (Method::GET, ["containerLogs", namespace, pod, container]) => {
            logs::serve(server, &request, namespace, pod, container).await
        }
        // As the kubelet, with the pod's UID between or without.
        (
            Method::GET | Method::POST,
            ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container],
        ) => exec::serve(server, request, exec::Verb::Exec, namespace, pod, container).await,
        (
            Method::GET | Method::POST,
            ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container],
        ) => {
            exec::serve(
                server,
                request,
                exec::Verb::Attach,
                namespace,
                pod,
                container,
            )
            .await
        }
        (
            Method::GET | Method::POST,
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _],
        ) => port_forward::serve(server, request, namespace, pod).await,
        _ => Err(ReplyError::new(StatusCode::NOT_FOUND, "404 page not found")),
    }
}

fn pods(server: &ServerContext) -> Response<Body> {
    let pods = server.ctx.pods.read();
    let items: Vec<_> = pods
        .iter()
        .map(|pod| {
            let mut pod = (**pod).clone();
            pod.status = server.ctx.status.get(&pod.uid()).or(pod.status);
            pod
        })
        .collect();
    json(
        &serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}),
    )
}

impl ServerContext {
    /// UID of a pod on this node.
    fn find_pod(&self, namespace: &str, name: &str) -> Result<PodUid, ReplyError> {
        let pods = self.ctx.pods.read();
        let found = pods
            .iter()
            .find(|pod| pod.namespace() == namespace && pod.name() == name);
        found.map(|pod| pod.uid()).ok_or_else(|| {
            ReplyError::new(
                StatusCode::NOT_FOUND,
                format!("pod \"{name}\" not found on this node"),
            )
        })
    }

    /// The instances of a container, newest first.
    async fn find_container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<ContainerStatus>, ReplyError> {
        let uid = self.find_pod(namespace, pod)?;
        let (_, mut containers) = self
            .ctx
            .runtime
            .pod_state(&uid)
            .await
            .map_err(|error| ReplyError::internal(&error))?;
        containers.retain(|status| status.name == container);
        containers.sort_by_key(|status| std::cmp::Reverse((status.attempt, status.created_at)));
        Ok(containers)
    }

    /// What its worker has told of the pod last.
    fn known_status(&self, namespace: &str, pod: &str) -> Option<PodStatus> {
        self.ctx.status.get(&self.find_pod(namespace, pod).ok()?)
    }

    async fn find_running(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<ContainerStatus, ReplyError> {
        let instances = self.find_container(namespace, pod, container).await?;
        let running = instances
            .into_iter()
            .find(|status| matches!(status.state, ContainerState::Running { .. }));
        running.ok_or_else(|| {
            ReplyError::new(
                StatusCode::NOT_FOUND,
                format!("container not found (\"{container}\")"),
            )
        })
    }
}
