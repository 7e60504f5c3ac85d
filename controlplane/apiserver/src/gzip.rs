//! Large answers compressed for those who take it: reads of 128 KB and more, as upstream.
//!
//! Piece by piece as the connection takes them, in turn with those of others: neither the answer
//! nor its compressed form is ever whole in memory. Watches and other streams are left alone.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go`,
//! `defaultGzipThresholdBytes` at v1.37.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;

use crate::{
    body::{Body, BoxError, Pieces, pieces::PieceSource},
    limits::Turns,
};

const THRESHOLD: u64 = 128 * 1024;
/// What one piece is made of: of so many that are not compressed, or until it is so large.
const MOST_PIECES: usize = 4;
const ENOUGH: usize = 16 * 1024;

/// The response, compressed if it is worth it and the client takes it.
pub(crate) fn compressed(
    method: &Method,
    headers: &HeaderMap,
    response: Response<Body>,
    turns: Option<&Turns>,
) -> Response<Body> {
    let Some(turns) = turns else {
        return response;
    };
    // Pieces of a length that nobody knows are many.
    let unknown = match response.body() {
        Body::Pieces(_) => u64::MAX,
        _ => 0,
    };
    let size = response.body().size_hint().exact().unwrap_or(unknown);
    let is_worth_it = size >= THRESHOLD
        && *method == Method::GET
        && response.status() == StatusCode::OK
        && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !is_worth_it || !takes_gzip(headers) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let source: PieceSource = match body {
        Body::Chunks { source, .. } => Box::new(source.map(Ok)),
        Body::Full(bytes) => Box::new(Body::pieces_of(bytes).map(Ok)),
        Body::Pieces(pieces) => pieces.into_source(),
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
    let pieces = Pieces::new(Box::new(compressor), turns.clone(), None);
    Response::from_parts(parts, Body::Pieces(Box::new(pieces)))
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

struct Compressor {
    source: PieceSource,
    /// `None` once the end has been written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Compressor {
    /// The next piece, which is the last once there is no encoder any more.
    fn piece(&mut self, mut encoder: GzEncoder<Vec<u8>>) -> Result<Bytes, BoxError> {
        for _ in 0..MOST_PIECES {
            match self.source.next() {
                Some(piece) => encoder.write_all(&piece?)?,
                None => return Ok(encoder.finish()?.into()),
            }
            if encoder.get_ref().len() >= ENOUGH {
                break;
            }
        }
        let out = std::mem::take(encoder.get_mut());
        self.encoder = Some(encoder);
        Ok(out.into())
    }
}

impl Iterator for Compressor {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let encoder = self.encoder.take()?;
            match self.piece(encoder) {
                // What there was has gone into its window.
                Ok(piece) if piece.is_empty() => {}
                piece => return Some(piece),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use coracle_auth::user::UserInfo;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::limits::Limits;

    fn turns() -> Turns {
        let limits = Limits::new(10, 10);
        limits.turns(limits.requester(&UserInfo::new("a", &[]), false))
    }

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
        let pieces = text
            .chunks(1000)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)));
        let pieces: Vec<_> = pieces.collect();
        let pieces = Pieces::new(Box::new(pieces.into_iter()), turns(), None);
        for body in [
            Body::from(text.clone()),
            chunked,
            Body::Pieces(Box::new(pieces)),
        ] {
            let (response, turns) = (Response::new(body), turns());
            let response = compressed(&Method::GET, &headers("gzip"), response, Some(&turns));
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

    #[tokio::test]
    async fn what_breaks_off_does_not_end_well() {
        let pieces = [Ok(Bytes::from_static(b"text")), Err("broken".into())];
        let pieces = Pieces::new(Box::new(pieces.into_iter()), turns(), None);
        let response = Response::new(Body::Pieces(Box::new(pieces)));
        let response = compressed(&Method::GET, &headers("gzip"), response, Some(&turns()));
        assert!(response.into_body().collect().await.is_err());
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
            let response = compressed(&method, &headers(accept), response, Some(&turns()));
            assert!(
                !response.headers().contains_key(header::CONTENT_ENCODING),
                "{method} {accept}"
            );
        }
    }
}
