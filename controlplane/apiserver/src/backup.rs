//! `GET /coracle/backup`: all that is stored, in the engine's own form.
//!
//! It holds everybody's Secrets and what no role speaks of, so roles alone do not open it: it is
//! for `system:masters`, who may read all of it anyway.

use std::sync::Arc;

use coracle_api::status::{Reason, Status};
use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_registry::store::store_status;
use coracle_store::StoreError;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use tokio_util::io::ReaderStream;

use crate::{
    body::{Body, BoxError},
    reply::Reply,
    state::State,
};

/// Where it is. It stands in no document: it is for `coracle store backup`.
pub(crate) const PATH: &str = "/coracle/backup";

/// Read from the disk at once.
const PIECE: usize = 128 * 1024;

/// Answers with the file once the copy is whole, so that the store's log is not kept for as long as
/// the client reads.
pub(crate) async fn serve(
    server: &Arc<State>,
    user: &UserInfo,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    if parts.method != Method::GET {
        return Err(Status::no_such_path());
    }
    if !user.is_in(GROUP_MASTERS) {
        let message = format!("a backup holds every Secret: it is for {GROUP_MASTERS} alone");
        return Err(Status::new(403, Reason::Forbidden, message));
    }
    let copied = server.store.backend.backup().await;
    let file = copied.map_err(|error| match error {
        StoreError::NoBackup { .. } => Status::bad_request(error.to_string()),
        error => store_status(error),
    })?;
    let bytes = file.metadata().map_err(Status::internal)?.len();
    tracing::info!(user = user.name, bytes, "the store is backed up");
    let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
    let body = Body::Stream(pieces.map_err(BoxError::from).boxed());
    let mut reply = Reply::new(StatusCode::OK, "application/vnd.sqlite3", body);
    reply
        .headers
        .push((header::CONTENT_LENGTH, HeaderValue::from(bytes)));
    Ok(reply.into_response())
}
