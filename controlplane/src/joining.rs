//! How a server comes to a cluster that has one already: `coracle server --join`.
//!
//! ```text
//! the first server:  its certificate authorities, keys and settings --sealed by the server token--> store
//! one that joins:    --join FIRST, CA pinned by the token's hash, proof made of the token
//!                      > the sealed text > opened by the token > files below DATA/server, all or none
//! later:             it looks into the store for what has changed; FIRST is not needed
//! ```
//! What servers share is ruled by those that have not joined: their flags and files. One that has
//! joined takes it over at each start, and refuses flags that contradict it.
//!
//! | module | does |
//! |---|---|
//! | `token` | the server token and its file |
//! | `seal` | what is made of a token: proof, sealing, opening |
//! | `shared` | what servers share, and what flags say against it |
//! | `ask` | asks the first server, and no other |
//! | `files` | what a server that has joined keeps |
//! | `publish` | puts what servers share into the store |
//! | `error` | why it cannot be |
//!
//! Source: k3s `pkg/cluster/{bootstrap,storage,encrypt}.go`, `pkg/bootstrap`, `pkg/clientaccess`.

mod ask;
mod error;
mod files;
mod publish;
mod seal;
mod shared;
mod token;

use std::{collections::BTreeSet, fs::File, path::Path, time::Duration};

use coracle_apiserver::{
    joining::{KEY, SharedRecord},
    pki::Pki,
};
use coracle_store::{Backend as _, sqlite::SqliteBackend};
use coracle_store_etcd::{
    EtcdBackend, EtcdConfig,
    status::{self, DataStatus},
};
use coracle_telemetry::ErrorChain;
use tokio::time::Instant;

pub(crate) use self::publish::publish;
use self::{
    ask::First,
    files::{Joined, Staged},
    seal::Keys,
    shared::Shared,
    token::ServerToken,
};
pub use self::{error::JoinError, seal::SealError};
use crate::config::{ServerConfig, StoreEngine};

/// How long an etcd is waited for that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);

/// What the command line says about joining.
#[derive(Debug, Clone, Default)]
pub struct JoinOptions {
    /// `--join`.
    pub first: Option<String>,
    /// `--token`.
    pub token: Option<String>,
    /// Flags that were given, and not left at their defaults: `--service-cidr`.
    pub given: BTreeSet<&'static str>,
}

/// The configuration with which the server starts: joins if that was asked for and has not been
/// done, and takes over what servers share if this one has joined.
///
/// # Errors
/// One sentence; nothing was left behind then.
pub async fn prepare(
    mut config: ServerConfig,
    options: &JoinOptions,
) -> Result<ServerConfig, JoinError> {
    files::sweep(&config.data_dir)?;
    let dir = config.data_dir.join("server");
    match (&options.first, Joined::read(&dir)?) {
        (_, Some(joined)) => {
            let _lock = keep_off(&dir)?;
            if let Some(token) = &options.token {
                check_token(&dir, token)?;
            }
            go_on(&mut config, joined, options, &dir).await?;
        }
        (Some(first), None) => join(&mut config, &First::parse(first)?, options, &dir).await?,
        (None, None) => {
            config.server_token.clone_from(&options.token);
            if config.server_token.is_some() && etcd_of(&config).is_none() {
                return Err(JoinError::NothingShared);
            }
        }
    }
    config.has_joined = Joined::is_in(&dir);
    Ok(config)
}

/// The server token that a server keeps in `data_dir`, whole; `None` if it keeps none.
///
/// # Errors
/// [`JoinError::File`], [`JoinError::Damaged`].
pub fn read_token(data_dir: &Path) -> Result<Option<String>, JoinError> {
    let token = ServerToken::read(&data_dir.join("server"))?;
    Ok(token.map(|token| token.text()))
}

/// Nothing of a server that runs is changed. A directory that is new has nobody yet.
fn keep_off(dir: &Path) -> Result<Option<File>, JoinError> {
    match dir.join("pki").exists() {
        true => SqliteBackend::keep_off(dir).map_err(JoinError::Locked),
        false => Ok(None),
    }
}

/// A server that has joined is given a token again: fine, if it is the one that it keeps.
fn check_token(dir: &Path, given: &str) -> Result<(), JoinError> {
    let hash = ca_hash(dir)?;
    let given = ServerToken::chosen(given, &hash)?;
    match ServerToken::read(dir)? == Some(given) {
        true => Ok(()),
        false => Err(JoinError::OtherToken),
    }
}

/// Of the server in `dir`, which has joined.
fn ca_hash(dir: &Path) -> Result<String, JoinError> {
    let path = dir.join("pki");
    Pki::ca_hash_in(&path)?.ok_or(JoinError::Damaged { path })
}

async fn join(
    config: &mut ServerConfig,
    first: &First,
    options: &JoinOptions,
    dir: &Path,
) -> Result<(), JoinError> {
    let token = ServerToken::parse(options.token.as_deref().ok_or(JoinError::NoToken)?)?;
    files::check_free(dir, &token.ca_hash)?;
    let _lock = keep_off(dir)?;
    let keys = Keys::of_token(token.clone()).await?;
    let sealed = ask::fetch(first, &token, &keys, &config.host_name).await?;
    let not_opened = || JoinError::NotOpened {
        url: first.url.clone(),
    };
    let clear = keys.open(&sealed).map_err(|error| match error {
        SealError::NotOpened => not_opened(),
        other => other.into(),
    })?;
    let shared = Shared::parse(&clear).ok_or_else(not_opened)?;
    if shared.ca_hash() != Some(token.ca_hash.clone()) {
        return Err(not_opened());
    }
    shared.settings.impose(config, &options.given)?;
    let (endpoints, prefix) = (&shared.etcd.endpoints, &shared.etcd.prefix);
    let own = own_store(config, options, endpoints, prefix)?;
    let staged = Staged::write(&config.data_dir, &token, &shared, own.as_ref())?;
    // With what it will have, before any of it counts.
    open(&staged.etcd(), &token.ca_hash).await?;
    config.store = StoreEngine::Etcd(staged.put(dir)?);
    tracing::info!(
        first = first.url,
        "took over what the servers of this cluster share"
    );
    Ok(())
}

/// Starts as what it is: with what servers share as it is in the store now.
async fn go_on(
    config: &mut ServerConfig,
    mut joined: Joined,
    options: &JoinOptions,
    dir: &Path,
) -> Result<(), JoinError> {
    let hash = ca_hash(dir)?;
    let (endpoints, prefix) = joined.store();
    if let Some(own) = own_store(config, options, endpoints, prefix)? {
        joined.use_own(&own);
    }
    let backend = open(&joined.etcd(dir), &hash).await?;
    match look_up(&backend, dir).await {
        Ok(shared) => joined.renew(dir, &shared)?,
        Err(error) => tracing::warn!(
            error = %ErrorChain(&error),
            "cannot look up what servers share now; this one goes on with what it knows"
        ),
    }
    joined.settings.impose(config, &options.given)?;
    config.store = StoreEngine::Etcd(joined.etcd(dir));
    Ok(())
}

/// The store of the other servers. One that is empty is not theirs, and stays empty.
async fn open(etcd: &EtcdConfig, ca_hash: &str) -> Result<EtcdBackend, JoinError> {
    let end = Instant::now() + PATIENCE;
    let data = loop {
        let found = Box::pin(status::status(etcd)).await?;
        let is_answered = found.members.iter().any(|member| member.said.is_ok());
        if (is_answered && found.data.is_ok()) || Instant::now() >= end {
            break found.data;
        }
        tokio::time::sleep(AGAIN).await;
    };
    match data.map_err(|error| JoinError::LookAtStore(Box::new(error)))? {
        DataStatus::Empty => Err(JoinError::OtherStore),
        _ => Ok(Box::pin(EtcdBackend::open(etcd, ca_hash)).await?),
    }
}

/// What servers share, by the token that this one keeps.
async fn look_up(backend: &EtcdBackend, dir: &Path) -> Result<Shared, JoinError> {
    let token = ServerToken::read(dir)?.ok_or_else(|| JoinError::DamagedToken {
        path: token::file(dir),
    })?;
    let stored = backend.get(KEY).await?.ok_or(JoinError::NothingInStore)?;
    let record = SharedRecord::parse(&stored.value);
    let keys = Keys::of_token(token).await?;
    let clear = record.and_then(|record| keys.open(record.sealed()).ok());
    clear
        .and_then(|clear| Shared::parse(&clear))
        .ok_or(JoinError::OtherToken)
}

/// Where etcd is for this machine, if its flags say it: the same data, perhaps by other addresses.
fn own_store(
    config: &ServerConfig,
    options: &JoinOptions,
    endpoints: &[String],
    prefix: &str,
) -> Result<Option<EtcdConfig>, JoinError> {
    if !options.given.contains("--store") {
        return Ok(None);
    }
    let contradiction = |flag, given: &str, theirs| JoinError::Contradiction {
        flag,
        given: given.to_owned(),
        theirs,
    };
    match etcd_of(config) {
        Some(own) if own.prefix == prefix => Ok(Some(own.clone())),
        Some(own) => Err(contradiction(
            "--etcd-prefix",
            &own.prefix,
            prefix.to_owned(),
        )),
        None => {
            let given = match config.store {
                StoreEngine::Memory => "memory",
                _ => "sqlite",
            };
            let theirs = format!("etcd={}", endpoints.join(","));
            Err(contradiction("--store", given, theirs))
        }
    }
}

fn etcd_of(config: &ServerConfig) -> Option<&EtcdConfig> {
    match &config.store {
        StoreEngine::Etcd(etcd) => Some(etcd),
        StoreEngine::Sqlite | StoreEngine::Memory => None,
    }
}
