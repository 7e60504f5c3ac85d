//! Images without an image store.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    image::error::{PullError, RegistryError, Said, StoreError},
    runtime::{Image, ImageConfig, ImageError, ImageService, RegistryAuth},
};

/// Images that are always there: every reference is its own ID, without layers.
#[derive(Default)]
pub struct FakeImages {
    absent: Mutex<Vec<String>>,
    closed: Mutex<Vec<String>>,
    stored: Mutex<Vec<String>>,
    kept: Mutex<Vec<String>>,
}

impl FakeImages {
    /// Pulls of this reference fail until it is [`FakeImages::provide`]d.
    pub fn withhold(&self, reference: &str) {
        self.absent.lock().push(reference.to_owned());
    }

    /// Pulls of this reference work again.
    pub fn provide(&self, reference: &str) {
        self.absent.lock().retain(|absent| absent != reference);
    }

    /// This image is there, but nobody may use it without a pull, and pulls of it fail.
    pub fn close(&self, reference: &str) {
        self.closed.lock().push(reference.to_owned());
    }

    /// This image is on the list until it is removed.
    pub fn store(&self, reference: &str) {
        self.stored.lock().push(reference.to_owned());
    }

    /// Nobody can remove the image with this ID.
    pub fn keep(&self, id: &str) {
        self.kept.lock().push(id.to_owned());
    }

    fn image(reference: &str) -> Image {
        Image {
            id: format!("sha256:{reference}"),
            repo_tags: vec![reference.to_owned()],
            repo_digests: vec![],
            size_bytes: 1,
            config: ImageConfig {
                cmd: vec!["run".to_owned()],
                ..ImageConfig::default()
            },
        }
    }
}

#[async_trait]
impl ImageService for FakeImages {
    async fn image_status(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        let absent = self.absent.lock().iter().any(|absent| absent == reference);
        Ok((!absent).then(|| Self::image(reference.trim_start_matches("sha256:"))))
    }

    async fn pull_image(
        &self,
        reference: &str,
        _auth: &[RegistryAuth],
    ) -> Result<Image, ImageError> {
        if self
            .absent
            .lock()
            .iter()
            .chain(self.closed.lock().iter())
            .any(|withheld| withheld == reference)
        {
            let source = RegistryError::NotFound {
                what: reference.to_owned(),
                said: Said::default(),
            };
            return Err(ImageError::Pull {
                reference: reference.to_owned(),
                source: Box::new(PullError::Resolve {
                    reference: reference.to_owned(),
                    source,
                }),
            });
        }
        Ok(Self::image(reference))
    }

    async fn may_use(&self, reference: &str, _auth: &[RegistryAuth]) -> Result<bool, ImageError> {
        Ok(!self.closed.lock().iter().any(|closed| closed == reference))
    }

    async fn list_images(&self) -> Result<Vec<Image>, ImageError> {
        let stored = self.stored.lock();
        Ok(stored
            .iter()
            .map(|reference| Self::image(reference))
            .collect())
    }

    async fn remove_image(&self, reference: &str) -> Result<(), ImageError> {
        if self.kept.lock().iter().any(|kept| kept == reference) {
            return Err(ImageError::Store(StoreError {
                operation: "remove",
                path: reference.into(),
                source: std::io::ErrorKind::ResourceBusy.into(),
            }));
        }
        let name = reference.trim_start_matches("sha256:");
        self.stored.lock().retain(|stored| stored != name);
        Ok(())
    }

    async fn layers(&self, _image_id: &str, _holder: &Path) -> Result<Vec<PathBuf>, ImageError> {
        Ok(vec![])
    }
}
