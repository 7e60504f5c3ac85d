//! Webhook configurations and policies that a server reads from files, before all that clients
//! make: they hold from the first request on, nobody can take them away by the API, and they are
//! asked about webhook configurations and policies, too.
//!
//! ```text
//! at the start   directory > documents > decoded, defaulted, checked > kept; anything wrong ends the server
//! afterwards     every 10 s the same, if the files say something else; anything wrong leaves what was
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`config`] | where they are |
//! | `directory` | reads files |
//! | [`metrics`] | counts |
//! | `objects` | makes objects of what they say |
//!
//! Each server has its own. The directories are read, never written.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/manifest`,
//! `.../plugin/{webhook,policy}/manifest/{loader,source}` at v1.37.

pub(crate) mod config;
mod directory;
pub(crate) mod metrics;
mod objects;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use self::metrics::ManifestMetrics;
use crate::config::file::AdmissionConfigError;

/// Between two looks at the files. Upstream looks every minute, and is woken by the kernel.
const PERIOD: Duration = Duration::from_secs(10);

/// What a directory has, for one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    MutatingWebhooks,
    ValidatingWebhooks,
    MutatingPolicies,
    ValidatingPolicies,
}

impl Holds {
    fn plugin(self) -> &'static str {
        match self {
            Self::MutatingWebhooks => "MutatingAdmissionWebhook",
            Self::ValidatingWebhooks => "ValidatingAdmissionWebhook",
            Self::MutatingPolicies => "MutatingAdmissionPolicy",
            Self::ValidatingPolicies => "ValidatingAdmissionPolicy",
        }
    }
}

/// The files of one plugin.
#[derive(Debug)]
pub(crate) struct Source {
    holds: Holds,
    directory: PathBuf,
    now: watch::Sender<Arc<Loaded>>,
}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// How often they were read anew: what was made of older ones is not theirs.
    version: i64,
    /// How they are told from others.
    hash: String,
    /// Configurations or policies, by name.
    pub(crate) objects: Vec<Value>,
    /// Of policies.
    pub(crate) bindings: Vec<Value>,
}

impl Source {
    /// Reads what there is.
    ///
    /// # Errors
    /// The directory cannot be read, or a file says what may not be said.
    pub(crate) fn open(holds: Holds, directory: &str) -> Result<Self, AdmissionConfigError> {
        let wrong = |why: &str| {
            AdmissionConfigError(format!(
                "staticManifestsDir: Invalid value: {directory:?}: {why}"
            ))
        };
        let path = Path::new(directory);
        if !path.is_absolute() {
            return Err(wrong("must be an absolute file path"));
        }
        match path.metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(wrong("must be a directory")),
            Err(error) => return Err(wrong(&format!("unable to read: {error}"))),
        }
        let loaded = load(holds, path, 1).map_err(AdmissionConfigError)?;
        Ok(Self {
            holds,
            directory: path.to_owned(),
            now: watch::Sender::new(Arc::new(loaded)),
        })
    }

    /// What there is, and what changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Loaded>> {
        self.now.subscribe()
    }

    /// Takes in what changes until `stop`.
    pub(crate) async fn follow(&self, stop: &CancellationToken, metrics: &ManifestMetrics) {
        let plugin = self.holds.plugin();
        let first = Arc::clone(&self.now.borrow());
        metrics.taken(plugin, &first.hash);
        let mut wrong = String::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(PERIOD) => {}
            }
            let (holds, directory) = (self.holds, self.directory.clone());
            let version = self.now.borrow().version;
            let loaded = spawn_blocking(move || load(holds, &directory, version + 1)).await;
            match loaded.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(loaded) => {
                    wrong.clear();
                    if loaded.hash != self.now.borrow().hash {
                        metrics.taken(plugin, &loaded.hash);
                        tracing::info!(
                            directory = %self.directory.display(),
                            hash = loaded.hash,
                            "static manifests of admission are read anew"
                        );
                        self.now.send_replace(Arc::new(loaded));
                    }
                }
                Err(error) => {
                    metrics.failed(plugin);
                    // Once: it stays as it is until somebody mends it.
                    if error == wrong {
                        continue;
                    }
                    tracing::error!(
                        directory = %self.directory.display(),
                        error,
                        "static manifests of admission are not taken: what was read before holds on"
                    );
                    wrong = error;
                }
            }
        }
    }
}

fn load(holds: Holds, directory: &Path, version: i64) -> Result<Loaded, String> {
    let (documents, hash) = directory::read(directory)?;
    let (objects, bindings) = objects::of(holds, documents, version)?;
    Ok(Loaded {
        version,
        hash,
        objects,
        bindings,
    })
}

#[cfg(test)]
mod tests;
