//! How to get to a Service: who uses this crate knows, perhaps by way of a node.

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::ServiceReference;

/// A connection, whatever it is made of.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why there is no connection: what was tried, and what became of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// Connects to Services.
#[async_trait]
pub trait Dialer: Send + Sync {
    /// A connection to one of the Service's endpoints, at the port that it gives to the one named.
    /// It need not have an end of its own: the call has.
    ///
    /// # Errors
    /// [`DialError`].
    async fn dial(&self, service: &ServiceReference) -> Result<Box<dyn Io>, DialError>;
}
