//! `GET /coracle/join`: what the servers of a cluster share, for another one that shows that it
//! knows the server token.
//!
//! What is given is sealed with a key made from that token, as it lies in the store: this server
//! gives it without being able to read it. Who asks shows a proof that is made from the token, too;
//! the token itself is never sent, and the store has the proof's hash alone. Sealing and opening
//! are the control plane's (`joining` there).

pub(crate) mod attempts;

use std::{fmt, net::SocketAddr, sync::Arc};

use coracle_api::status::Status;
use coracle_registry::store::store_status;
use http::{HeaderName, Method, Response, StatusCode, request::Parts};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use self::attempts::WITHIN;
use crate::{
    body::Body,
    reply::{Reply, TEXT},
    state::State,
};

/// Where it is. It stands in no document: it is for `coracle server --join`.
pub const PATH: &str = "/coracle/join";
/// Where it lies in the store: under no kind, so that no right to any kind opens it.
pub const KEY: &str = "/servers/shared";
/// The header with the proof, in hex.
pub const PROOF: HeaderName = HeaderName::from_static("coracle-join-proof");
/// Who asks is told in the log by this header; believed is only that the proof is right.
pub const HOST: HeaderName = HeaderName::from_static("coracle-join-host");

/// What is logged of a host's name.
const HOST_LENGTH: usize = 253;
/// The form of [`SharedRecord`].
const VERSION: u32 = 1;

/// What lies in the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedRecord {
    version: u32,
    /// SHA-256 of the proof, in hex.
    proof_hash: String,
    /// What is shared, as text.
    sealed: String,
}

impl fmt::Debug for SharedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecord")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl SharedRecord {
    /// What is given to whoever shows `proof`.
    #[must_use]
    pub fn new(proof: &[u8; 32], sealed: String) -> Self {
        Self {
            version: VERSION,
            proof_hash: hex::encode(Sha256::digest(proof)),
            sealed,
        }
    }

    /// What is shared, sealed.
    #[must_use]
    pub fn sealed(&self) -> &str {
        &self.sealed
    }

    /// Reads what lies in the store; `None` for what this release does not know.
    #[must_use]
    pub fn parse(stored: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(stored).ok()?;
        (record.version == VERSION).then_some(record)
    }

    fn is_proved_by(&self, proof: &[u8; 32]) -> bool {
        let (known, shown) = (self.proof_hash.as_bytes(), Sha256::digest(proof));
        let shown = hex::encode(shown);
        // In a time that does not depend on where they differ.
        known.len() == shown.len()
            && known
                .iter()
                .zip(shown.as_bytes())
                .fold(0, |differs, (a, b)| differs | (a ^ b))
                == 0
    }
}

/// Answers somebody who is nobody to the API: before authentication, which knows of no such proof.
pub(crate) async fn serve(
    server: &Arc<State>,
    peer: Option<SocketAddr>,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    if parts.method != Method::GET {
        return Err(Status::no_such_path());
    }
    let backend = &server.store.backend;
    if !backend.is_shared() {
        return Err(Status::bad_request(
            "its objects are in a store of its own, which no second server can have: move them to etcd first \
             (`coracle store copy --from sqlite --to etcd=URL,...`)",
        ));
    }
    let too_many = || {
        Status::too_many_requests_because(
            "too many wrong tokens were shown within a minute: wait for one",
            u32::try_from(WITHIN.as_secs()).unwrap_or(u32::MAX),
        )
    };
    let address = peer.map(|peer| peer.ip());
    server
        .join_attempts
        .begin(address, Instant::now())
        .ok_or_else(too_many)?;
    let peer = peer.map_or_else(|| "this process".to_owned(), |peer| peer.to_string());
    let stored = backend.get(KEY).await.map_err(store_status)?;
    let Some(record) = stored.and_then(|stored| SharedRecord::parse(&stored.value)) else {
        return Err(Status::service_unavailable(
            "what servers share is not in the store: start the first server again",
        ));
    };
    if !proof(parts).is_some_and(|proof| record.is_proved_by(&proof)) {
        tracing::warn!(peer, "refused a server that does not know the server token");
        return Err(Status::unauthorized());
    }
    server.join_attempts.forgive(address);
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host: String = host.unwrap_or_default().chars().take(HOST_LENGTH).collect();
    tracing::info!(
        peer,
        host,
        "gave what the servers of this cluster share to one that joins"
    );
    Ok(Reply::new(StatusCode::OK, TEXT, record.sealed).into_response())
}

fn proof(parts: &Parts) -> Option<[u8; 32]> {
    let mut proof = [0; 32];
    let shown = parts.headers.get(PROOF)?.as_bytes();
    hex::decode_to_slice(shown, &mut proof).ok()?;
    Some(proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_opened_by_its_proof_alone() {
        let record = SharedRecord::new(&[7; 32], "sealed".to_owned());
        assert!(record.is_proved_by(&[7; 32]));
        let mut other = [7; 32];
        other[31] = 8;
        assert!(!record.is_proved_by(&other));
        let text = serde_json::to_vec(&record).unwrap();
        assert_eq!(SharedRecord::parse(&text), Some(record));
        assert!(
            !String::from_utf8(text)
                .unwrap()
                .contains(&hex::encode([7; 32]))
        );
        for other in ["", "{}", r#"{"version":2,"proofHash":"","sealed":""}"#] {
            assert_eq!(SharedRecord::parse(other.as_bytes()), None, "{other}");
        }
    }
}
