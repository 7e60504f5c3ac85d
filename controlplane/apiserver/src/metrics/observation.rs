//! One request, as the metrics, the trace and the log of slow ones see it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use coracle_auth::user::UserInfo;
use coracle_registry::api_resource::{ApiResource, Text};
use coracle_telemetry::span;
use futures::{Stream, StreamExt as _, stream::BoxStream};
use http::{Method, Response, StatusCode, request::Parts};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::{Span, field::Empty};

use super::{Answer, InFlight, Metrics, Request, Watched};
use crate::{
    body::{Body, BoxError},
    request_info::{ResourceRequest, Verb},
    slow::{self, Answered, SlowRequests, Spent},
};

/// A request under way. Counts it among those in flight until it is dropped.
pub(crate) struct Observation<'a> {
    metrics: &'a Metrics,
    slow: &'a SlowRequests,
    started: Instant,
    path: &'a str,
    user: Option<Arc<UserInfo>>,
    request: Request,
    kind: Text,
    is_long: bool,
    in_flight: Option<Count>,
    span: Span,
}

impl<'a> Observation<'a> {
    pub(crate) fn new(metrics: &'a Metrics, slow: &'a SlowRequests, parts: &'a Parts) -> Self {
        let verb = match parts.method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            _ => "other",
        };
        let component = "apiserver";
        let none = Text::Borrowed("");
        let (group, resource, version, kind) = (none.clone(), none.clone(), none.clone(), none);
        let request = Request {
            component,
            group,
            resource,
            scope: "",
            subresource: "",
            verb,
            version,
        };
        let span = span!(
            "KubernetesAPI",
            path = parts.uri.path(),
            verb = Empty,
            resource = Empty,
            subresource = Empty,
            object = Empty,
            code = Empty
        );
        Self {
            metrics,
            slow,
            started: Instant::now(),
            path: parts.uri.path(),
            user: None,
            request,
            kind,
            is_long: false,
            in_flight: None,
            span,
        }
    }

    /// All that is done for it is within this one.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes who asks.
    pub(crate) fn set_user(&mut self, user: &Arc<UserInfo>) {
        self.user = Some(Arc::clone(user));
    }

    /// Notes which resource it is for.
    pub(crate) fn set_resource(&mut self, info: &ResourceRequest<'_>, resource: &ApiResource) {
        self.trace(info);
        let subresource = resource
            .subresources
            .iter()
            .find(|one| one.name() == info.subresource);
        let is_connect = subresource.is_some_and(|one| one.is_connect());
        let scope = match (info.name.is_empty(), info.namespace.is_empty()) {
            (true, false) => "namespace",
            (true, true) => "cluster",
            (false, _) => "resource",
        };
        self.kind = resource.kind.clone();
        self.is_long = info.verb == Verb::Watch || subresource.is_some_and(|one| one.is_stream());
        self.request = Request {
            component: "apiserver",
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            scope,
            subresource: subresource.map_or("", |one| one.name()),
            verb: if is_connect {
                "CONNECT"
            } else {
                verb(info.verb, self.request.verb)
            },
            version: resource.version.clone(),
        };
    }

    fn trace(&self, info: &ResourceRequest<'_>) {
        if self.span.is_disabled() {
            return;
        }
        self.span
            .record("verb", info.verb.as_str())
            .record("resource", info.resource);
        if !info.subresource.is_empty() {
            self.span.record("subresource", info.subresource);
        }
        // As texts, which are told quoted: what a URL says comes from strangers.
        match &*info.namespace {
            "" => self.span.record("object", &*info.name),
            namespace => self
                .span
                .record("object", &*format!("{namespace}/{}", info.name)),
        };
    }

    /// Counts it among the requests in flight, whose number is bounded.
    pub(crate) fn count_in_flight(&mut self, reads: bool) {
        let request_kind = if reads { "readOnly" } else { "mutating" };
        self.in_flight = Some(Count::of(
            &self
                .metrics
                .in_flight
                .get_or_create_owned(&InFlight { request_kind }),
        ));
    }

    /// How long it took: to the histogram, and to the log if it was long.
    fn tell_duration(&self, code: u32, spent: &Spent) {
        let elapsed = self.started.elapsed();
        self.metrics
            .durations
            .get_or_create(&self.request)
            .observe(elapsed.as_secs_f64());
        if slow::is_long(elapsed) {
            self.slow.tell(&Answered {
                verb: self.request.verb,
                path: self.path,
                resource: self.request.path(),
                user: self.user.as_ref().map_or("", |user| &*user.name),
                code,
                duration: elapsed,
                spent,
            });
        }
    }

    /// It has been answered; `spent` is what its steps have taken.
    pub(crate) fn finish(self, response: Response<Body>, spent: &Spent) -> Response<Body> {
        let Request {
            component,
            group,
            resource,
            scope,
            subresource,
            verb,
            version,
        } = self.request.clone();
        let code = u32::from(response.status().as_u16());
        let dry_run = "";
        let answer = Answer {
            code,
            component,
            dry_run,
            group,
            resource,
            scope,
            subresource,
            verb,
            version,
        };
        self.metrics.answers.get_or_create(&answer).inc();
        if !self.span.is_disabled() {
            self.span.record("code", code);
        }
        if !self.is_long {
            self.tell_duration(code, spent);
            return response;
        }
        if response.status() != StatusCode::OK {
            return response;
        }
        let mut counts = vec![Count::of(
            &self.metrics.long_running.get_or_create_owned(&self.request),
        )];
        if verb == "WATCH" {
            let Request { group, version, .. } = self.request;
            let watched = Watched {
                group,
                kind: self.kind,
                version,
            };
            counts.push(Count::of(
                &self.metrics.watchers.get_or_create_owned(&watched),
            ));
        }
        response.map(|body| match body {
            Body::Stream(stream) => Counted {
                stream,
                _counts: counts,
            }
            .into_body(),
            body => body,
        })
    }
}

fn verb(verb: Verb, method: &'static str) -> &'static str {
    match verb {
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::DeleteCollection => "DELETECOLLECTION",
        _ => method,
    }
}

/// One more, as long as it lives.
struct Count(Gauge);

impl Count {
    fn of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A stream that counts while it lasts.
struct Counted {
    stream: BoxStream<'static, Result<Bytes, BoxError>>,
    _counts: Vec<Count>,
}

impl Counted {
    fn into_body(self) -> Body {
        Body::Stream(Box::pin(self))
    }
}

impl Stream for Counted {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(cx)
    }
}
