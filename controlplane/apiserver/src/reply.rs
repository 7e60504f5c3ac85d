//! Answers: what an endpoint returns, and how it becomes an HTTP response.

use std::collections::HashSet;

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_registry::stored;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;

use crate::body::Body;

/// A successful answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) warnings: Vec<String>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Body,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

impl Reply {
    pub(crate) fn new(
        status: StatusCode,
        content_type: &'static str,
        body: impl Into<Body>,
    ) -> Self {
        Self {
            status,
            content_type,
            warnings: Vec::new(),
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// 200 with JSON.
    pub(crate) fn json(body: impl Into<Body>) -> Self {
        Self::new(StatusCode::OK, JSON, body)
    }

    /// 200 with JSON that is one line: Go's encoder ends each with a line feed.
    pub(crate) fn line(json: &[u8]) -> Self {
        let mut line = Vec::with_capacity(json.len() + 1);
        line.extend_from_slice(json);
        line.push(b'\n');
        Self::json(line)
    }

    /// 200 with a value as JSON, laid out as objects are.
    pub(crate) fn value(value: &serde_json::Value) -> Self {
        Self::line(&stored::text(value))
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// With a warning that comes first; none if it is empty.
    pub(crate) fn deprecating(mut self, warning: &str) -> Self {
        if !warning.is_empty() {
            self.warnings.insert(0, warning.to_owned());
        }
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static(self.content_type),
            );
        }
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, private"),
        );
        warn(headers, &self.warnings);
        // An own value replaces the usual one.
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// Adds warnings to an answer, as many as clients read.
pub(crate) fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in within_bounds(warnings) {
        if let Some(value) = warning_header(warning) {
            headers.append(header::WARNING, value);
        }
    }
}

/// The answer to HEAD: what GET gives, but for its body, which clients of HTTP/2 take for an error.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(size) = body.size_hint().exact() {
        parts.headers.insert(header::CONTENT_LENGTH, size.into());
    }
    Response::from_parts(parts, Bytes::new().into())
}

/// As many warnings as clients read, each once: all of them cut short where they would be more
/// together.
///
/// Source: `k8s.io/apiserver/pkg/endpoints/filters/warning.go` at v1.37, `truncateAtTotalRunes`,
/// `truncateItemRunes`.
fn within_bounds(warnings: &[String]) -> impl Iterator<Item = &str> {
    const TOTAL: usize = 4 * 1024;
    const ITEM: usize = 256;
    let mut seen = HashSet::new();
    let all = warnings.iter().map(String::as_str);
    let told: Vec<&str> = all
        .filter(|warning| !warning.is_empty() && seen.insert(*warning))
        .collect();
    let cut = told.iter().map(|warning| warning.len()).sum::<usize>() > TOTAL;
    let shortened = told
        .into_iter()
        .map(move |warning| match warning.char_indices().nth(ITEM) {
            Some((end, _)) if cut => &warning[..end],
            _ => warning,
        });
    shortened.scan(0, move |total, warning| {
        *total += warning.len();
        (*total <= TOTAL || !cut).then_some(warning)
    })
}

/// `299 - "text"`, as RFC 7234 quotes it.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let mut value = String::with_capacity(text.len() + 10);
    value.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => value.extend(['\\', c]),
            c if c.is_control() => value.push(' '),
            c => value.push(c),
        }
    }
    value.push('"');
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

/// A failure as an HTTP response.
pub(crate) fn failure(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = Reply::value(&status.to_json()).with_status(code);
    reply.warnings.clone_from(&status.warnings);
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        reply
            .headers
            .push((header::RETRY_AFTER, HeaderValue::from(retry)));
    }
    reply.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_cut_to_what_clients_read() {
        let long: Vec<String> = (0..100)
            .map(|at| at.to_string() + &"é".repeat(3000))
            .collect();
        let kept: Vec<&str> = within_bounds(&long).collect();
        assert!(!kept.is_empty() && kept.iter().map(|one| one.len()).sum::<usize>() <= 4096);
        let short = ["a", "b", "c"].map(|text| text.repeat(300));
        assert_eq!(within_bounds(&short).count(), 3);
        assert!(within_bounds(&short).all(|one| one.len() == 300));
        let alike = ["a", "", "b", "a"].map(str::to_owned);
        assert_eq!(within_bounds(&alike).collect::<Vec<_>>(), ["a", "b"]);
    }
}
