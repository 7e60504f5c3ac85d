//! What joins a client with what runs: exec, attach, port-forward, proxies. Upstream's verb
//! CONNECT.
//!
//! Nothing is written, and all the same admission is asked: the object that it sees, and may
//! change, is the options of the request. What is done afterwards goes by them, not by the URL.
//!
//! Source: `ConnectResource` in `k8s.io/apiserver/pkg/endpoints/handlers/rest.go`,
//! `pkg/registry/core/pod/rest/subresources.go` at v1.37.

use coracle_admission::Operation;
use coracle_api::{percent, status::Status};
use coracle_auth::authz::{Attributes, ResourceTarget, Target};
use coracle_registry::{store::WriteOptions, strategy::Subresource};
use http::{Response, request::Parts};
use serde_json::{Value, json};

use super::stream::{self, location};
use crate::{body::Body, endpoints::Call, query::Query, reply, request_info::Verb};

/// Serves such a request.
pub(super) async fn serve(
    call: &Call<'_>,
    parts: &Parts,
    subresource: Subresource,
) -> Result<Response<Body>, Status> {
    if call.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    if subresource != Subresource::Proxy {
        authorize_create(call).await?;
    }
    let behind = stream::path_behind(call, parts);
    let mut options = options(call, subresource, behind.unwrap_or_default());
    let asked = options["path"].clone();
    let request = call.admission_request(Operation::Connect, WriteOptions::default());
    let warnings = call.server.admit(&request, &mut options, None).await?;
    let mut response = if subresource == Subresource::Proxy {
        // As it was sent, to the letter, unless somebody has made another of it.
        let changed = (options["path"] != asked).then(|| escaped(&options));
        stream::proxy(call, parts, changed.as_deref().or(behind)).await?
    } else {
        stream::upgrade(call, parts, subresource, &options).await?
    };
    reply::warn(response.headers_mut(), &warnings);
    Ok(response)
}

/// WebSockets begin with a GET, so the right to read would be enough to run a command: the right to
/// create is asked for in any case.
///
/// Source: `AuthorizePodWebsocketUpgradeCreatePermission` of
/// `pkg/registry/core/pod/rest/subresources.go` at v1.37.
async fn authorize_create(call: &Call<'_>) -> Result<(), Status> {
    if call.info.verb != Verb::Get {
        return Ok(());
    }
    let target = ResourceTarget {
        group: call.info.group,
        resource: call.info.resource,
        subresource: call.info.subresource,
        namespace: &call.info.namespace,
        name: &call.info.name,
        ..ResourceTarget::default()
    };
    let attributes = Attributes {
        user: call.user,
        verb: Verb::Create.as_str(),
        target: Target::Resource(target),
    };
    if call.server.authorizer.allows(&attributes) {
        return Ok(());
    }
    // Perhaps by a role that was written a moment ago. If the cache cannot follow, the answer is as
    // good as no.
    let _ = call.server.store.cache.catch_up().await;
    call.server.authorizer.authorize(&attributes)
}

/// What the request asks for, as an object: PodExecOptions and the like. `behind` is the path
/// behind a proxy, as it was sent.
fn options(call: &Call<'_>, subresource: Subresource, behind: &str) -> Value {
    let kind = subresource.foreign_kind(&call.resource.info.kind);
    let mut options = json!({"kind": kind.map(|(_, _, kind)| kind), "apiVersion": "v1"});
    match subresource {
        Subresource::Proxy => {
            if !behind.is_empty() {
                options["path"] = percent::decode(behind).into();
            }
        }
        Subresource::Portforward => {
            let ports: Vec<u16> = call
                .query
                .all("ports")
                .flat_map(|list| list.split(','))
                .filter_map(|port| port.parse().ok())
                .collect();
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        _ => fill_command(&mut options, call.query, subresource == Subresource::Exec),
    }
    options
}

/// The fields of exec and attach. As Go writes them: what is false or empty is left out.
fn fill_command(options: &mut Value, query: &Query<'_>, is_exec: bool) {
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(name).unwrap_or(false) {
            options[name] = true.into();
        }
    }
    if let Some(container) = query.text("container") {
        options["container"] = container.into();
    }
    let command: Vec<&str> = query.all("command").collect();
    if is_exec && !command.is_empty() {
        options["command"] = command.into();
    }
}

/// The path that a plugin has chosen, as a URL has it.
fn escaped(options: &Value) -> String {
    let path = options["path"].as_str().unwrap_or_default();
    let segments = path.trim_start_matches('/').split('/');
    let segments: Vec<String> = segments.map(location::escape).collect();
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_the_url_says_and_no_more() {
        let query = Query::parse("command=sh&command=-c&stdout=true&tty=0&container=c");
        let mut options = json!({});
        fill_command(&mut options, &query, true);
        assert_eq!(
            options,
            json!({"stdout": true, "container": "c", "command": ["sh", "-c"]})
        );
        let mut options = json!({});
        fill_command(&mut options, &query, false);
        assert_eq!(options, json!({"stdout": true, "container": "c"}));
    }

    #[test]
    fn a_chosen_path_is_escaped_and_rooted() {
        let check = |path, expect| assert_eq!(escaped(&json!({"path": path})), expect);
        check("/a b/c?d", "/a%20b/c%3Fd");
        check("a/", "/a/");
        check("", "/");
    }
}
