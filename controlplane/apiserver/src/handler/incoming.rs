//! The body of a request: read whole and bounded, or, where nobody wants it, read away.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use coracle_api::status::Status;
use http::{header, request::Parts};
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::limits::{self, BODY_LIMIT, Limits, Permit, RETRY_SECS};

/// For the whole body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Most of a body that nobody wants, and how long it is read.
const UNWANTED_BYTES: usize = 2 * BODY_LIMIT;
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(2);

/// A body that has been read, and the room that it takes.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) bytes: Bytes,
    _room: Option<Permit>,
}

/// Reads the body, as much of it as there is `room` for.
///
/// # Errors
/// 413 for one that is too large, 429 when there is no room, 504 when it does not arrive in time.
pub(super) async fn read<B>(
    parts: &Parts,
    body: &mut B,
    mut room: Option<Permit>,
) -> Result<Read, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    match tokio::time::timeout(BODY_TIMEOUT, gather(parts, body, &mut room)).await {
        Ok(bytes) => bytes.map(|bytes| Read { bytes, _room: room }),
        Err(_) => Err(Status::timeout(
            "the request body did not arrive in time",
            RETRY_SECS,
        )),
    }
}

async fn gather<B>(parts: &Parts, body: &mut B, room: &mut Option<Permit>) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    let too_large = || Status::request_entity_too_large(BODY_LIMIT);
    let announced = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::bad_request("unable to read the request body"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if gathered.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > BODY_LIMIT {
            return Err(too_large());
        }
        // What has come, not what was announced: who announces much and sends nothing takes
        // nothing.
        if room.as_mut().is_some_and(|room| !room.grow(data.len())) {
            return Err(limits::too_many());
        }
        // Bodies of one frame, nearly all, are not copied.
        match first.take() {
            None if gathered.is_empty() => first = Some(data),
            None => gathered.extend_from_slice(&data),
            Some(start) => {
                gathered.reserve(start.len() + data.len());
                gathered.extend_from_slice(&start);
                gathered.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| gathered.freeze()))
}

/// Reads what is left of a body whose request has been answered: a client that is still sending
/// would not see the answer, and its connection would have to end. Bounded, and left out where many
/// do it.
pub(super) async fn discard<B>(limits: &Limits, parts: &Parts, body: &mut B)
where
    B: Body<Data = Bytes> + Unpin,
{
    // Who asks before it sends does not send after a refusal.
    if body.is_end_stream() || parts.headers.contains_key(header::EXPECT) {
        return;
    }
    let Ok(_turn) = limits.unwanted.try_acquire() else {
        return;
    };
    let to_the_end = async {
        let mut left = UNWANTED_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // The answer goes out in any case.
    let _ = tokio::time::timeout(UNWANTED_TIMEOUT, to_the_end).await;
}
