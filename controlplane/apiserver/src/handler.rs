//! One request from its parts to its response: authorization, routing, limits; a panic stays in its request.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use coracle_api::{resource::GroupResource, status::Status};
use futures::FutureExt as _;
use http::{Method, Response, header, request::Parts};
use http_body_util::BodyExt as _;

use crate::{
    authn::impersonation,
    authz::{Attributes, admission},
    body::Body,
    encoding::Form,
    endpoints::{self, Call},
    gzip,
    metrics::Observation,
    metrics_api, nonresource,
    query::Query,
    registry::{store::update::Part, strategy::Subresource},
    reply::{self, Reply},
    request_info::{RequestInfo, ResourceRequest, Verb},
    review, route,
    server::ApiServer,
    subresource::{self, stream::messages},
    unstored,
    user::UserInfo,
};

/// Most bytes of a request body.
///
/// Source: `k8s.io/apiserver/pkg/server/config.go`, `MaxRequestBodyBytes`.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;
const RETRY_SECS: u32 = 1;
/// As upstream, `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// For the whole body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers one request. Never fails: failures are answers too.
pub(crate) async fn handle<B>(server: &Arc<ApiServer>, user: Arc<UserInfo>, parts: Parts, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let mut seen = Observation::new(&server.metrics, &parts.method);
    let answer = AssertUnwindSafe(route(server, user, &parts, body, &mut seen)).catch_unwind().await;
    let response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => reply::failure(&status),
        Err(_) => {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request panicked");
            reply::failure(&Status::internal("the request panicked; the server's log has more"))
        }
    };
    let response = match Form::of(&parts) {
        Some(form) => Box::pin(form.applied(response)).await,
        None => response,
    };
    let response = gzip::compressed(&parts.method, &parts.headers, response);
    let response = if parts.method == Method::HEAD { reply::without_body(response) } else { response };
    seen.finish(response)
}

async fn route<B>(
    server: &Arc<ApiServer>,
    user: Arc<UserInfo>,
    parts: &Parts,
    body: B,
    seen: &mut Observation<'_>,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let request = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    route::check(&server.registry, &request)?;
    let permit = if is_exempt(&request) {
        None
    } else {
        let permit = server.in_flight.try_acquire();
        seen.is_in_flight(parts.method.is_safe());
        Some(permit.map_err(|_| Status::too_many_requests(RETRY_SECS))?)
    };
    // What may last has no deadline.
    let timeout = permit.is_some().then(|| query.timeout(REQUEST_TIMEOUT)).transpose()?;
    let user = impersonation::effective(server, user, &parts.headers)?;
    let attributes = Attributes::of_request(&user, &parts.method, &request, &query);
    if !server.authorizer.allows(&attributes) {
        // Perhaps by a role that was written a moment ago. If the cache cannot follow, the answer is as good as no.
        let _ = server.store.cache.catch_up().await;
        server.authorizer.authorize(&attributes)?;
    }
    let info = match &request {
        RequestInfo::NonResource { path } => return nonresource::serve(server, parts, path, &query),
        RequestInfo::Resource(info) => info,
    };
    if let Some(kind) = review::kind(info) {
        let body = read_body(parts, body).await?;
        let answer = Box::pin(review::create(server, &user, info, kind, &parts.headers, &body)).await;
        return answer.map(Reply::into_response);
    }
    if let Some(about) = metrics_api::find(info) {
        seen.is_about(info, about);
        return Box::pin(metrics_api::serve(server, info, &query, about)).await.map(Reply::into_response);
    }
    if let Some(about) = unstored::find(info) {
        seen.is_about(info, about);
        let body = if info.verb.is_read() { Bytes::new() } else { read_body(parts, body).await? };
        let request = unstored::Request { server, user: &user, info, query: &query, headers: &parts.headers, body };
        return Box::pin(unstored::serve(request, about)).await.map(Reply::into_response);
    }
    let resource = server.registry.get(info.group, info.version, info.resource).ok_or_else(Status::no_such_path)?;
    seen.is_about(info, resource.info);
    let body = if info.verb.is_read() { Bytes::new() } else { read_body(parts, body).await? };
    let call = Call { server, user: &user, resource, info, query: &query, headers: &parts.headers, body };
    let Some(timeout) = timeout else { return dispatch(&call, parts).await };
    match tokio::time::timeout(timeout, dispatch(&call, parts)).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::timeout("request did not complete within the allotted timeout", RETRY_SECS)),
    }
}

async fn dispatch(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    if admission::concerns(call) {
        Box::pin(admission::check_request(call)).await?;
    }
    if call.info.subresource.is_empty() {
        let reply = main_resource(call).await?;
        if call.info.verb == Verb::Watch && messages::is_asked(&parts.headers) {
            return messages::watch(call.server, parts, reply.body);
        }
        return Ok(reply.deprecating(call.resource.info.deprecated).into_response());
    }
    subresource::serve(call, parts).await
}

async fn main_resource(call: &Call<'_>) -> Result<Reply, Status> {
    let verb = call.info.verb;
    if !call.resource.info.verbs.contains(&verb.as_str()) {
        return Err(unsupported(call));
    }
    match verb {
        // Large futures are boxed: the common path stays small.
        Verb::Get => endpoints::get::get(call).await,
        Verb::List => Box::pin(endpoints::list::list(call)).await,
        Verb::Watch => Box::pin(endpoints::watch::watch(call)).await,
        Verb::Create if !call.info.is_named && has_place(call) => Box::pin(endpoints::create::create(call)).await,
        Verb::Update if !call.info.name.is_empty() => Box::pin(endpoints::update::update(call, Part::Main)).await,
        Verb::Patch if !call.info.name.is_empty() => Box::pin(endpoints::patch::patch(call, Part::Main)).await,
        Verb::Delete => Box::pin(endpoints::delete::delete(call)).await,
        Verb::DeleteCollection if has_place(call) => Box::pin(endpoints::delete::delete_collection(call)).await,
        _ => Err(unsupported(call)),
    }
}

/// Whether the URL says where objects are to be: what is in namespaces is only read in all of them at once.
fn has_place(call: &Call<'_>) -> bool {
    call.info.in_namespace || !call.resource.is_namespaced()
}

pub(crate) fn unsupported(call: &Call<'_>) -> Status {
    let resource = GroupResource::new(call.info.group, call.info.resource_path());
    Status::method_not_supported(&resource, call.info.verb.as_str())
}

/// Whether a request is not counted among those in flight: it may last, or asks how the server is.
fn is_exempt(request: &RequestInfo<'_>) -> bool {
    match request {
        RequestInfo::Resource(info) => is_long_running(info),
        RequestInfo::NonResource { path } => {
            ["/healthz", "/livez", "/readyz"].iter().any(|health| path.starts_with(health))
        }
    }
}

/// Whether a request may last.
fn is_long_running(info: &ResourceRequest<'_>) -> bool {
    info.verb == Verb::Watch
        || [Subresource::Log, Subresource::Exec, Subresource::Attach, Subresource::Portforward, Subresource::Proxy]
            .iter()
            .any(|subresource| subresource.name() == info.subresource)
}

async fn read_body<B>(parts: &Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    match tokio::time::timeout(BODY_TIMEOUT, gather(parts, body)).await {
        Ok(body) => body,
        Err(_) => Err(Status::timeout("the request body did not arrive in time", RETRY_SECS)),
    }
}

async fn gather<B>(parts: &Parts, mut body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let too_large = || Status::request_entity_too_large(BODY_LIMIT);
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::bad_request("unable to read the request body"))?;
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > BODY_LIMIT {
            return Err(too_large());
        }
        // Bodies of one frame, nearly all, are not copied.
        match first.take() {
            None if gathered.is_empty() => first = Some(data),
            None => gathered.extend_from_slice(&data),
            Some(start) => {
                gathered.reserve(start.len() + data.len());
                gathered.extend_from_slice(&start);
                gathered.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| gathered.freeze()))
}
