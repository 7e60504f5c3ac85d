//! Streams from the node: logs, exec, attach, port-forward, and proxies.
//!
//! What the client may ask is decided here; the bytes are the node agent's, relayed as they come.
//! Nodes speak one form only, the channels of WebSockets (ADR 2): what clients speak besides is
//! translated here.
//!
//! Source: `pkg/registry/core/pod/strategy.go` (`LogLocation`, `streamLocation`) at v1.37.

pub(crate) mod carrier;
mod identity;
pub(crate) mod location;
pub(crate) mod messages;
mod negotiate;
pub(crate) mod node;
mod port_forward;
mod proxy;
mod relayed_headers;
mod remote_command;
pub(crate) mod spdy;

use std::{sync::Arc, time::Duration};

use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Status},
};
use coracle_registry::strategy::Subresource;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Response, StatusCode, request::Parts};
use hyper::upgrade::OnUpgrade;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    body::Body,
    endpoints::Call,
    reply::{Reply, TEXT},
};
pub(crate) use identity::tls_config as node_tls_config;
use negotiate::Form;
use port_forward::Pod;
pub(crate) use proxy::connect_to_service;
pub(super) use proxy::{path_behind, serve as proxy};
use remote_command::Expected;
use spdy::session::{self, Stream};

/// For the client to take the answer to its upgrade.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// `pods/log`.
pub(super) async fn log(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    check_log_options(call)?;
    let socket = messages::is_asked(&parts.headers)
        .then(|| messages::of_log(&parts.headers))
        .transpose()?;
    let pod = pod(call).await?;
    let container = location::container(&pod, call.query.text("container"))?;
    let Some(agent) = location::agent_of(call.server, &pod).await? else {
        // As upstream: a pod that is on no node yet has said nothing, which is no failure.
        return Ok(Reply::new(StatusCode::NO_CONTENT, "", Body::Empty).into_response());
    };
    let parameters = [
        "follow",
        "previous",
        "sinceSeconds",
        "sinceTime",
        "timestamps",
        "tailLines",
        "limitBytes",
        "stream",
        "insecureSkipTLSVerifyBackend",
    ];
    let path = location::path("containerLogs", call, Some(&container));
    let target = location::Target {
        agent,
        path_and_query: location::with_query(&path, call.query, &parameters),
    };
    let response = node::get(call.server, &target).await?;
    if response.status() == StatusCode::OK {
        let body = node::stream_body(response.into_body());
        if let Some(form) = socket {
            return messages::send(call.server, parts, body, form);
        }
        return Ok(Reply::new(StatusCode::OK, TEXT, body).into_response());
    }
    Err(node::failure(response).await)
}

/// `pods/exec`, `pods/attach`, `pods/portforward`, as `options` say.
pub(super) async fn upgrade(
    call: &Call<'_>,
    parts: &Parts,
    subresource: Subresource,
    options: &Value,
) -> Result<Response<Body>, Status> {
    let pod = pod(call).await?;
    let (verb, container, query) = match subresource {
        Subresource::Portforward => ("portForward", None, port_query(options)),
        _ => {
            let is_exec = subresource == Subresource::Exec;
            check_stream_options(options, is_exec, &pod)?;
            let container = location::container(&pod, options["container"].as_str())?;
            (
                if is_exec { "exec" } else { "attach" },
                Some(container),
                location::stream_query(options, is_exec),
            )
        }
    };
    let Some(agent) = location::agent_of(call.server, &pod).await? else {
        return Err(Status::bad_request(format!(
            "pod {} does not have a host assigned",
            call.info.name
        )));
    };
    let form = negotiate::form(&parts.headers, subresource)?;
    let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
        return Err(Status::bad_request("this connection cannot be upgraded"));
    };
    let mut path_and_query = location::path(verb, call, container.as_deref());
    if !query.is_empty() {
        path_and_query = format!("{path_and_query}?{query}");
    }
    let target = location::Target {
        agent: agent.clone(),
        path_and_query,
    };
    if form == Form::Channels {
        return node::relay_upgrade(call.server, parts, client, &target).await;
    }
    let serve: BoxedServe = if subresource == Subresource::Portforward {
        let (server, namespace, name) = (
            Arc::clone(call.server),
            call.info.namespace.to_string(),
            call.info.name.to_string(),
        );
        let pod = Pod {
            agent,
            namespace,
            name,
        };
        Box::new(|streams| port_forward::serve(server, pod, streams).boxed())
    } else {
        let expected = Expected::of(options);
        // First: what the node refuses is an answer, not a stream.
        let node = node::websocket(call.server, &target, "v5.channel.k8s.io").await?;
        Box::new(move |streams| remote_command::translate(node, streams, expected).boxed())
    };
    let answer = negotiate::agree(form, &parts.headers)?;
    let shutdown = call.server.shutdown.clone();
    coracle_telemetry::spawn("stream", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = speak(client, form, serve) => {}
        }
    });
    Ok(answer)
}

type BoxedServe = Box<dyn FnOnce(mpsc::Receiver<Stream>) -> BoxFuture<'static, ()> + Send>;

/// Speaks SPDY with a client, once the upgrade is through.
async fn speak(client: OnUpgrade, form: Form, serve: BoxedServe) {
    let upgraded = match tokio::time::timeout(UPGRADE_TIMEOUT, client).await {
        Ok(Ok(upgraded)) => upgraded,
        _ => return,
    };
    let (incoming, outgoing) = match form {
        Form::Tunnel => carrier::tunnelled(upgraded).await,
        _ => carrier::plain(upgraded),
    };
    let (streams, session) = session::serve(incoming, outgoing);
    tokio::join!(session, serve(streams));
}

async fn pod(call: &Call<'_>) -> Result<Value, Status> {
    let key = call.resource.key(&call.info.namespace, &call.info.name);
    let current = call.server.store.current(call.resource, &key).await?;
    let not_found = || Status::not_found(&call.resource.group_resource, &call.info.name);
    current.map(|current| current.object).ok_or_else(not_found)
}

fn check_log_options(call: &Call<'_>) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    let query = call.query;
    for (field, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(number) = query.integer(field)?.filter(|number| *number < least) {
            errors.invalid(field, &json!(number), why);
        }
    }
    if let Some(time) = query.text("sinceTime") {
        if query.text("sinceSeconds").is_some() {
            errors.forbidden(
                "",
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            );
        }
        if meta::parse_time(time).is_none() {
            errors.invalid("sinceTime", &json!(time), "must be a time as in RFC 3339");
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &Gvk::new("", "v1", "PodLogOptions"),
        &call.info.name,
        errors,
    ))
}

fn check_stream_options(options: &Value, is_exec: bool, pod: &Value) -> Result<(), Status> {
    let set = |name: &str| options[name] == true;
    if !set("stdin") && !set("stdout") && !set("stderr") {
        return Err(Status::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    if set("tty") && set("stderr") && !set("stdout") {
        return Err(Status::bad_request("tty and stderr cannot both be true"));
    }
    if is_exec && meta::get_array(options, &["command"]).is_empty() {
        return Err(Status::bad_request(
            "you must specify at least one command for the container",
        ));
    }
    let phase = meta::get_str(pod, &["status", "phase"]);
    if matches!(phase, "Succeeded" | "Failed") {
        let message =
            format!("cannot exec into a container in a completed pod; current phase is {phase}");
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// The ports as the node takes them.
fn port_query(options: &Value) -> String {
    let ports = meta::get_array(options, &["ports"]).iter();
    let ports: Vec<String> = ports.map(|port| format!("port={port}")).collect();
    ports.join("&")
}
