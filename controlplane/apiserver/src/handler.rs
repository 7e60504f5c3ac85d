//! One request from its parts to its response: who asks and whether they may, routing, limits; a
//! panic stays in its request.

mod incoming;

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_auth::authn::impersonation;
use coracle_registry::{part::Part, store::cache_status, strategy::Subresource};
use coracle_store::Revision;
use futures::FutureExt as _;
use http::{Method, Response, StatusCode, request::Parts};
use tracing::Instrument as _;

use crate::{
    body::{Body, Held},
    catalog::{self, Catalog, Serving},
    encoding::Form,
    endpoints::{self, Call},
    gzip,
    limits::{RETRY_SECS, Requester, Seat},
    metrics::Observation,
    nonresource,
    progress::PATIENCE,
    query::Query,
    reply::{self, Reply},
    request_info::{RequestInfo, ResourceRequest, Verb},
    route,
    source::Source,
    state::State,
    subresource::{self, stream::messages},
    weight::weight,
};

/// As upstream, `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Logs and pages behind proxies may be read slowly, as by somebody who scrolls.
const SLOW_READER: Duration = Duration::from_secs(15 * 60);

/// Answers one request. Never fails: failures are answers too.
pub(crate) async fn handle<B>(
    server: &Arc<State>,
    source: Source,
    parts: Parts,
    mut body: B,
) -> Response<Held>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let mut seen = Observation::new(&server.metrics, &parts);
    let mut course = Course::default();
    let span = seen.span().clone();
    let answer = {
        // Pinned where it is: it is large, and what is wrapped around it would move it.
        let routed = pin!(route(
            server,
            &source,
            &parts,
            &mut body,
            &mut seen,
            &mut course
        ));
        AssertUnwindSafe(routed.instrument(span))
            .catch_unwind()
            .await
    };
    let response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => reply::failure(&status),
        Err(_) => {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request panicked");
            reply::failure(&Status::internal(
                "the request panicked; the server's log has more",
            ))
        }
    };
    // In this order, for HEAD to be answered with the headers of the text that it does not get.
    let response = match Form::of(&parts) {
        Some(form) => Box::pin(form.applied(response)).await,
        None => response,
    };
    let response = gzip::compressed(&parts.method, &parts.headers, response);
    let response = if parts.method == Method::HEAD {
        reply::without_body(response)
    } else {
        response
    };
    let response = seen.finish(response);
    match (response.status(), source.connection(), &mut course.seat) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(connection), seat) => {
            seat.take()
                .into_iter()
                .for_each(|seat| connection.is_upgraded(seat));
        }
        // A stranger's connection may end for it.
        _ if course.is_known => incoming::discard(&server.limits, &parts, &mut body).await,
        _ => {}
    }
    let patience = course
        .patience
        .filter(|_| response.status() == StatusCode::OK);
    response.map(|body| Held::new(body, course.seat, source.progress(), patience))
}

/// What became of a request on its way.
#[derive(Default)]
struct Course {
    /// Its sender is somebody.
    is_known: bool,
    /// Kept until the answer has gone.
    seat: Option<Seat>,
    /// Of an answer without an end: how long each piece may take.
    patience: Option<Duration>,
}

async fn route<B>(
    server: &Arc<State>,
    source: &Source,
    parts: &Parts,
    body: &mut B,
    seen: &mut Observation<'_>,
    course: &mut Course,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let request = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let user = source
        .authenticate(&server.authenticator, &server.limits, &parts.headers)
        .await?;
    let requester = server.limits.requester(&user, source.is_part());
    if !server.authenticator.is_anonymous(&user) {
        source.is_somebody(&server.limits, requester)?;
        course.is_known = true;
    }
    let catalog = server.catalog.now();
    let serving = serving(&catalog, &request)?;
    let user = impersonation::effective(&server.authorizer, user, &parts.headers)?;
    let attributes = request.attributes(&user, &parts.method, &query);
    if !server.authorizer.allows(&attributes) {
        // Perhaps by a role that was written a moment ago. If the cache cannot follow, the answer
        // is as good as no.
        let _seat = server.limits.waiting_seat(requester)?;
        let _ = server.store.cache.catch_up().await;
        server.authorizer.authorize(&attributes)?;
    }
    let reads = parts.method.is_safe();
    let info = match &request {
        RequestInfo::NonResource { path } => {
            if !is_health(path) {
                seen.is_in_flight(reads);
                course.seat = Some(server.limits.seat(requester, &request, reads).await?);
            }
            return nonresource::serve(server, parts, path, &query);
        }
        RequestInfo::Resource(info) => info,
    };
    let serving = serving.ok_or_else(Status::no_such_path)?;
    seen.is_about(info, serving.info());
    let read = if !info.verb.is_read() {
        let _reading = server.limits.reading_seat(requester)?;
        incoming::read(parts, body, server.limits.room(requester)).await?
    } else {
        incoming::Read::default()
    };
    wait_for_revision(server, requester, info, &query).await?;
    let headers = &parts.headers;
    let call = catalog::Call {
        server,
        user: &user,
        requester,
        resource: (),
        info,
        query: &query,
        headers,
        body: read.bytes.clone(),
    };
    let answer = answer(serving, call, parts);
    if is_long_running(info) {
        course.seat = server.limits.lasting_seat(requester)?;
        course.patience = Some(if info.verb == Verb::Watch {
            PATIENCE
        } else {
            SLOW_READER
        });
        return answer.await;
    }
    seen.is_in_flight(reads);
    course.seat = Some(server.limits.seat(requester, &request, reads).await?);
    let timeout = query.timeout(REQUEST_TIMEOUT)?;
    let weight = weight(serving, info, headers, &read.bytes);
    let timely = async {
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::timeout(
                "request did not complete within the allotted timeout",
                RETRY_SECS,
            )),
        }
    };
    server.limits.worked_on(requester, weight, timely).await
}

/// Who serves what a request is about, if it is about a resource that somebody serves. A kind that
/// is not known is left to others: who may not ask is told so first.
///
/// # Errors
/// 404 for a path that the resource does not have, as for any that is none.
fn serving<'a>(
    catalog: &'a Catalog<State>,
    request: &RequestInfo<'_>,
) -> Result<Option<&'a Serving<State>>, Status> {
    let RequestInfo::Resource(request) = request else {
        return Ok(None);
    };
    match catalog.find(request.group, request.version, request.resource) {
        Some(serving) if !route::exists(serving.info(), request) => Err(Status::no_such_path()),
        serving => Ok(serving),
    }
}

/// Waits for the revision that a read asks for, if it is not there yet, without a seat among those
/// that are served.
async fn wait_for_revision(
    server: &State,
    requester: Requester,
    info: &ResourceRequest<'_>,
    query: &Query<'_>,
) -> Result<(), Status> {
    let cache = &server.store.cache;
    let asked = query
        .text("resourceVersion")
        .filter(|_| info.verb.is_read())
        .and_then(|text| text.parse().ok());
    match asked
        .map(Revision)
        .filter(|revision| *revision > cache.revision())
    {
        Some(revision) => {
            let _seat = server.limits.waiting_seat(requester)?;
            cache.wait_for(revision).await.map_err(cache_status)
        }
        None => Ok(()),
    }
}

/// Who answers a request: `serving`, if it says so.
async fn answer(
    serving: &Serving<State>,
    call: catalog::Call<'_, State>,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    match serving {
        Serving::Virtual(resource) => resource.serve(call).await.map(Reply::into_response),
        Serving::Stored(resource) => dispatch(&call.to(resource), parts).await,
    }
}

async fn dispatch(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    if call.info.subresource.is_empty() {
        let reply = main_resource(call).await?;
        if call.info.verb == Verb::Watch && messages::is_asked(&parts.headers) {
            return messages::watch(call.server, parts, reply.body);
        }
        return Ok(reply
            .deprecating(&call.resource.info.deprecated)
            .into_response());
    }
    subresource::serve(call, parts).await
}

async fn main_resource(call: &Call<'_>) -> Result<Reply, Status> {
    let verb = call.info.verb;
    if !call.resource.info.has_verb(verb.as_str()) {
        return Err(call.unsupported());
    }
    match verb {
        // Large futures are boxed: the common path stays small.
        Verb::Get => endpoints::get::get(call).await,
        Verb::List => Box::pin(endpoints::list::list(call)).await,
        Verb::Watch => Box::pin(endpoints::watch::watch(call)).await,
        Verb::Create if !call.info.is_named && has_place(call) => {
            Box::pin(endpoints::create::create(call)).await
        }
        Verb::Update if !call.info.name.is_empty() => {
            Box::pin(endpoints::update::update(call, Part::Main)).await
        }
        Verb::Patch if !call.info.name.is_empty() => {
            Box::pin(endpoints::patch::patch(call, Part::Main)).await
        }
        Verb::Delete => Box::pin(endpoints::delete::delete(call)).await,
        Verb::DeleteCollection if has_place(call) => {
            Box::pin(endpoints::delete::delete_collection(call)).await
        }
        _ => Err(call.unsupported()),
    }
}

/// Whether the URL says where objects are to be: what is in namespaces is only read in all of them
/// at once.
fn has_place(call: &Call<'_>) -> bool {
    call.info.in_namespace || !call.resource.is_namespaced()
}

/// Whether a path asks how the server is: always told.
fn is_health(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|health| path.starts_with(health))
}

/// Whether a request may last.
fn is_long_running(info: &ResourceRequest<'_>) -> bool {
    info.verb == Verb::Watch
        || [
            Subresource::Log,
            Subresource::Exec,
            Subresource::Attach,
            Subresource::Portforward,
            Subresource::Proxy,
        ]
        .iter()
        .any(|subresource| subresource.name() == info.subresource)
}
