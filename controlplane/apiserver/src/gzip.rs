//! Large answers compressed for those who take it: reads of 128 KB and more, as upstream.
//!
//! Piece by piece as the connection takes them: neither the answer nor its compressed form is ever
//! whole in memory. Watches and other streams are left alone.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go`,
//! `defaultGzipThresholdBytes` at v1.37.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;

use crate::body::{Body, BoxError};

const THRESHOLD: u64 = 128 * 1024;
/// Pieces of a whole body that are compressed at once.
const PIECE: usize = 64 * 1024;

/// The response, compressed if it is worth it and the client takes it.
pub(crate) fn compressed(
    method: &Method,
    headers: &HeaderMap,
    response: Response<Body>,
) -> Response<Body> {
    let size = response.body().size_hint().exact().unwrap_or(0);
    let is_worth_it = size >= THRESHOLD
        && *method == Method::GET
        && response.status() == StatusCode::OK
        && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !is_worth_it || !takes_gzip(headers) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let source: Box<dyn Iterator<Item = Bytes> + Send> = match body {
        Body::Chunks { source, .. } => source,
        Body::Full(bytes) => Box::new(pieces(bytes)),
        body => return Response::from_parts(parts, body),
    };
    parts
        .headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts
        .headers
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let compressor = Compressor {
        source,
        encoder: Some(encoder),
    };
    Response::from_parts(
        parts,
        Body::Stream(Box::pin(futures::stream::iter(compressor))),
    )
}

/// Whether `Accept-Encoding` has it.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value.split(',').any(|coding| {
                let mut parts = coding.split(';').map(str::trim);
                parts.next() == Some("gzip")
                    && !parts.any(|parameter| {
                        matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
                    })
            })
        })
}

fn pieces(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!bytes.is_empty()).then(|| bytes.split_to(PIECE.min(bytes.len()))))
}

struct Compressor {
    source: Box<dyn Iterator<Item = Bytes> + Send>,
    /// `None` once the end has been written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Compressor {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(encoder) = &mut self.encoder {
            let Some(piece) = self.source.next() else {
                let rest = self.encoder.take()?.finish();
                return Some(rest.map(Bytes::from).map_err(Into::into));
            };
            if let Err(error) = encoder.write_all(&piece) {
                self.encoder = None;
                return Some(Err(error.into()));
            }
            let out = std::mem::take(encoder.get_mut());
            if !out.is_empty() {
                return Some(Ok(out.into()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_str(accept).unwrap(),
        )])
    }

    #[test]
    fn clients_say_whether_they_take_it() {
        for (accept, expect) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&headers(accept)), expect, "{accept}");
        }
    }

    #[tokio::test]
    async fn what_is_large_is_compressed_and_comes_out_the_same() {
        let text: Vec<u8> = (0..60_000_u32)
            .flat_map(|number| number.to_string().into_bytes())
            .collect();
        let chunks: Vec<Bytes> = text.chunks(1000).map(Bytes::copy_from_slice).collect();
        let chunked = Body::Chunks {
            source: Box::new(chunks.into_iter()),
            left: text.len() as u64,
        };
        for body in [Body::from(text.clone()), chunked] {
            let response = compressed(&Method::GET, &headers("gzip"), Response::new(body));
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            let packed = response.into_body().collect().await.unwrap().to_bytes();
            assert!(packed.len() < text.len() / 5 * 4, "{}", packed.len());
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut out)
                .unwrap();
            assert!(out == text);
        }
    }

    #[test]
    fn small_answers_writes_and_failures_stay_as_they_are() {
        let large = || Response::new(Body::from(vec![0; 200_000]));
        let mut failed = large();
        *failed.status_mut() = StatusCode::GONE;
        for (method, accept, response) in [
            (
                Method::GET,
                "gzip",
                Response::new(Body::from(vec![0; 1000])),
            ),
            (Method::POST, "gzip", large()),
            (Method::GET, "br", large()),
            (Method::GET, "gzip", failed),
        ] {
            let response = compressed(&method, &headers(accept), response);
            assert!(
                !response.headers().contains_key(header::CONTENT_ENCODING),
                "{method} {accept}"
            );
        }
    }
}
