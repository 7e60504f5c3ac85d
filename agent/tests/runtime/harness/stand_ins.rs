//! A network that attaches nothing, and one image.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use async_trait::async_trait;
use coracle_agent::{
    network::{NetworkError, PodNetwork, PodNetworkRequest},
    runtime::*,
};

/// Attaches nothing; remembers who is attached.
#[derive(Default)]
pub(crate) struct NoNetwork {
    pub(crate) attached: parking_lot::Mutex<Vec<SandboxId>>,
    pub(crate) fail: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        assert!(request.netns.exists());
        if self.fail.load(Ordering::Relaxed) {
            return Err(NetworkError::NotReady {
                why: "told to fail".to_owned(),
            });
        }
        self.attached.lock().push(request.sandbox_id.clone());
        Ok(vec![IpAddr::from([198, 18, 0, 1])])
    }
    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.attached.lock().retain(|id| id != &request.sandbox_id);
        Ok(())
    }
    async fn check(&self, _request: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }
    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// One image, whose layers are given.
pub(crate) struct OneImage {
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) config: ImageConfig,
}

#[async_trait]
impl ImageService for OneImage {
    async fn image_status(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        Ok(Some(Image {
            id: reference.to_owned(),
            repo_tags: vec![],
            repo_digests: vec![],
            size_bytes: 0,
            config: self.config.clone(),
        }))
    }
    async fn pull_image(
        &self,
        reference: &str,
        _auth: &[RegistryAuth],
    ) -> Result<Image, ImageError> {
        Ok(self.image_status(reference).await?.expect("always there"))
    }
    async fn list_images(&self) -> Result<Vec<Image>, ImageError> {
        Ok(vec![])
    }
    async fn remove_image(&self, _reference: &str) -> Result<(), ImageError> {
        Ok(())
    }
    async fn layers(&self, _image_id: &str, _holder: &Path) -> Result<Vec<PathBuf>, ImageError> {
        Ok(self.layers.clone())
    }
}
