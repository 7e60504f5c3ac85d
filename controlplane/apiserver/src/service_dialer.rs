//! How webhooks that are Services are reached: as their proxy reaches them, by way of a node if
//! they are pods. So a server that is no node calls them, too.

use std::sync::{OnceLock, Weak};

use async_trait::async_trait;
use coracle_webhook::{DialError, Dialer, Io, ServiceReference};

use crate::{state::State, subresource::stream};

/// Dials Services for a server that is made with it.
#[derive(Default)]
pub(crate) struct ServiceDialer(OnceLock<Weak<State>>);

impl ServiceDialer {
    /// From now on there are connections.
    pub(crate) fn serve(&self, server: Weak<State>) {
        // Said once: there is one server.
        let _ = self.0.set(server);
    }
}

#[async_trait]
impl Dialer for ServiceDialer {
    async fn dial(&self, service: &ServiceReference) -> Result<Box<dyn Io>, DialError> {
        let server = self.0.get().and_then(Weak::upgrade);
        let server = server.ok_or_else(|| DialError("the server starts or stops".to_owned()))?;
        let ServiceReference {
            namespace,
            name,
            port,
            ..
        } = service;
        let connected = stream::connect_to_service(&server, namespace, name, *port).await;
        connected.map_err(|status| DialError(status.message))
    }
}
