//! A blob as it comes, going on where its connection broke.
//!
//! The next request asks for the rest alone. A registry that does not know of ranges sends all of
//! it again, and what was there is passed over: the reader has it, and its digest tells if the
//! bytes before and behind the break are not of one blob. How long this may go on is for
//! [`super::super::progress`] to say; requests that bring nothing end it earlier
//! ([`super::retry`]).
//!
//! Source: containerd `core/remotes/docker/httpreadseeker.go` and `fetcher.go` (main).

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::{StatusCode, header};
use reqwest::Response;

use super::{
    super::error::RegistryError,
    Distribution,
    request::{host, in_time},
    retry::{Retries, Tries},
};

/// The chunks of one blob.
pub(super) struct Download<'a> {
    from: &'a Distribution,
    digest: &'a str,
    size: u64,
    /// So many bytes have been handed on.
    at: u64,
    /// `None` where the connection broke.
    body: Option<Body>,
    tries: Tries,
}

/// What is left of one answer.
struct Body {
    host: String,
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    /// So many bytes of it have been handed on before.
    skip: u64,
}

impl<'a> Download<'a> {
    /// Asks for the blob. Whoever does not answer now is not waited for: the pull has another
    /// endpoint, or the pod its back-off.
    pub(super) async fn begin(
        from: &'a Distribution,
        digest: &'a str,
        size: u64,
        retries: Retries,
    ) -> Result<Self, RegistryError> {
        let mut tries = retries.begin();
        let body = tries.run(|| open(from, digest, 0)).await?;
        tries.progressed();
        Ok(Self {
            from,
            digest,
            size,
            at: 0,
            body: Some(body),
            tries,
        })
    }

    /// The next chunk; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, RegistryError>> {
        loop {
            let error = match self.chunk().await {
                Ok(chunk) => return chunk.map(Ok),
                Err(error) => error,
            };
            self.body = None;
            // What breaks behind the last byte takes nothing away.
            if self.at >= self.size {
                return None;
            }
            if let Err(error) = self.tries.wait(error, RegistryError::is_interruption).await {
                return Some(Err(error));
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let body = match &mut self.body {
            Some(body) => body,
            None => self
                .body
                .insert(open(self.from, self.digest, self.at).await?),
        };
        while let Some(chunk) = body.chunks.next().await {
            let mut chunk = chunk.map_err(|error| RegistryError::of_request(&body.host, error))?;
            let known =
                usize::try_from(body.skip).map_or(chunk.len(), |skip| skip.min(chunk.len()));
            body.skip -= known as u64;
            let new = chunk.split_off(known);
            if !new.is_empty() {
                self.at += new.len() as u64;
                self.tries.progressed();
                return Ok(Some(new));
            }
        }
        Ok(None)
    }
}

/// Asks for the bytes from `at` on.
async fn open(from: &Distribution, digest: &str, at: u64) -> Result<Body, RegistryError> {
    let response = in_time(from.get("blobs", digest, at)).await?;
    Ok(Body {
        skip: skipped(&response, at)?,
        host: host(response.url()).to_owned(),
        chunks: response.bytes_stream().boxed(),
    })
}

/// How many bytes of the answer come before those asked for.
fn skipped(response: &Response, at: u64) -> Result<u64, RegistryError> {
    if at == 0 || response.status() != StatusCode::PARTIAL_CONTENT {
        return Ok(at);
    }
    let range = response.headers().get(header::CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok()).unwrap_or("");
    if range.starts_with(&format!("bytes {at}-")) {
        return Ok(0);
    }
    Err(RegistryError::Range {
        from: at,
        range: range.to_owned(),
    })
}
