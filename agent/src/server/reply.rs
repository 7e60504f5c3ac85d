//! Responses of the node's API.

use std::{convert::Infallible, error::Error};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use tokio::sync::mpsc;

/// Any body.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer that is no success.
#[derive(Debug)]
pub(super) struct ReplyError {
    status: StatusCode,
    message: String,
}

impl ReplyError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn internal(error: &dyn Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    pub(super) fn into_response(self) -> Response<Body> {
        text(self.status, self.message)
    }
}

/// Plain text.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text.into())).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// JSON.
pub(super) fn json(value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Prometheus' text.
pub(super) fn exposition(text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    let kind = HeaderValue::from_static(coracle_telemetry::metrics::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Text that comes bit by bit.
pub(super) fn streamed(pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), pieces))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// Nothing.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = status;
    response
}
