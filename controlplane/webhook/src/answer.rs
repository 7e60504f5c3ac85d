//! What is taken of an answer.
//!
//! Source: `transformResponse` in `k8s.io/client-go/rest/request.go`, `NewGenericServerResponse` in
//! `k8s.io/apimachinery/pkg/api/errors/errors.go` at v1.37.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Deserialize;

use crate::{
    error::{CallError, ExchangeError},
    words::MAX_ANSWER,
};

/// The most bytes of a text that is repeated in an error.
const MAX_TEXT: usize = 2048;

/// The body of a success.
pub(crate) async fn read(response: Response<Incoming>) -> Result<Bytes, Unread> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => Unread::Exchange(ExchangeError::Http(*error)),
        Err(error) => {
            debug_assert!(error.is::<LengthLimitError>());
            Unread::Exchange(ExchangeError::TooLong)
        }
    })?;
    let body = body.to_bytes();
    if is_success(head.status) {
        return Ok(body);
    }
    let message = stated(&body).unwrap_or_else(|| meant(head.status, &said(&head.headers, &body)));
    Err(Unread::Answered(CallError::Answered {
        code: head.status.as_u16(),
        message,
    }))
}

/// What came in the place of a success.
pub(crate) enum Unread {
    Exchange(ExchangeError),
    Answered(CallError),
}

fn is_success(status: StatusCode) -> bool {
    (200..=206).contains(&status.as_u16())
}

/// As much of a Status of the API as is looked at: the rest of a long answer is not built.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stated {
    kind: String,
    status: String,
    message: Option<String>,
}

/// The message of a Status of the API.
fn stated(body: &[u8]) -> Option<String> {
    let stated: Stated = serde_json::from_slice(body).ok()?;
    let is_failure = stated.kind == "Status" && stated.status == "Failure";
    let mut message = stated.message.filter(|_| is_failure)?;
    message.truncate(message.floor_char_boundary(MAX_TEXT));
    Some(message)
}

/// What the answer says, if it is a text.
fn said(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or("", |kind| kind.to_str().unwrap_or("?"));
    if !kind.is_empty() && !kind.starts_with("text/") {
        return "unknown".to_owned();
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT)]);
    match text.trim() {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    }
}

fn meant(status: StatusCode, said: &str) -> String {
    let known = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 406 | 415 => said,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        code if code >= 500 => {
            return format!(
                "an error on the server ({said:?}) has prevented the request from succeeding"
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_success_is_told_as_clients_tell_it() {
        let status = |code| StatusCode::from_u16(code).unwrap();
        for (code, expect) in [
            (
                302,
                "the server responded with the status code 302 but did not return more information",
            ),
            (403, "no"),
            (404, "the server could not find the requested resource"),
            (
                500,
                "an error on the server (\"no\") has prevented the request from succeeding",
            ),
            (503, "the server is currently unable to handle the request"),
        ] {
            assert_eq!(meant(status(code), "no"), expect);
        }
    }

    #[test]
    fn only_texts_are_repeated() {
        let of = |kind: Option<&'static str>, body: &str| {
            let mut headers = HeaderMap::new();
            if let Some(kind) = kind {
                headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            }
            said(&headers, body.as_bytes())
        };
        assert_eq!(of(Some("text/plain; charset=utf-8"), " no\n"), "no");
        assert_eq!(of(None, "no"), "no");
        assert_eq!(of(Some("application/json"), "{}"), "unknown");
        assert_eq!(of(None, "  "), "unknown");
        assert_eq!(of(None, &"x".repeat(MAX_TEXT + 1)).len(), MAX_TEXT);
    }

    #[test]
    fn a_status_speaks_for_itself() {
        let failure = br#"{"kind":"Status","status":"Failure","message":"m"}"#;
        assert_eq!(stated(failure).as_deref(), Some("m"));
        assert_eq!(
            stated(br#"{"kind":"Status","status":"Success","message":"m"}"#),
            None
        );
        assert_eq!(stated(b"m"), None);
        let long = format!(
            r#"{{"kind":"Status","status":"Failure","message":"{}"}}"#,
            "é".repeat(MAX_TEXT)
        );
        assert_eq!(stated(long.as_bytes()).unwrap().len(), MAX_TEXT);
    }
}
