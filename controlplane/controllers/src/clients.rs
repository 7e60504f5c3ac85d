//! The ways to the API: one for what all controllers share, and one for each controller with rights
//! of its own.

use std::{fmt, sync::Arc};

use kube::Client;

/// Clients by the service accounts of `kube-system` that controllers act as, such as
/// `deployment-controller`.
///
/// What is watched for all and the Events of all go through the shared client, which needs the
/// rights of `system:kube-controller-manager`.
#[derive(Clone)]
pub struct Clients {
    pub(crate) shared: Client,
    account: Arc<dyn Fn(&str) -> Client + Send + Sync>,
}

impl Clients {
    /// `account` gives the client of a service account.
    pub fn new(shared: Client, account: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        Self {
            shared,
            account: Arc::new(account),
        }
    }

    pub(crate) fn of(&self, account: &str) -> Client {
        (self.account)(account)
    }
}

/// One client for everything; it needs the rights of a cluster administrator.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self::new(client.clone(), move |_| client.clone())
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
