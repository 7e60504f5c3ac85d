//! Starting and stopping the parts.

use coracle_apiserver::UserInfo;
use tokio_util::sync::CancellationToken;

use crate::config::{ServerConfig, ServerConfigError};

/// Why a control plane could not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// The API server failed.
    #[error("the API server failed")]
    ApiServer(#[from] coracle_apiserver::ApiServerError),
}

/// A running control plane.
pub struct Server {}

impl Server {
    /// Starts every part; returns once the API server answers.
    ///
    /// # Errors
    /// One sentence about what cannot be used: an address, a directory, a range.
    pub async fn start(config: ServerConfig, shutdown: CancellationToken) -> Result<Self, ServerError> {
        config.validate()?;
        let _ = shutdown;
        Ok(Self {})
    }

    /// An in-process client with identity `user`.
    pub fn client(&self, user: UserInfo) -> kube::Client {
        let _ = user;
        unimplemented!()
    }

    /// Whether `/readyz` answers ok.
    pub fn ready(&self) -> bool {
        false
    }

    /// Returns once every part has ended after `shutdown`, or one failed for good.
    ///
    /// # Errors
    /// What failed.
    pub async fn stopped(self) -> Result<(), ServerError> {
        Ok(())
    }
}
