//! One request from its parts to its response: who asks and whether they may, routing, limits; a
//! panic stays in its request.

mod dispatch;
mod incoming;

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_auth::{authn::impersonation, user::UserInfo};
use coracle_registry::{store::cache_status, strategy::Subresource};
use coracle_store::Revision;
use futures::FutureExt as _;
use http::{Method, Response, StatusCode, request::Parts};
use tracing::Instrument as _;

use crate::{
    backup,
    body::{Body, Held},
    catalog::{self, Catalog, Serving},
    connection::Connection,
    definitions, encoding, gzip, joining,
    limits::{Limits, RETRY_SECS, Requester, Seat, Turns},
    metrics::Observation,
    nonresource,
    progress::PATIENCE,
    query::Query,
    reply,
    request_info::{RequestInfo, ResourceRequest, Verb},
    route,
    slow::{self, Step, Timing},
    source::Source,
    state::State,
    weight::weight,
};

/// As upstream, `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// By then a request has been answered that waits for nobody.
const SOON: Duration = Duration::from_secs(1);
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
    let mut seen = Observation::new(&server.metrics, &server.slow, &parts);
    let mut state = RequestState::default();
    let span = seen.span().clone();
    let (answer, spent) = {
        // Pinned where it is: it is large, and what is wrapped around it would move it.
        let routed = pin!(route(
            server, &source, &parts, &mut body, &mut seen, &mut state
        ));
        slow::noted(AssertUnwindSafe(routed.instrument(span)).catch_unwind()).await
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
    let turns = state.turns.as_ref();
    let response = encoding::written(&parts, response, turns).await;
    let response = gzip::compressed(&parts.method, &parts.headers, response, turns);
    let response = if parts.method == Method::HEAD {
        reply::without_body(response)
    } else {
        response
    };
    let response = seen.finish(response, &spent);
    match (response.status(), source.connection(), &mut state.seat) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(connection), seat) => {
            seat.take()
                .into_iter()
                .for_each(|seat| connection.mark_upgraded(seat));
        }
        // What is left of the body is read and dropped, so that the connection serves a next
        // request. One of nobody in particular ends instead.
        _ if state.is_authenticated => incoming::discard(&server.limits, &parts, &mut body).await,
        _ => {}
    }
    let patience = state
        .patience
        .filter(|_| response.status() == StatusCode::OK);
    response.map(|body| {
        let large = patience.is_none().then(|| source.begin_answer(&body));
        Held::new(body, state.seat, source.progress(), patience).on(large.flatten())
    })
}

/// What became of a request on its way.
#[derive(Default)]
struct RequestState {
    /// Its sender has shown who they are.
    is_authenticated: bool,
    /// Kept until the answer has gone.
    seat: Option<Seat>,
    /// For pieces of the answer that take time.
    turns: Option<Turns>,
    /// Of an answer without an end: how long each piece may take.
    patience: Option<Duration>,
}

impl RequestState {
    /// Gives it what a request that lasts by design has: no deadline, and a seat that is not one of
    /// those that are soon free again.
    fn make_long_running(
        &mut self,
        limits: &Limits,
        requester: Requester,
        verb: Verb,
    ) -> Result<(), Status> {
        self.seat = limits.lasting_seat(requester)?;
        self.patience = Some(if verb == Verb::Watch {
            PATIENCE
        } else {
            SLOW_READER
        });
        Ok(())
    }
}

/// The way of a request. Each step is where it is for a reason.
async fn route<B>(
    server: &Arc<State>,
    source: &Source,
    parts: &Parts,
    body: &mut B,
    seen: &mut Observation<'_>,
    state: &mut RequestState,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    if parts.uri.path() == joining::PATH {
        let peer = source.connection().and_then(Connection::peer);
        return joining::serve(server, peer, parts).await;
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let request = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    // Who asks comes before everything that can be answered: bad credentials are told so whatever
    // the path is, and learn nothing of what is served. Limits count by who it is.
    let (user, requester) = identified(server, source, parts, state).await?;
    // The path comes before authorization. Rules speak of the namespace in the URL, the registry
    // goes by the scope of the kind: only for paths of the kind's own form are both the same, and
    // a right in one namespace is none in the cluster. One value of the catalog from here to the
    // end, whatever comes and goes meanwhile.
    let catalog = server.catalog.now();
    let serving = serving(&catalog, &request)?;
    // Whom somebody acts as decides what they may, not what they take: that stays their own.
    let user = impersonation::effective(&server.authorizer, user, &parts.headers)?;
    seen.set_user(&user);
    // Authorization comes before the body: who may not gets no room for megabytes.
    let attributes = request.attributes(&user, &parts.method, &query);
    server.authorize(requester, &attributes).await?;
    let reads = parts.method.is_safe();
    let info = match &request {
        RequestInfo::NonResource { path } => {
            if !is_health(path) {
                seen.count_in_flight(reads);
                state.seat = Some(server.limits.seat(requester, &request, reads).await?);
            }
            return without_resource(server, &user, parts, path, &query).await;
        }
        RequestInfo::Resource(info) => info,
    };
    // Only now: who may not ask for a kind is not told whether there is one.
    let coming;
    let serving = match serving {
        Some(serving) => serving,
        None => {
            coming = definitions::coming::catalog(server, requester, info).await?;
            self::serving(&coming, &request)?.ok_or_else(Status::no_such_path)?
        }
    };
    seen.set_resource(info, serving.info());
    // The body comes before the seat: a client that sends slowly holds up nobody who is ready.
    let read = sent(server, requester, info, parts, body).await?;
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
    let answer = dispatch::answer(serving, call, parts);
    if is_long_running(info) {
        state.make_long_running(&server.limits, requester, info.verb)?;
        return answer.await;
    }
    seen.count_in_flight(reads);
    state.seat = Some(server.limits.seat(requester, &request, reads).await?);
    let timeout = query.timeout(REQUEST_TIMEOUT)?;
    let weight = weight(serving, info, headers, &read.bytes);
    let timely = in_time(timeout, answer);
    let answer = server.limits.worked_on(requester, weight, timely);
    seated(&server.limits, requester, &mut state.seat, answer).await
}

/// Keeps the request's seat for as long as it takes who waits for nobody. A request that takes
/// longer waits for somebody, such as a webhook, and so may all that come after it: others are to
/// find a seat all the same.
async fn seated<T>(
    limits: &Limits,
    requester: Requester,
    seat: &mut Option<Seat>,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = pin!(answer);
    if let Ok(answer) = tokio::time::timeout(SOON, answer.as_mut()).await {
        return answer;
    }
    if let Some(slow) = limits.slow_seat(requester) {
        *seat = Some(slow);
    }
    answer.await
}

/// A path that is no resource's.
async fn without_resource(
    server: &Arc<State>,
    user: &UserInfo,
    parts: &Parts,
    path: &str,
    query: &Query<'_>,
) -> Result<Response<Body>, Status> {
    match path {
        backup::PATH => backup::serve(server, user, parts).await,
        _ => nonresource::serve(server, parts, path, query),
    }
}

/// Who asks, and where they stand. One who is somebody keeps the connection.
async fn identified(
    server: &State,
    source: &Source,
    parts: &Parts,
    state: &mut RequestState,
) -> Result<(Arc<UserInfo>, Requester), Status> {
    let _timing = Timing::of(Step::Authentication);
    let user = source
        .authenticate(&server.authenticator, &server.limits, &parts.headers)
        .await?;
    let requester = server.limits.requester(&user, source.is_part());
    state.turns = Some(server.limits.turns(requester));
    if !server.authenticator.is_anonymous(&user) {
        source.claim_identity(&server.limits, requester)?;
        state.is_authenticated = true;
    }
    Ok((user, requester))
}

/// What the client sends with a write.
async fn sent<B>(
    server: &State,
    requester: Requester,
    info: &ResourceRequest<'_>,
    parts: &Parts,
    body: &mut B,
) -> Result<incoming::Read, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    if info.verb.is_read() {
        return Ok(incoming::Read::default());
    }
    let _timing = Timing::of(Step::Body);
    let _reading = server.limits.reading_seat(requester)?;
    incoming::read(parts, body, server.limits.room(requester)).await
}

/// The answer, if it comes in time.
async fn in_time(
    timeout: Duration,
    answer: impl Future<Output = Result<Response<Body>, Status>>,
) -> Result<Response<Body>, Status> {
    match tokio::time::timeout(timeout, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::timeout(
            "request did not complete within the allotted timeout",
            RETRY_SECS,
        )),
    }
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

/// Whether a path asks how the server is: always told.
fn is_health(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|health| path.starts_with(health))
}

/// Whether a request may last.
fn is_long_running(info: &ResourceRequest<'_>) -> bool {
    info.verb == Verb::Watch
        || Subresource::named(info.subresource).is_some_and(Subresource::is_stream)
}
