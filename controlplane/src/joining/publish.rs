//! Puts what servers share into the store, sealed by the server token: done at each start of a
//! server that has not joined.

use std::path::Path;

use coracle_apiserver::{
    joining::{KEY, SharedRecord},
    pki::Pki,
};
use coracle_store::{Backend, Compare, KeyValue, Op, Txn, TxnOutcome};
use coracle_store_etcd::EtcdConfig;
use coracle_telemetry::ErrorChain;

use super::{
    JoinError,
    seal::Keys,
    shared::Shared,
    token::{self, ServerToken},
};
use crate::config::ServerConfig;

/// Sees that what this server shares is in the store. A store that does not take it now keeps no
/// server from starting; none can join until the next start.
///
/// # Errors
/// A token that cannot be used, or a file.
pub(crate) async fn publish(
    config: &ServerConfig,
    pki: &Pki,
    etcd: &EtcdConfig,
    backend: &dyn Backend,
) -> Result<(), JoinError> {
    if config.has_joined {
        return Ok(());
    }
    let dir = config.data_dir.join("server");
    let ca_hash = pki.ca_hash()?;
    let chosen = config.server_token.as_deref();
    let chosen = chosen.map(|text| ServerToken::chosen(text, &ca_hash));
    let chosen = chosen.transpose()?;
    let kept = ServerToken::read(&dir)?;
    let (own, files, etcd) = (config.clone(), pki.clone(), etcd.clone());
    let reading = tokio::task::spawn_blocking(move || Shared::of(&own, &files, &etcd));
    let shared = reading.await.map_err(|source| JoinError::Thread {
        what: "reading what servers share",
        source,
    })??;
    match backend.get(KEY).await? {
        Some(stored) => {
            let is_chosen = chosen.is_some();
            match chosen.or(kept) {
                Some(token) => {
                    bring_up_to_date(&dir, token, is_chosen, &shared, stored, backend).await
                }
                None => {
                    tracing::info!(
                        "another server keeps the token by which servers join; this one can be joined by it, too"
                    );
                    Ok(())
                }
            }
        }
        None => {
            let token = match chosen.or(kept) {
                Some(token) => token,
                None => ServerToken::random(&ca_hash)?,
            };
            publish_first(&dir, token, &shared, backend).await
        }
    }
}

/// Puts it where nothing is yet.
async fn publish_first(
    dir: &Path,
    token: ServerToken,
    shared: &Shared,
    backend: &dyn Backend,
) -> Result<(), JoinError> {
    let path = token::file(dir);
    let is_new = !path.exists();
    // First: what is in the store has to be opened by what somebody has.
    token.write(dir)?;
    let put = put(token, shared, Compare::Absent(KEY.into()), backend).await?;
    if put == Put::Others && is_new {
        std::fs::remove_file(&path).map_err(|source| JoinError::File {
            operation: "remove",
            path,
            source,
        })?;
    }
    Ok(())
}

/// Puts it in the place of what this server, or another with its token, has put there before; what
/// another token opens is left alone.
async fn bring_up_to_date(
    dir: &Path,
    token: ServerToken,
    is_chosen: bool,
    shared: &Shared,
    stored: KeyValue,
    backend: &dyn Backend,
) -> Result<(), JoinError> {
    let keys = Keys::of_token(token.clone()).await?;
    let record = SharedRecord::parse(&stored.value);
    let clear = record.and_then(|record| keys.open(record.sealed()).ok());
    let Some(before) = clear.and_then(|clear| Shared::parse(&clear)) else {
        if is_chosen {
            return Err(JoinError::OtherToken);
        }
        tracing::warn!(
            file = %token::file(dir).display(),
            "this is not the token by which servers join this cluster: another server has made that"
        );
        return Ok(());
    };
    if is_chosen {
        token.write(dir)?;
    }
    let changed = before.differences(shared);
    if changed.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        changed = changed.join(" "),
        "what servers share has changed: start the others again, which then go by it"
    );
    let unchanged = Compare::ModRevision(KEY.into(), stored.mod_revision);
    put(token, shared, unchanged, backend).await.map(drop)
}

/// What is there after [`put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    Own,
    /// Certainly not this server's.
    Others,
    /// It may have been written all the same: the token that opens it has to stay.
    Unknown,
}

async fn put(
    token: ServerToken,
    shared: &Shared,
    unchanged: Compare,
    backend: &dyn Backend,
) -> Result<Put, JoinError> {
    let keys = Keys::of_token(token).await?;
    let sealed = keys.seal(&serde_json::to_vec(shared)?)?;
    let record = SharedRecord::new(&keys.proof()?, sealed);
    let value = serde_json::to_vec(&record)?;
    let written = backend
        .txn(Txn {
            compare: vec![unchanged],
            ops: vec![Op::Put {
                key: KEY.into(),
                value: value.into(),
            }],
            may_use_disk_reserve: false,
        })
        .await;
    Ok(match written {
        Ok(TxnOutcome::Committed(_)) => Put::Own,
        Ok(TxnOutcome::Conflict(_)) => {
            tracing::warn!(
                "another server has just written what servers share: give all of them the same flags"
            );
            Put::Others
        }
        Err(error) => {
            tracing::warn!(
                error = %ErrorChain(&error),
                "cannot write what servers share: none can join until this one is started again"
            );
            Put::Unknown
        }
    })
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::pki::ServerNames;
    use coracle_store::testing::FailingBackend;

    use super::*;

    #[tokio::test]
    async fn a_token_goes_only_if_another_servers_is_there() {
        let pki = Pki::ephemeral(&ServerNames::default()).unwrap();
        let etcd = EtcdConfig::new(vec!["http://127.0.0.1:2379".to_owned()]);
        let config = ServerConfig::new("/data", "127.0.0.1:6443".parse().unwrap());
        let shared = Shared::of(&config, &pki, &etcd).unwrap();
        let (taken, unsure) = (FailingBackend::default(), FailingBackend::default());
        unsure.doubt();
        let token = || ServerToken::random(&pki.ca_hash().unwrap()).unwrap();
        let other = put(token(), &shared, Compare::Absent(KEY.into()), &taken).await;
        assert_eq!(other.unwrap(), Put::Own);
        for (backend, stays) in [(&taken, false), (&unsure, true)] {
            let dir = tempfile::tempdir().unwrap();
            let published = publish_first(dir.path(), token(), &shared, backend).await;
            published.unwrap();
            assert_eq!(token::file(dir.path()).exists(), stays);
        }
    }
}
