//! What a server that has joined keeps below `DATA/server`, written all at once.
//!
//! ```text
//! pki/ca.* kubelet-ca.* sa.key   what all servers have; the rest each makes for itself
//! etcd/ca.crt client.crt .key    as the first server shows them to etcd, if it does
//! token                          the server token
//! joined.json                    settings, and where etcd is: says that this server has joined
//! ```
//! They are written into `DATA/server.joining`, which then takes its name. A process that is killed
//! before leaves that directory, and the next start removes it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use coracle_apiserver::pki::{self, Pki};
use coracle_store_etcd::{EtcdConfig, EtcdTls};
use serde::{Deserialize, Serialize};

use super::{
    JoinError,
    shared::{Settings, Shared, SharedEtcd},
    token::ServerToken,
};

const STAGING: &str = "server.joining";
const JOINED: &str = "joined.json";
const PKI: &str = "pki";
const ETCD: &str = "etcd";

/// What stands in `joined.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Joined {
    pub(super) settings: Settings,
    etcd: Store,
}

/// Where etcd is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    endpoints: Vec<String>,
    prefix: String,
    /// Whether this machine's flags said it, and not the other servers.
    is_own: bool,
    /// Relative ones are below `DATA/server`.
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Store {
    fn own(etcd: &EtcdConfig) -> Self {
        // What the flags say is seen from where the program was started.
        let path = |path: &Option<PathBuf>| {
            let path = path.as_deref()?;
            Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
        };
        Self {
            endpoints: etcd.endpoints.clone(),
            prefix: etcd.prefix.clone(),
            is_own: true,
            ca: path(&etcd.tls.ca),
            cert: path(&etcd.tls.cert),
            key: path(&etcd.tls.key),
        }
    }

    fn shared(etcd: &SharedEtcd) -> Self {
        let [ca, cert, key] = certificates(etcd).map(|(name, text)| {
            let path = Path::new(ETCD).join(name);
            text.is_some().then_some(path)
        });
        Self {
            endpoints: etcd.endpoints.clone(),
            prefix: etcd.prefix.clone(),
            is_own: false,
            ca,
            cert,
            key,
        }
    }

    fn config(&self, dir: &Path) -> EtcdConfig {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| dir.join(path));
        let mut config = EtcdConfig::new(self.endpoints.clone());
        config.prefix.clone_from(&self.prefix);
        config.tls = EtcdTls {
            ca: path(&self.ca),
            cert: path(&self.cert),
            key: path(&self.key),
        };
        config
    }
}

/// Their files, and what is in them.
fn certificates(etcd: &SharedEtcd) -> [(&'static str, Option<&String>); 3] {
    [
        ("ca.crt", etcd.ca.as_ref()),
        ("client.crt", etcd.cert.as_ref()),
        ("client.key", etcd.key.as_ref()),
    ]
}

impl Joined {
    /// Whether the server in `dir` has joined.
    pub(super) fn is_in(dir: &Path) -> bool {
        dir.join(JOINED).exists()
    }

    /// What is known of a server that has joined; `None` if the one in `dir` has not.
    ///
    /// # Errors
    /// [`JoinError::File`], [`JoinError::Damaged`].
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, JoinError> {
        let path = dir.join(JOINED);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &path, source)),
        };
        let joined = serde_json::from_slice(&text);
        joined.map(Some).map_err(|_| JoinError::Damaged { path })
    }

    /// Addresses and prefix of etcd.
    pub(super) fn store(&self) -> (&[String], &str) {
        (&self.etcd.endpoints, &self.etcd.prefix)
    }

    /// Where etcd is for the server in `dir`.
    pub(super) fn etcd(&self, dir: &Path) -> EtcdConfig {
        self.etcd.config(dir)
    }

    /// Goes by what this machine's flags say of etcd.
    pub(super) fn use_own(&mut self, etcd: &EtcdConfig) {
        self.etcd = Store::own(etcd);
    }

    /// Takes over what servers share now.
    ///
    /// # Errors
    /// [`JoinError::Pki`] names the file that could not be written.
    pub(super) fn renew(&mut self, dir: &Path, shared: &Shared) -> Result<(), JoinError> {
        self.settings = shared.settings.clone();
        if !self.etcd.is_own {
            self.etcd = Store::shared(&shared.etcd);
        }
        self.write(dir, shared)
    }

    /// Writes what is not there yet; `joined.json` last.
    fn write(&self, dir: &Path, shared: &Shared) -> Result<(), JoinError> {
        let pki = dir.join(PKI);
        pki::ensure_private_dir(&pki)?;
        for (name, text) in &shared.files {
            pki::keep_private(&pki.join(name), text.as_bytes())?;
        }
        let etcd = dir.join(ETCD);
        for (name, text) in certificates(&shared.etcd) {
            if let Some(text) = text.filter(|_| !self.etcd.is_own) {
                pki::ensure_private_dir(&etcd)?;
                pki::keep_private(&etcd.join(name), text.as_bytes())?;
            }
        }
        let path = dir.join(JOINED);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| failed("write", &path, io::Error::other(error)))?;
        Ok(pki::keep_private(&path, &text)?)
    }
}

/// Removes what a process has left that was killed while it joined.
///
/// # Errors
/// [`JoinError::File`].
pub(super) fn sweep(data_dir: &Path) -> Result<(), JoinError> {
    let staging = data_dir.join(STAGING);
    match fs::remove_dir_all(&staging) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", &staging, error))
        }
        _ => Ok(()),
    }
}

/// Refuses a directory that has something else in it than a server of this very cluster.
///
/// # Errors
/// [`JoinError::Occupied`].
pub(super) fn check_free(dir: &Path, ca_hash: &str) -> Result<(), JoinError> {
    let is_empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(source) => return Err(failed("read", dir, source)),
    };
    match is_empty || Pki::ca_hash_in(&dir.join(PKI))?.as_deref() == Some(ca_hash) {
        true => Ok(()),
        false => Err(JoinError::Occupied {
            dir: dir.to_owned(),
        }),
    }
}

/// All files, where they do not count yet. Dropped, it leaves nothing.
pub(super) struct Staged {
    data_dir: PathBuf,
    /// Whether it was made for this.
    is_data_dir_new: bool,
    token: ServerToken,
    shared: Shared,
    joined: Joined,
}

impl Staged {
    /// Writes them.
    ///
    /// # Errors
    /// [`JoinError::Pki`] names the file that could not be written.
    pub(super) fn write(
        data_dir: &Path,
        token: &ServerToken,
        shared: &Shared,
        own: Option<&EtcdConfig>,
    ) -> Result<Self, JoinError> {
        let joined = Joined {
            settings: shared.settings.clone(),
            etcd: own.map_or_else(|| Store::shared(&shared.etcd), Store::own),
        };
        let staged = Self {
            is_data_dir_new: !data_dir.exists(),
            data_dir: data_dir.to_owned(),
            token: token.clone(),
            shared: shared.clone(),
            joined,
        };
        let dir = staged.dir();
        pki::ensure_private_dir(&dir)?;
        token.write(&dir)?;
        staged.joined.write(&dir, shared)?;
        Ok(staged)
    }

    fn dir(&self) -> PathBuf {
        self.data_dir.join(STAGING)
    }

    /// Where etcd is, by these files.
    pub(super) fn etcd(&self) -> EtcdConfig {
        self.joined.etcd(&self.dir())
    }

    /// Makes them those of the server in `dir`, and says where etcd is for it.
    ///
    /// # Errors
    /// [`JoinError::File`].
    pub(super) fn put(self, dir: &Path) -> Result<EtcdConfig, JoinError> {
        let staging = self.dir();
        match fs::rename(&staging, dir) {
            Ok(()) => {}
            // A server of this cluster is there that did not come by joining: all but what says
            // that it has joined is the same, or may be there without harm.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                self.token.write(dir)?;
                self.joined.write(dir, &self.shared)?;
            }
            Err(source) => return Err(failed("write", dir, source)),
        }
        fs::File::open(&self.data_dir)
            .and_then(|data_dir| data_dir.sync_all())
            .map_err(|source| failed("write", &self.data_dir, source))?;
        Ok(self.joined.etcd(dir))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = sweep(&self.data_dir) {
            tracing::warn!(error = %coracle_telemetry::ErrorChain(&error), "something is left of joining");
        }
        if self.is_data_dir_new {
            // Only an empty one goes.
            let _ = fs::remove_dir(&self.data_dir);
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> JoinError {
    JoinError::File {
        operation,
        path: path.to_owned(),
        source,
    }
}
