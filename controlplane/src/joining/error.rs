//! Why a server cannot join: a sentence each.

use std::{io, path::PathBuf};

use coracle_apiserver::pki::PkiError;
use coracle_store::StoreError;

use super::SealError;

/// Why a server cannot join, or cannot go on as one that has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// `--join` is no URL.
    #[error("--join {url:?} cannot be used: expected https://ADDRESS or https://ADDRESS:PORT")]
    Url {
        /// As given.
        url: String,
    },
    /// There is no token.
    #[error(
        "--join needs --token (or CORACLE_SERVER_TOKEN): `coracle token server` prints it on a server"
    )]
    NoToken,
    /// The token is none.
    #[error(
        "--token: expected K10<64 hex digits>::server:<secret>, as `coracle token server` prints it on a server"
    )]
    TokenForm,
    /// The token is a node's.
    #[error(
        "--token is a token for nodes: servers join with the one that `coracle token server` prints on a server"
    )]
    NodeToken,
    /// What was chosen is no token.
    #[error("--token: choose at least 16 and at most 256 visible ASCII characters")]
    ChosenToken,
    /// The token names another authority than this server has.
    #[error("--token is of another cluster than what this server has in its --data-dir")]
    OtherClustersToken,
    /// There is nobody to share anything with.
    #[error(
        "--token is for servers that share a store: name it (--store etcd=URL,...), or leave --token out"
    )]
    NothingShared,
    /// The machine gives no random numbers.
    #[error("this machine gives no random numbers to make a token of")]
    NoRandomness,
    /// Nobody answers.
    #[error("the server at {url} cannot be reached")]
    Unreachable {
        /// As given.
        url: String,
        /// What is in the way.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It answers, and only says when to come again.
    #[error("the server at {url} has put this one off for too long")]
    PutOff {
        /// As given.
        url: String,
        /// What it says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It is not the server that the token is of.
    #[error(
        "the server at {url} does not have the certificate authority that the token names: it is another server, or the token is another cluster's"
    )]
    WrongAuthority {
        /// As given.
        url: String,
    },
    /// Its certificate has other names.
    #[error(
        "the certificate of the server at {url} is not for {host}: name it there with --tls-san {host}, or join by the address that it advertises"
    )]
    WrongName {
        /// As given.
        url: String,
        /// The host in it.
        host: String,
    },
    /// It has a certificate of the cluster that is for something else.
    #[error(
        "what answers at {url} has a certificate of this cluster, and not an API server's: name a server"
    )]
    NotApiServer {
        /// As given.
        url: String,
    },
    /// The token is wrong.
    #[error(
        "the server at {url} refuses the token: `coracle token server` prints the right one there"
    )]
    Refused {
        /// As given.
        url: String,
    },
    /// The server cannot be joined.
    #[error("the server at {url} cannot be joined: {why}")]
    Declined {
        /// As given.
        url: String,
        /// What it says.
        why: String,
    },
    /// What it gave is not what the token opens.
    #[error("what the server at {url} gives is not sealed with this token, or by another release")]
    NotOpened {
        /// As given.
        url: String,
    },
    /// A flag says something else than the other servers.
    #[error(
        "{flag} {given} contradicts the other servers of this cluster, which have {theirs}: leave it out"
    )]
    Contradiction {
        /// As it is written.
        flag: &'static str,
        /// Its value here.
        given: String,
        /// What the others have.
        theirs: String,
    },
    /// There is a server's data already.
    #[error(
        "{} has the data of another server already: choose another --data-dir, or move it away", dir.display()
    )]
    Occupied {
        /// The directory.
        dir: PathBuf,
    },
    /// A server runs on the directory.
    #[error(transparent)]
    Locked(StoreError),
    /// The store is not that of the others.
    #[error(
        "the etcd that is named has no data of this cluster: name that of the other servers, or leave --store out"
    )]
    OtherStore,
    /// The store of the others cannot be used.
    #[error("the store of the other servers cannot be used from this machine")]
    OpenStore(#[from] coracle_store_etcd::OpenError),
    /// Nobody says what is in it.
    #[error("the store of the other servers cannot be used from this machine")]
    LookAtStore(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It cannot be read or written.
    #[error("what servers share cannot be looked up in the store")]
    UseStore(#[from] StoreError),
    /// A file cannot be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// `read`, `write`...
        operation: &'static str,
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged: move the data directory away, and join again", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
    },
    /// The token file is not what it should be.
    #[error(
        "{} is damaged: put there the line that `coracle token server` prints on another server, or, if none has it, follow \
         the rotation by hand of docs/adr/0020; leave the rest of the directory, which has the cluster's keys", path.display()
    )]
    DamagedToken {
        /// Its path.
        path: PathBuf,
    },
    /// Certificates and keys cannot be read or written.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The store has nothing of what servers share.
    #[error(
        "the store has nothing of what its servers share: start the first server, which writes it, and then this one"
    )]
    NothingInStore,
    /// The token does not open what is in the store.
    #[error(
        "--token is not this cluster's server token: `coracle token server` prints it on the server that made it"
    )]
    OtherToken,
    /// A thread that does something on the side has ended without doing it.
    #[error("{what} ended unexpectedly")]
    Thread {
        /// What it was to do.
        what: &'static str,
        /// How it ended.
        source: tokio::task::JoinError,
    },
    /// What servers share cannot be put into words.
    #[error("what servers share cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
    /// What servers share can be neither sealed nor opened.
    #[error("what servers share cannot be sealed or opened with the server token")]
    Seal(#[from] SealError),
}
