//! Streams from the node: logs, exec, attach, port-forward, and the node's own API.
//!
//! What the client may ask is decided here; the bytes are the node agent's, relayed as they come.
//!
//! Source: `pkg/registry/core/pod/strategy.go` (`LogLocation`, `streamLocation`) at v1.37.

mod location;
mod node;

use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Reason, Status},
};
use http::{Response, StatusCode, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use serde_json::{Value, json};

use crate::{
    body::Body,
    endpoints::Call,
    query::Query,
    registry::strategy::Subresource,
    reply::{Reply, TEXT},
};
use location::Target;
pub(crate) use node::tls_config as node_tls_config;

/// `pods/log`.
pub(super) async fn log(call: &Call<'_>) -> Result<Response<Body>, Status> {
    check_log_options(call)?;
    let pod = pod(call).await?;
    let container = location::container(&pod, call.query.text("container"))?;
    let Some(node) = location::node_of(call, &pod).await? else {
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
    let target = Target { node, path_and_query: location::with_query(&path, call.query, &parameters) };
    let response = node::get(call.server, &target).await?;
    if response.status() == StatusCode::OK {
        let body = node::stream_body(response.into_body());
        return Ok(Reply::new(StatusCode::OK, TEXT, body).into_response());
    }
    Err(node::failure(response).await)
}

/// `pods/exec`, `pods/attach`, `pods/portforward`.
pub(super) async fn upgrade(
    call: &Call<'_>,
    parts: &Parts,
    subresource: Subresource,
) -> Result<Response<Body>, Status> {
    let pod = pod(call).await?;
    let (verb, container, query) = match subresource {
        Subresource::Portforward => ("portForward", None, port_query(call.query)),
        _ => {
            let is_exec = subresource == Subresource::Exec;
            check_stream_options(call, is_exec, &pod)?;
            let container = location::container(&pod, call.query.text("container"))?;
            (if is_exec { "exec" } else { "attach" }, Some(container), location::stream_query(call.query, is_exec))
        }
    };
    let Some(node) = location::node_of(call, &pod).await? else {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", call.info.name)));
    };
    if !parts.headers.contains_key(header::UPGRADE) {
        return Err(Status::bad_request("unable to upgrade: missing upgrade headers in request"));
    }
    let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
        return Err(Status::bad_request("this connection cannot be upgraded"));
    };
    let mut path_and_query = location::path(verb, call, container.as_deref());
    if !query.is_empty() {
        path_and_query = format!("{path_and_query}?{query}");
    }
    node::relay_upgrade(call.server, parts, client, &Target { node, path_and_query }).await
}

/// `nodes/proxy`, reading only.
pub(super) async fn node_proxy(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    let node = location::node(call, &call.info.name).await?;
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = Target { node, path_and_query: format!("/{}{query}", call.info.rest) };
    let response = node::get(call.server, &target).await?;
    let mut relayed = Response::builder().status(response.status());
    if let Some(kind) = response.headers().get(header::CONTENT_TYPE) {
        relayed = relayed.header(header::CONTENT_TYPE, kind);
    }
    if response.status().is_redirection() {
        return Err(Status::new(502, Reason::InternalError, "the node answered with a redirect"));
    }
    relayed.body(node::stream_body(response.into_body())).map_err(Status::internal)
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
            errors.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified");
        }
        if meta::parse_time(time).is_none() {
            errors.invalid("sinceTime", &json!(time), "must be a time as in RFC 3339");
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&Gvk::new("", "v1", "PodLogOptions"), &call.info.name, errors))
}

fn check_stream_options(call: &Call<'_>, is_exec: bool, pod: &Value) -> Result<(), Status> {
    let set = |name: &str| call.query.flag(name).unwrap_or(false);
    if !set("stdin") && !set("stdout") && !set("stderr") {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if set("tty") && set("stderr") && !set("stdout") {
        return Err(Status::bad_request("tty and stderr cannot both be true"));
    }
    if is_exec && call.query.all("command").next().is_none() {
        return Err(Status::bad_request("you must specify at least one command for the container"));
    }
    let phase = meta::get_str(pod, &["status", "phase"]);
    if matches!(phase, "Succeeded" | "Failed") {
        let message = format!("cannot exec into a container in a completed pod; current phase is {phase}");
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// `ports=80,81` and `ports=80&ports=81` of the channel form, as the node takes them.
fn port_query(query: &Query<'_>) -> String {
    let ports: Vec<String> = query
        .all("ports")
        .flat_map(|list| list.split(','))
        .filter(|port| port.parse::<u16>().is_ok())
        .map(|port| format!("port={port}"))
        .collect();
    ports.join("&")
}
