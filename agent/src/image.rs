//! The node's images: pull, import, keep, remove.
//!
//! Layers are unpacked once each into directories that overlayfs stacks; nothing here mounts
//! anything. The agent and `coracle image` share one store through file locks, so the agent rereads
//! the index whenever the file has changed. Who may pull when (policies, back-off) is decided in
//! the pod workers.

mod access;
mod allowance;
mod archive;
mod blob;
mod capacity;
mod config;
pub(crate) mod credentials;
mod distribution;
pub(crate) mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod index;
mod layer;
mod progress;
mod pull;
pub mod reference;
pub mod registries;
mod unpack;

pub use self::{
    archive::ImportError,
    error::{
        DocumentError, LayerError, PullError, RegistryError, Said, StoreError, TooLarge,
        UnpackError,
    },
};

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Instant, SystemTime},
};

use async_trait::async_trait;
use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;

use self::{
    access::Key,
    capacity::Capacity,
    credentials::fingerprint,
    distribution::Retries,
    index::{Index, Layout, Record, store_error},
    registries::Registries,
};
use crate::{
    blocking::blocking,
    runtime::{Image, ImageError, ImageService, RegistryAuth},
};

/// Where the store is and whom it may ask.
#[derive(Debug, Clone)]
pub struct ImageStoreConfig {
    /// Such as `/var/lib/coracle/agent/images`.
    pub root_dir: PathBuf,
    /// Mirrors and credentials.
    pub registries: Registries,
}

/// The local image store.
pub struct ImageStore {
    layout: Layout,
    registries: Registries,
    capacity: Capacity,
    cache: Mutex<Option<CachedIndex>>,
    /// One slot a reference that is being or was pulled: makes concurrent pulls of one image one
    /// pull.
    pulls: Mutex<HashMap<String, Arc<PullSlot>>>,
}

struct CachedIndex {
    /// Modification time and inode of the file that was read: a rename gives a new inode.
    stamp: (SystemTime, u64),
    index: Arc<Index>,
}

/// When the last pull ended, what credentials it had and what it gave.
type PullSlot = tokio::sync::Mutex<Option<(Instant, Vec<String>, Image)>>;

/// Most references remembered in [`ImageStore::pulls`]; beyond, idle ones are forgotten.
const PULL_SLOTS_MAX: usize = 256;

impl ImageStore {
    /// Opens (or makes) the store and clears what an interrupted unpack left.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(config: ImageStoreConfig) -> Result<Arc<Self>, StoreError> {
        let layout = Layout::open(config.root_dir)?;
        layout.clean_staging()?;
        layout.read()?;
        // Layers whose import was killed before the index named them.
        if let Err(error) = layout.prune_layers() {
            tracing::warn!(
                error = %ErrorChain(&error),
                "cannot remove layers that no image names"
            );
        }
        Ok(Arc::new(Self {
            layout,
            registries: config.registries,
            capacity: Capacity::default(),
            cache: Mutex::new(None),
            pulls: Mutex::new(HashMap::new()),
        }))
    }

    /// Imports an OCI or docker archive. Returns the images as they are now. Blocking work runs
    /// aside.
    ///
    /// # Errors
    /// Says what is wrong with the archive; nothing of it is kept then.
    pub async fn import(&self, file: PathBuf) -> Result<Vec<Image>, ImportError> {
        let layout = self.layout.clone();
        let records = tokio::task::spawn_blocking(move || {
            let _held = layout.hold_layers()?;
            let records = archive::import(&layout, &file)?;
            layout.update(|index| {
                records
                    .iter()
                    .for_each(|record| index.insert(record.clone()))
            })?;
            Ok::<_, ImportError>(records)
        })
        .await
        .map_err(|error| ImportError::Malformed {
            why: format!("the import ended early: {error}"),
        })??;
        Ok(records.iter().map(Record::to_image).collect())
    }

    /// The index as on disk; from memory while the file is the same.
    fn index(&self) -> Result<Arc<Index>, StoreError> {
        use std::os::unix::fs::MetadataExt;
        let path = self.layout.index_path();
        let stamp = match std::fs::metadata(&path) {
            Ok(metadata) => (
                metadata.modified().map_err(store_error("stat", &path))?,
                metadata.ino(),
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(store_error("stat", &path)(error)),
        };
        let mut cache = self.cache.lock();
        if let Some(cached) = cache.as_ref().filter(|cached| cached.stamp == stamp) {
            return Ok(cached.index.clone());
        }
        let index = Arc::new(self.layout.read()?);
        *cache = Some(CachedIndex {
            stamp,
            index: index.clone(),
        });
        Ok(index)
    }

    fn find(&self, reference: &str) -> Result<Option<Record>, ImageError> {
        let index = self.index()?;
        if let Some(id) = reference::as_id(reference) {
            return Ok(index.find(Some(&id), &[]).cloned());
        }
        Ok(index.find(None, &names(reference)?).cloned())
    }

    /// Notes `key`, which opened the image: the content of a rotated secret in the place of what it
    /// had, or another secret with the same content. Without that note nothing is lost but a pull.
    async fn learn(&self, record: &Record, name: &str, key: &Key) {
        let opened = record.access.get(name);
        if key.secret.is_none()
            || !opened.is_some_and(|opened| access::learn(&mut opened.clone(), key))
        {
            return;
        }
        let (layout, record, name, key) = (
            self.layout.clone(),
            record.clone(),
            name.to_owned(),
            key.clone(),
        );
        let noted = blocking(move || {
            layout.update(|index| index.learn(&record.id, &name, &key))?;
            let note = |layer| layer::note(&layout, layer, None, std::slice::from_ref(&key));
            record.layers.iter().try_for_each(|layer| note(layer))
        });
        if let Err(error) = noted.await {
            tracing::warn!(error = %ErrorChain(&error), "cannot note who may use an image");
        }
    }

    fn pull_slot(&self, name: &str) -> Arc<PullSlot> {
        let mut pulls = self.pulls.lock();
        if pulls.len() >= PULL_SLOTS_MAX {
            pulls.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        pulls.entry(name.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl ImageService for ImageStore {
    async fn image_status(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        Ok(self.find(reference)?.as_ref().map(Record::to_image))
    }

    async fn pull_image(
        &self,
        reference: &str,
        auth: &[RegistryAuth],
    ) -> Result<Image, ImageError> {
        let asked = Instant::now();
        let parsed = reference::parse(reference)?;
        let slot = self.pull_slot(&parsed.whole());
        let mut last = slot.lock().await;
        let mut keys: Vec<String> = auth
            .iter()
            .map(|auth| format!("{} {}", auth.registry, fingerprint(auth)))
            .collect();
        keys.sort();
        // Somebody pulled it while we waited, and had to prove as much as we do.
        if let Some((ended, theirs, image)) = last.as_ref()
            && *ended >= asked
            && *theirs == keys
        {
            let image = image.clone();
            drop(last);
            // Notes our secrets beside theirs.
            self.may_use(reference, auth).await?;
            return Ok(image);
        }
        let layout = self.layout.clone();
        let _held = blocking(move || layout.hold_layers()).await?;
        let context = pull::Context {
            layout: &self.layout,
            registries: &self.registries,
            capacity: &self.capacity,
            retries: Retries::STANDARD,
        };
        let record =
            pull::pull(context, &parsed, auth)
                .await
                .map_err(|source| ImageError::Pull {
                    reference: parsed.whole(),
                    source: Box::new(source),
                })?;
        let image = record.to_image();
        let layout = self.layout.clone();
        blocking(move || layout.update(|index| index.insert(record))).await?;
        *last = Some((Instant::now(), keys, image.clone()));
        Ok(image)
    }

    async fn list_images(&self) -> Result<Vec<Image>, ImageError> {
        Ok(self.index()?.images.iter().map(Record::to_image).collect())
    }

    async fn remove_image(&self, reference: &str) -> Result<(), ImageError> {
        let id = reference::as_id(reference);
        let name = match &id {
            Some(_) => None,
            None => {
                let parsed = reference::parse(reference)?;
                parsed
                    .digest()
                    .map(|digest| reference::digest_name(&parsed, digest))
                    .or_else(|| reference::tag_name(&parsed))
            }
        };
        let layout = self.layout.clone();
        let removed = blocking(move || {
            layout.update(|index| index.remove(id.as_deref(), name.as_deref()))?;
            layout.prune_layers()
        });
        Ok(removed.await?)
    }

    async fn may_use(&self, reference: &str, auth: &[RegistryAuth]) -> Result<bool, ImageError> {
        let Some(record) = self.find(reference)? else {
            return Ok(false);
        };
        let names = match reference::as_id(reference) {
            Some(_) => record.access.keys().cloned().collect(),
            None => names(reference)?,
        };
        if record.is_open(&names) {
            return Ok(true);
        }
        for name in &names {
            let keys = pull::keys(&self.registries, name, auth);
            if let Some(key) = record.opener(name, &keys) {
                self.learn(&record, name, key).await;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn prune(&self) -> Result<(), ImageError> {
        let layout = self.layout.clone();
        Ok(blocking(move || layout.prune_layers()).await?)
    }

    async fn layers(&self, image_id: &str, holder: &Path) -> Result<Vec<PathBuf>, ImageError> {
        let record = self.find(image_id)?.ok_or_else(|| ImageError::Absent {
            reference: image_id.to_owned(),
        })?;
        let (layout, holder) = (self.layout.clone(), holder.to_owned());
        Ok(blocking(move || layout.hold_for(&holder, &record.layers)).await?)
    }
}

/// The names under which an image of this reference is kept.
fn names(reference: &str) -> Result<Vec<String>, ImageError> {
    let parsed = reference::parse(reference)?;
    Ok(match parsed.digest() {
        // A digest decides alone, even beside a tag.
        Some(digest) => vec![reference::digest_name(&parsed, digest)],
        None => reference::tag_name(&parsed).into_iter().collect(),
    })
}
