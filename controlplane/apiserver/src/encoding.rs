//! Answers in another form than compact JSON, for those who ask: protobuf, YAML, JSON over many
//! lines.
//!
//! Everything is answered in JSON first; here it is written anew. So nothing else knows of these
//! forms, and who takes JSON, as nearly everybody does, pays nothing. A list is taken item by item,
//! as the client takes it ([`lists`]); any other large answer is written on a thread that may
//! block.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go` at v1.37.

mod indent;
mod lists;

use std::time::Duration;

use bytes::Bytes;
use coracle_api::{encode, status::Status};
use coracle_registry::strategy::Subresource;
use coracle_telemetry::ErrorChain;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderValue, Response, header, request::Parts};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::indent::Indenter;
use crate::{
    body::{Body, BoxError, Pieces, pieces::PieceSource},
    limits::Turns,
    query::Query,
    reply::{self, JSON},
    request_info::RequestInfo,
    table::accept::{self, Encoding},
};

/// Longer texts are written on a thread of their own.
const INLINE: usize = 64 * 1024;
/// Large answers that are in memory at a time, and how long one more waits for its turn.
static LARGE: Semaphore = Semaphore::const_new(8);
const LARGE_WAIT: Duration = Duration::from_secs(30);
/// What is offered, in upstream's order.
pub(crate) const MEDIA_TYPES: [&str; 3] = ["application/json", accept::YAML, accept::PROTOBUF];
const WATCHED: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Who is a person at a terminal or a browser.
const PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// The answer in the form that its client wants. Who has no turns has no large answers.
pub(crate) async fn written(
    parts: &Parts,
    response: Response<Body>,
    turns: Option<&Turns>,
) -> Response<Body> {
    match Form::of(parts) {
        Some(form) => Box::pin(form.applied(response, turns)).await,
        None => response.map(|body| match body {
            Body::List(list) => (*list).into(),
            body => body,
        }),
    }
}

/// The form that a client wants an answer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON with line breaks and indents.
    Pretty,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Form {
    /// What the request asks for; `None` for JSON as it is, and for paths whose answers are not
    /// ours to change.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        let path = parts.uri.path();
        if !path.starts_with("/api") {
            return None;
        }
        let text = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let form = match accept::encoding(text(header::ACCEPT).unwrap_or_default()) {
            Encoding::Yaml => Self::Yaml,
            Encoding::Protobuf => Self::Protobuf,
            Encoding::Json => {
                let raw = parts.uri.query().unwrap_or_default();
                let asked = if raw.contains("pretty") {
                    Query::parse(raw).text("pretty").map(is_true)
                } else {
                    None
                };
                let is_person = || {
                    text(header::USER_AGENT)
                        .is_some_and(|agent| PEOPLE.iter().any(|name| agent.starts_with(name)))
                };
                asked.unwrap_or_else(is_person).then_some(Self::Pretty)?
            }
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        match RequestInfo::parse(&parts.method, path, &query) {
            RequestInfo::Resource(info)
                if Subresource::named(info.subresource).is_some_and(Subresource::is_stream) =>
            {
                None
            }
            _ => Some(form),
        }
    }

    /// The answer in this form.
    async fn applied(self, response: Response<Body>, turns: Option<&Turns>) -> Response<Body> {
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value == JSON);
        if !is_json {
            return response;
        }
        let (mut head, body) = response.into_parts();
        head.headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.content_type()),
        );
        let body = match body {
            Body::List(list) if list.items.are_few() => Body::from(list.into_text()),
            body => body,
        };
        let body = match (self, body) {
            (_, Body::List(list)) => match lists::written(self, *list).await {
                Ok(body) => body,
                Err(answer) => return *answer,
            },
            (_, body @ (Body::Empty | Body::Chunks { .. } | Body::Pieces(_)))
            | (Self::Pretty, body @ Body::Stream(_)) => body,
            (Self::Pretty, Body::Full(json)) => match turns.filter(|_| json.len() > INLINE) {
                Some(turns) => {
                    let pieces = indented(Body::pieces_of(json));
                    Body::Pieces(Box::new(Pieces::new(pieces, turns.clone(), None)))
                }
                None => Indenter::default().feed(&json).into(),
            },
            // As upstream: YAML has no form of one event after the other.
            (Self::Yaml, Body::Stream(_)) => {
                return reply::failure(&Status::not_acceptable(&[MEDIA_TYPES[0], MEDIA_TYPES[2]]));
            }
            (Self::Protobuf, Body::Stream(stream)) => {
                head.headers
                    .insert(header::CONTENT_TYPE, HeaderValue::from_static(WATCHED));
                let frames =
                    stream.and_then(|lines| std::future::ready(frames(&lines).map_err(Into::into)));
                Body::Stream(frames.boxed())
            }
            (_, Body::Full(json)) if json.len() <= INLINE => match self.write(&json) {
                Ok(text) => text.into(),
                Err(error) => return unwritable(&error),
            },
            (_, Body::Full(json)) => match self.write_apart(json).await {
                Ok(body) => body,
                Err(answer) => return *answer,
            },
        };
        Response::from_parts(head, body)
    }

    /// Writes a large answer on a thread that may block. It is whole in memory until it has been
    /// sent, so there are few of them at a time.
    async fn write_apart(self, json: Bytes) -> Result<Body, Box<Response<Body>>> {
        let Ok(Ok(permit)) = tokio::time::timeout(LARGE_WAIT, LARGE.acquire()).await else {
            return Err(Box::new(reply::failure(&Status::too_many_requests(1))));
        };
        let written = tokio::task::spawn_blocking(move || self.write(&json));
        match written
            .await
            .map_err(BoxError::from)
            .and_then(|written| written)
        {
            Ok(text) => Ok(Bytes::from_owner(Large {
                text,
                _permit: permit,
            })
            .into()),
            Err(error) => Err(Box::new(unwritable(&error))),
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Pretty => JSON,
            Self::Yaml => accept::YAML,
            Self::Protobuf => accept::PROTOBUF,
        }
    }

    fn write(self, json: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(match self {
            Self::Pretty => Indenter::default().feed(json),
            Self::Yaml => {
                serde_yaml::to_string(&serde_json::from_slice::<serde_json::Value>(json)?)?
                    .into_bytes()
            }
            Self::Protobuf => encode::protobuf(json)?,
        })
    }
}

/// JSON over many lines, piece by piece.
fn indented(json: impl Iterator<Item = Bytes> + Send + 'static) -> PieceSource {
    let mut indenter = Indenter::default();
    Box::new(json.map(move |piece| Ok(indenter.feed(&piece).into())))
}

/// As Go's `strconv.ParseBool`, which takes what it does not know for false here.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// A large answer under way, which counts until it has been sent.
struct Large {
    text: Vec<u8>,
    _permit: SemaphorePermit<'static>,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

fn unwritable(error: &BoxError) -> Response<Body> {
    tracing::debug!(error = %ErrorChain(&**error), "an answer has no such form");
    reply::failure(&Status::not_acceptable(&MEDIA_TYPES[..1]))
}

/// Lines of a watch as frames. They come whole, one or several at once.
fn frames(lines: &[u8]) -> Result<Bytes, encode::EncodeError> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let mut out = Vec::with_capacity(lines.len());
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let event: Event<'_> = serde_json::from_slice(line)?;
        let object = encode::protobuf(event.object.get().as_bytes())?;
        out.extend_from_slice(&encode::watch_frame(event.kind, &object));
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn forms_are_asked_for_by_header_parameter_and_program() {
        let check = |uri: &str, headers: &[(&str, &str)], expect: Option<Form>| {
            let request = headers
                .iter()
                .fold(Request::get(uri), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(Form::of(&parts), expect, "{uri} {headers:?}");
        };
        let pods = "/api/v1/pods";
        let protobuf = "application/vnd.kubernetes.protobuf";
        check(pods, &[], None);
        check(pods, &[("accept", "application/json")], None);
        check(pods, &[("accept", protobuf)], Some(Form::Protobuf));
        check(
            pods,
            &[("accept", "application/yaml;q=0.5")],
            Some(Form::Yaml),
        );
        check(
            pods,
            &[("accept", "application/vnd.kubernetes.protobuf, */*")],
            None,
        );
        check("/api/v1/pods?pretty=true", &[], Some(Form::Pretty));
        check("/api/v1/pods?pretty=0", &[("user-agent", "curl/8")], None);
        check(pods, &[("user-agent", "curl/8")], Some(Form::Pretty));
        check(pods, &[("user-agent", "kubectl/v1")], None);
        check(
            "/api/v1/namespaces/a/pods/b/proxy/x",
            &[("accept", protobuf)],
            None,
        );
        check("/version", &[("user-agent", "curl/8")], None);
    }
}
