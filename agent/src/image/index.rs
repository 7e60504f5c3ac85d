//! Which images there are: one JSON file beside the layers.
//!
//! Shape: `<root>/index.json`, written atomically under an exclusive `flock` of `<root>/lock`, so
//! that the agent and `coracle image` may both write. Layers live in
//! `<root>/layers/<32 hex digits of the chain ID>/` with the tree in `fs`, its size in bytes in
//! `size` and where it came from in `origins`; a layer directory exists only once it is complete.
//! Which layers containers have mounted is in [`HELD_LAYERS`] in their directories, beside the
//! store: no process removes those. Blocking; call from `spawn_blocking`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    access::{self, ANYBODY, Key},
    error::StoreError,
};
use crate::runtime::{HELD_LAYERS, Image, ImageConfig, held_layers};

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `sha256:<config digest>`.
    pub id: String,
    /// Chain IDs, lowest layer first. Records of older agents have diff IDs.
    pub layers: Vec<String>,
    /// Sum of the unpacked layers.
    pub size_bytes: u64,
    /// Tags, in full form.
    pub repo_tags: BTreeSet<String>,
    /// Digests, in full form.
    pub repo_digests: BTreeSet<String>,
    /// How to run it.
    pub config: ImageConfig,
    /// By name: who may use the image without asking its registry, as [`access`] writes it. Empty
    /// for images that never came from one.
    #[serde(default)]
    pub access: BTreeMap<String, BTreeSet<String>>,
}

impl Record {
    /// Whether anybody may use the image under one of `names`.
    pub(crate) fn is_open(&self, names: &[String]) -> bool {
        let mut opened = self.access.iter().filter(|(name, _)| names.contains(name));
        self.access.is_empty() || opened.any(|(_, lines)| lines.contains(ANYBODY))
    }

    /// Which of `keys` opens the image under this name, the surest first.
    pub(crate) fn opener<'a>(&self, name: &str, keys: &'a [Key]) -> Option<&'a Key> {
        let lines = self.access.get(name)?;
        let fits = |key: &'a Key| Some((access::fit(lines.iter().map(String::as_str), key)?, key));
        keys.iter()
            .filter_map(fits)
            .min_by_key(|(fit, _)| *fit)
            .map(|(_, key)| key)
    }

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
    /// Adds `record`, or its names to the image that is there already; a tag moves away from any
    /// other image.
    pub(crate) fn insert(&mut self, record: Record) {
        for other in &mut self.images {
            if other.id != record.id {
                other
                    .repo_tags
                    .retain(|tag| !record.repo_tags.contains(tag));
                other
                    .access
                    .retain(|name, _| !record.repo_tags.contains(name));
            }
        }
        match self.images.iter_mut().find(|image| image.id == record.id) {
            Some(image) => {
                // Of an older agent, or imported: open under the names that it had, whatever comes
                // under another.
                if image.access.is_empty() && !record.access.is_empty() {
                    let names = image.repo_tags.iter().chain(&image.repo_digests).cloned();
                    image.access = names
                        .map(|name| (name, [ANYBODY.to_owned()].into()))
                        .collect();
                }
                image.repo_tags.extend(record.repo_tags);
                image.repo_digests.extend(record.repo_digests);
                for (name, lines) in record.access {
                    let opened = image.access.entry(name).or_default();
                    lines.iter().for_each(|line| access::note(opened, line));
                }
                // An older agent may have named them otherwise.
                (image.layers, image.size_bytes) = (record.layers, record.size_bytes);
            }
            None => self.images.push(record),
        }
    }

    /// Notes `key`, which opens the image `id` under `name` already, with its secret.
    pub(crate) fn learn(&mut self, id: &str, name: &str, key: &Key) {
        let image = self.images.iter_mut().find(|image| image.id == id);
        if let Some(opened) = image.and_then(|image| image.access.get_mut(name)) {
            access::learn(opened, key);
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
                image.access.remove(name);
            }
            // The digest of a pull alone keeps no image: what no tag names any more was asked to
            // go.
            self.images.retain(|image| {
                let named = before.images.iter().any(|old| {
                    old.id == image.id
                        && (old.repo_tags.contains(name) || old.repo_digests.contains(name))
                });
                !named || !image.repo_tags.is_empty()
            });
        }
        *self != before
    }

    /// The image under an ID, a tag name or a digest name.
    pub(crate) fn find(&self, id: Option<&str>, names: &[String]) -> Option<&Record> {
        self.images.iter().find(|image| {
            id.is_some_and(|id| image.id == id)
                || names
                    .iter()
                    .any(|name| image.repo_tags.contains(name) || image.repo_digests.contains(name))
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
    /// [`StoreError`] if the directory cannot be made or locked.
    pub(crate) fn open(root: PathBuf) -> Result<Self, StoreError> {
        let layout = Self { root };
        for dir in [layout.layers_dir(), layout.staging_dir()] {
            fs::create_dir_all(&dir).map_err(store_error("create", &dir))?;
        }
        // Images bring programs that are set-user-ID for their containers, not for the node's
        // users.
        fs::set_permissions(&layout.root, fs::Permissions::from_mode(0o700))
            .map_err(store_error("set the mode of", &layout.root))?;
        Ok(layout)
    }

    /// Holds the layers: while the returned file lives, nothing that is not in the index yet is
    /// removed. Every pull and import takes this first.
    pub(crate) fn hold_layers(&self) -> Result<fs::File, StoreError> {
        self.flock("layers.lock", rustix::fs::FlockOperation::LockShared)
    }

    /// Removes what an interrupted unpack left, unless an unpack is going on in any process.
    pub(crate) fn clean_staging(&self) -> Result<(), StoreError> {
        let Ok(_exclusive) = self.flock(
            "layers.lock",
            rustix::fs::FlockOperation::NonBlockingLockExclusive,
        ) else {
            return Ok(());
        };
        let dir = self.staging_dir();
        for entry in fs::read_dir(&dir)
            .map_err(store_error("list", &dir))?
            .flatten()
        {
            let path = entry.path();
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
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

    /// The directory of a layer. `id` has been checked to be `sha256:<64 hex>`.
    pub(crate) fn layer_dir(&self, id: &str) -> PathBuf {
        let hex = id.strip_prefix("sha256:").unwrap_or(id);
        // Half the digest keeps the overlay mount options of many-layered images within a page.
        self.layers_dir().join(&hex[..hex.len().min(32)])
    }

    /// The unpacked size of a layer that is there.
    pub(crate) fn layer_size(&self, id: &str) -> Option<u64> {
        fs::read_to_string(self.layer_dir(id).join("size"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Reads the index; a missing file is an empty index.
    pub(crate) fn read(&self) -> Result<Index, StoreError> {
        let path = self.index_path();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| StoreError {
                operation: "parse",
                path,
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::default()),
            Err(source) => Err(StoreError {
                operation: "read",
                path,
                source,
            }),
        }
    }

    /// Changes the index under the lock; the change is durable when this returns.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Index) -> T) -> Result<T, StoreError> {
        let _lock = self.lock()?;
        let mut index = self.read()?;
        let before = index.clone();
        let result = change(&mut index);
        if index == before {
            return Ok(result);
        }
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

    /// Notes that `holder` has these layers mounted, as long as that directory lives. They are
    /// there when this returns.
    pub(crate) fn hold_for(
        &self,
        holder: &Path,
        layers: &[String],
    ) -> Result<Vec<PathBuf>, StoreError> {
        // Nothing is removed meanwhile.
        let _shared = self.hold_layers()?;
        let dirs: Vec<PathBuf> = layers.iter().map(|layer| self.layer_dir(layer)).collect();
        let names = dirs
            .iter()
            .filter_map(|dir| dir.file_name()?.to_str())
            .collect::<Vec<_>>()
            .join("\n");
        let file = holder.join(HELD_LAYERS);
        fs::write(&file, names).map_err(store_error("write", &file))?;
        for dir in &dirs {
            fs::metadata(dir).map_err(store_error("find", dir))?;
        }
        Ok(dirs.into_iter().map(|dir| dir.join("fs")).collect())
    }

    /// Removes layers that no image names and no container has mounted. Does nothing while a pull
    /// is going on, and while it is not known what containers of an older agent have mounted: the
    /// next removal catches up.
    pub(crate) fn prune_layers(&self) -> Result<(), StoreError> {
        let Ok(_exclusive) = self.flock(
            "layers.lock",
            rustix::fs::FlockOperation::NonBlockingLockExclusive,
        ) else {
            return Ok(());
        };
        let used: BTreeSet<PathBuf> = self
            .read()?
            .images
            .iter()
            .flat_map(|image| &image.layers)
            .map(|layer| self.layer_dir(layer))
            .collect();
        // Under the lock: whoever notes layers from here on finds out which of them have gone.
        let agent_dir = self.root.parent().unwrap_or(&self.root);
        let Some(held) = held_layers(agent_dir)
            .map_err(store_error("read notes of containers in", agent_dir))?
        else {
            return Ok(());
        };
        let dir = self.layers_dir();
        for entry in fs::read_dir(&dir)
            .map_err(store_error("list", &dir))?
            .flatten()
        {
            let is_held = entry
                .file_name()
                .to_str()
                .is_none_or(|name| held.contains(name));
            if !is_held && !used.contains(&entry.path()) {
                fs::remove_dir_all(entry.path()).map_err(store_error("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// Puts a finished staging directory in its place; if the layer is there already, the staged
    /// one is dropped. Says whether it was new.
    pub(crate) fn adopt_layer(&self, staged: &Path, id: &str) -> Result<bool, StoreError> {
        let target = self.layer_dir(id);
        match fs::rename(staged, &target) {
            Ok(()) => Ok(true),
            Err(_) if target.join("size").exists() => {
                fs::remove_dir_all(staged).map_err(store_error("remove", staged))?;
                Ok(false)
            }
            Err(source) => Err(StoreError {
                operation: "rename into place",
                path: target,
                source,
            }),
        }
    }

    /// For changes of the index, and of what is in layers' directories.
    pub(crate) fn lock(&self) -> Result<fs::File, StoreError> {
        self.flock("lock", rustix::fs::FlockOperation::LockExclusive)
    }

    fn flock(
        &self,
        name: &str,
        operation: rustix::fs::FlockOperation,
    ) -> Result<fs::File, StoreError> {
        let path = self.root.join(name);
        let file = fs::File::create(&path).map_err(store_error("open", &path))?;
        rustix::fs::flock(file.as_fd(), operation)
            .map_err(|errno| store_error("lock", &path)(errno.into()))?;
        Ok(file)
    }
}

/// Wraps an I/O error with what was tried on what.
pub(crate) fn store_error(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{holders, runtime_root};

    /// Where the runtime has its directory of a container.
    fn holder(agent_dir: &Path, id: &str) -> PathBuf {
        holders(&runtime_root(agent_dir)).join(id)
    }

    fn record(id: &str, tags: &[&str]) -> Record {
        Record {
            id: id.to_owned(),
            layers: vec![],
            size_bytes: 0,
            repo_tags: tags.iter().map(|t| (*t).to_owned()).collect(),
            repo_digests: BTreeSet::new(),
            config: ImageConfig::default(),
            access: BTreeMap::new(),
        }
    }

    #[test]
    fn a_tag_belongs_to_one_image() {
        let mut index = Index::default();
        index.insert(record("a", &["x:1"]));
        index.insert(record("b", &["x:1"]));
        assert_eq!(
            index.find(None, &["x:1".to_owned()]).map(|r| r.id.as_str()),
            Some("b")
        );
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

    /// As [`super::super::ImageStore::open`] finds it after a kill between any two steps of an
    /// import.
    #[test]
    fn what_a_killed_import_left_goes_at_the_next_start() {
        use super::super::{ImageStore, ImageStoreConfig};
        let dir = tempfile::tempdir().expect("directory");
        let open = || {
            ImageStore::open(ImageStoreConfig {
                root_dir: dir.path().to_owned(),
                registries: Default::default(),
            })
            .expect("open")
        };
        let layout = open().layout.clone();
        let (kept, orphan) = (
            format!("sha256:{}", "a".repeat(64)),
            format!("sha256:{}", "b".repeat(64)),
        );
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
        assert!(
            layout.layer_size(&orphan).is_some() && layout.staging_dir().join("archive").exists()
        );
        drop(held);
        open();
        assert_eq!(
            (layout.layer_size(&kept), layout.layer_size(&orphan)),
            (Some(1), None)
        );
        assert_eq!(fs::read_dir(layout.staging_dir()).expect("list").count(), 0);
    }

    #[test]
    fn nothing_is_removed_before_the_layers_of_older_containers_are_known() {
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("open");
        let layer = format!("sha256:{}", "a".repeat(64));
        let is_there = || {
            layout.prune_layers().expect("prune");
            layout.layer_dir(&layer).exists()
        };
        let unpack = || fs::create_dir_all(layout.layer_dir(&layer).join("fs")).expect("directory");
        unpack();
        let container = holder(dir.path(), "of-an-older-agent");
        fs::create_dir_all(container.join("upper")).expect("directory");
        assert!(is_there());
        fs::write(container.join(HELD_LAYERS), [0xff]).expect("note");
        assert!(
            layout.prune_layers().is_err(),
            "a note that cannot be read names any layer"
        );
        fs::write(container.join(HELD_LAYERS), "").expect("note");
        assert!(!is_there());
        // Neither is a container.
        unpack();
        fs::create_dir_all(holder(dir.path(), "lost+found")).expect("directory");
        fs::write(holder(dir.path(), "file"), "").expect("file");
        assert!(!is_there());
    }

    #[test]
    fn an_image_stays_open_under_the_names_it_had() {
        let mut index = Index::default();
        index.insert(record("sha256:c", &["x:1"]));
        let mut imported = record("sha256:c", &["y:1"]);
        imported
            .access
            .insert("y:1".to_owned(), ["alice".to_owned()].into());
        index.insert(imported);
        let image = index.find(Some("sha256:c"), &[]).expect("the image");
        assert!(image.is_open(&["x:1".to_owned()]));
        assert!(!image.is_open(&["y:1".to_owned()]));
    }

    #[test]
    fn layers_under_a_container_outlive_their_image() {
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("open");
        let ids = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        for id in &ids {
            fs::create_dir_all(layout.layer_dir(id).join("fs")).expect("directory");
        }
        let holder = holder(dir.path(), "c");
        fs::create_dir_all(&holder).expect("directory");
        let held = layout.hold_for(&holder, &ids[..1]).expect("hold");
        assert_eq!(held, [layout.layer_dir(&ids[0]).join("fs")]);
        layout.prune_layers().expect("prune");
        assert_eq!(
            ids.each_ref().map(|id| layout.layer_dir(id).exists()),
            [true, false]
        );
        assert!(
            layout.hold_for(&holder, &ids).is_err(),
            "one of them has gone"
        );
        fs::remove_dir_all(&holder).expect("remove");
        layout.prune_layers().expect("prune");
        assert!(!layout.layer_dir(&ids[0]).exists());
    }

    #[test]
    fn an_image_is_open_to_those_who_could_pull_it() {
        let mut image = record("a", &["x:1", "y:1"]);
        let key = |who: &str| {
            [Key {
                fingerprint: who.to_owned(),
                secret: None,
            }]
        };
        let names = |name: &str| [name.to_owned()];
        assert!(image.is_open(&names("x:1")), "it was there before");
        image
            .access
            .insert("x:1".to_owned(), ["alice".to_owned()].into());
        assert!(image.opener("x:1", &key("alice")).is_some());
        assert!(!image.is_open(&names("x:1")) && image.opener("x:1", &key("mallory")).is_none());
        assert!(
            image.opener("y:1", &key("alice")).is_none(),
            "nobody has pulled it by this name"
        );
        image
            .access
            .insert("y:1".to_owned(), [ANYBODY.to_owned()].into());
        assert!(image.is_open(&names("y:1")) && !image.is_open(&names("x:1")));
        let mut index = Index::default();
        index.insert(image);
        index.insert(record("b", &["x:1"]));
        assert!(
            !index.images[0].access.contains_key("x:1"),
            "the name has moved"
        );
    }

    #[test]
    fn the_nodes_users_cannot_reach_into_images() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().join("images");
        fs::create_dir(&root).expect("directory");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("mode");
        Layout::open(root.clone()).expect("open");
        assert_eq!(
            fs::metadata(&root).expect("stat").permissions().mode() & 0o7777,
            0o700
        );
    }

    #[test]
    fn removing_what_is_absent_says_so() {
        let mut index = Index::default();
        index.insert(record("a", &["x:1"]));
        assert!(!index.remove(None, Some("y:1")));
        assert!(!index.remove(Some("b"), None));
    }
}
