//! Which images there are: one JSON file beside the layers.
//!
//! Shape: `<root>/index.json`, written atomically under an exclusive `flock` of `<root>/lock`, so that the
//! agent and `coracle image` may both write. Layers live in `<root>/layers/<32 hex digits of the diff ID>/`
//! with the tree in `fs` and its size in bytes in `size`; a layer directory exists only once it is complete.
//! Blocking; call from `spawn_blocking`.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::runtime::{Image, ImageConfig, ImageError};

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `sha256:<config digest>`.
    pub id: String,
    /// Diff IDs, lowest layer first.
    pub layers: Vec<String>,
    /// Sum of the unpacked layers.
    pub size_bytes: u64,
    /// Tags, in full form.
    pub repo_tags: BTreeSet<String>,
    /// Digests, in full form.
    pub repo_digests: BTreeSet<String>,
    /// How to run it.
    pub config: ImageConfig,
}

impl Record {
    /// As CRI shows it.
    pub(crate) fn to_image(&self) -> Image {
        Image {
            id: self.id.clone(),
            repo_tags: self.repo_tags.iter().cloned().collect(),
            repo_digests: self.repo_digests.iter().cloned().collect(),
            size_bytes: self.size_bytes,
            config: self.config.clone(),
        }
    }
}

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// In no particular order.
    pub images: Vec<Record>,
}

impl Index {
    /// Adds `record`, or its names to the image that is there already; a tag moves away from any other image.
    pub(crate) fn insert(&mut self, record: Record) {
        for other in &mut self.images {
            if other.id != record.id {
                other.repo_tags.retain(|tag| !record.repo_tags.contains(tag));
            }
        }
        match self.images.iter_mut().find(|image| image.id == record.id) {
            Some(image) => {
                image.repo_tags.extend(record.repo_tags);
                image.repo_digests.extend(record.repo_digests);
            }
            None => self.images.push(record),
        }
    }

    /// Removes a tag or digest name, or the whole image by its ID. Says whether anything matched.
    pub(crate) fn remove(&mut self, id: Option<&str>, name: Option<&str>) -> bool {
        let before = self.clone();
        if let Some(id) = id {
            self.images.retain(|image| image.id != id);
        }
        if let Some(name) = name {
            for image in &mut self.images {
                image.repo_tags.remove(name);
                image.repo_digests.remove(name);
            }
            // The digest of a pull alone keeps no image: what no tag names any more was asked to go.
            self.images.retain(|image| {
                let named = before
                    .images
                    .iter()
                    .any(|old| old.id == image.id && (old.repo_tags.contains(name) || old.repo_digests.contains(name)));
                !named || !image.repo_tags.is_empty()
            });
        }
        *self != before
    }

    /// The image under an ID, a tag name or a digest name.
    pub(crate) fn find(&self, id: Option<&str>, names: &[String]) -> Option<&Record> {
        self.images.iter().find(|image| {
            id.is_some_and(|id| image.id == id)
                || names.iter().any(|name| image.repo_tags.contains(name) || image.repo_digests.contains(name))
        })
    }
}

/// The files of the store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directories if they are missing and removes what an interrupted unpack left.
    ///
    /// # Errors
    /// [`ImageError::Store`] if the directory cannot be made or locked.
    pub(crate) fn open(root: PathBuf) -> Result<Self, ImageError> {
        let layout = Self { root };
        for dir in [layout.layers_dir(), layout.staging_dir()] {
            fs::create_dir_all(&dir).map_err(store_error("create", &dir))?;
        }
        Ok(layout)
    }

    /// Holds the layers: while the returned file lives, nothing that is not in the index yet is removed.
    /// Every pull and import takes this first.
    pub(crate) fn hold_layers(&self) -> Result<fs::File, ImageError> {
        self.flock("layers.lock", rustix::fs::FlockOperation::LockShared)
    }

    /// Removes what an interrupted unpack left, unless an unpack is going on in any process.
    pub(crate) fn clean_staging(&self) -> Result<(), ImageError> {
        let Ok(_exclusive) = self.flock("layers.lock", rustix::fs::FlockOperation::NonBlockingLockExclusive) else {
            return Ok(());
        };
        let dir = self.staging_dir();
        for entry in fs::read_dir(&dir).map_err(store_error("list", &dir))?.flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(store_error("remove", &path))?;
        }
        Ok(())
    }

    fn layers_dir(&self) -> PathBuf {
        self.root.join("layers")
    }

    /// Where unpacking happens before the rename.
    pub(crate) fn staging_dir(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// The index file, for its modification time.
    pub(crate) fn index_path(&self) -> PathBuf {
        self.root.join("index.json")
    }

    /// The directory of a layer. `diff_id` has been checked to be `sha256:<64 hex>`.
    pub(crate) fn layer_dir(&self, diff_id: &str) -> PathBuf {
        let hex = diff_id.strip_prefix("sha256:").unwrap_or(diff_id);
        // Half the digest keeps the overlay mount options of many-layered images within a page.
        self.layers_dir().join(&hex[..hex.len().min(32)])
    }

    /// The unpacked size of a layer that is there.
    pub(crate) fn layer_size(&self, diff_id: &str) -> Option<u64> {
        fs::read_to_string(self.layer_dir(diff_id).join("size")).ok()?.trim().parse().ok()
    }

    /// Reads the index; a missing file is an empty index.
    pub(crate) fn read(&self) -> Result<Index, ImageError> {
        let path = self.index_path();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| ImageError::Store {
                operation: "parse",
                path,
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::default()),
            Err(source) => Err(ImageError::Store { operation: "read", path, source }),
        }
    }

    /// Changes the index under the lock; the change is durable when this returns.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Index) -> T) -> Result<T, ImageError> {
        let _lock = self.lock()?;
        let mut index = self.read()?;
        let result = change(&mut index);
        let path = self.index_path();
        let staged = self.root.join(".index.json.new");
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&staged)?;
            file.write_all(&serde_json::to_vec_pretty(&index)?)?;
            file.sync_all()?;
            fs::rename(&staged, &path)?;
            fs::File::open(&self.root)?.sync_all()
        };
        write().map_err(store_error("write", &path))?;
        Ok(result)
    }

    /// Removes layers that no image names. Does nothing while a pull is going on: the next removal catches up.
    pub(crate) fn prune_layers(&self) -> Result<(), ImageError> {
        let Ok(_exclusive) = self.flock("layers.lock", rustix::fs::FlockOperation::NonBlockingLockExclusive) else {
            return Ok(());
        };
        let used: BTreeSet<PathBuf> =
            self.read()?.images.iter().flat_map(|image| &image.layers).map(|layer| self.layer_dir(layer)).collect();
        let dir = self.layers_dir();
        for entry in fs::read_dir(&dir).map_err(store_error("list", &dir))?.flatten() {
            if !used.contains(&entry.path()) {
                fs::remove_dir_all(entry.path()).map_err(store_error("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// Puts a finished staging directory in its place; if the layer is there already, the staged one is dropped.
    pub(crate) fn adopt_layer(&self, staged: &Path, diff_id: &str) -> Result<(), ImageError> {
        let target = self.layer_dir(diff_id);
        match fs::rename(staged, &target) {
            Ok(()) => Ok(()),
            Err(_) if target.join("size").exists() => fs::remove_dir_all(staged).map_err(store_error("remove", staged)),
            Err(source) => Err(ImageError::Store { operation: "rename into place", path: target, source }),
        }
    }

    fn lock(&self) -> Result<fs::File, ImageError> {
        self.flock("lock", rustix::fs::FlockOperation::LockExclusive)
    }

    fn flock(&self, name: &str, operation: rustix::fs::FlockOperation) -> Result<fs::File, ImageError> {
        let path = self.root.join(name);
        let file = fs::File::create(&path).map_err(store_error("open", &path))?;
        rustix::fs::flock(file.as_fd(), operation).map_err(|errno| ImageError::Store {
            operation: "lock",
            path,
            source: errno.into(),
        })?;
        Ok(file)
    }
}

/// Wraps an I/O error with what was tried on what.
pub(crate) fn store_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Store { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, tags: &[&str]) -> Record {
        Record {
            id: id.to_owned(),
            layers: vec![],
            size_bytes: 0,
            repo_tags: tags.iter().map(|t| (*t).to_owned()).collect(),
            repo_digests: BTreeSet::new(),
            config: ImageConfig::default(),
        }
    }

    #[test]
    fn a_tag_belongs_to_one_image() {
        let mut index = Index::default();
        index.insert(record("a", &["x:1"]));
        index.insert(record("b", &["x:1"]));
        assert_eq!(index.find(None, &["x:1".to_owned()]).map(|r| r.id.as_str()), Some("b"));
        assert!(index.images[0].repo_tags.is_empty());
    }

    #[test]
    fn an_image_goes_with_its_last_tag() {
        let mut index = Index::default();
        index.insert(record("a", &["x:1", "x:2"]));
        assert!(index.remove(None, Some("x:1")));
        assert_eq!(index.images.len(), 1);
        assert!(index.remove(None, Some("x:2")));
        assert!(index.images.is_empty());
    }

    /// As [`super::super::ImageStore::open`] finds it after a kill between any two steps of an import.
    #[test]
    fn what_a_killed_import_left_goes_at_the_next_start() {
        use super::super::{ImageStore, ImageStoreConfig};
        let dir = tempfile::tempdir().expect("directory");
        let open = || {
            ImageStore::open(ImageStoreConfig { root_dir: dir.path().to_owned(), registries: Default::default() })
                .expect("open")
        };
        let layout = open().layout.clone();
        let (kept, orphan) = (format!("sha256:{}", "a".repeat(64)), format!("sha256:{}", "b".repeat(64)));
        for (path, file) in [
            (layout.layer_dir(&kept), "size"),
            (layout.layer_dir(&orphan), "size"),
            (layout.staging_dir().join("x"), "f"),
        ] {
            fs::create_dir_all(path.join("fs")).expect("directory");
            fs::write(path.join(file), "1").expect("file");
        }
        fs::write(layout.staging_dir().join("archive"), "half").expect("file");
        fs::write(dir.path().join(".index.json.new"), "{").expect("file");
        let mut record = record("sha256:c", &["x:1"]);
        record.layers = vec![kept.clone()];
        layout.update(|index| index.insert(record)).expect("index");
        // Another process is in the middle of an import: nothing is touched.
        let held = layout.hold_layers().expect("lock");
        open();
        assert!(layout.layer_size(&orphan).is_some() && layout.staging_dir().join("archive").exists());
        drop(held);
        open();
        assert_eq!((layout.layer_size(&kept), layout.layer_size(&orphan)), (Some(1), None));
        assert_eq!(fs::read_dir(layout.staging_dir()).expect("list").count(), 0);
    }

    #[test]
    fn removing_what_is_absent_says_so() {
        let mut index = Index::default();
        index.insert(record("a", &["x:1"]));
        assert!(!index.remove(None, Some("y:1")));
        assert!(!index.remove(Some("b"), None));
    }
}
