//! The clients of all webhooks. One is made at the first call, and forgotten when others are used
//! more.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hashlink::LruCache;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::{
    client::Client,
    config::ClientConfig,
    dial::Dialer,
    error::{CallError, SetupError},
};

/// Webhooks whose connections are kept, as upstream.
const MOST_CLIENTS: usize = 200;
/// Between two looks for connections that have been idle for long.
const SWEEP: Duration = Duration::from_secs(30);

/// Calls webhooks. Cheap to clone: all have the same connections.
#[derive(Clone)]
pub struct Webhooks {
    dialer: Arc<dyn Dialer>,
    clients: Arc<Mutex<Clients>>,
}

struct Clients {
    by_config: LruCache<ClientConfig, Arc<Client>>,
    swept: Instant,
}

impl Webhooks {
    /// That reach Services by `dialer`.
    pub fn new(dialer: Arc<dyn Dialer>) -> Self {
        let clients = Clients {
            by_config: LruCache::new(MOST_CLIENTS),
            swept: Instant::now(),
        };
        Self {
            dialer,
            clients: Arc::new(Mutex::new(clients)),
        }
    }

    /// Posts `body`, which is JSON, and returns the body of a success. It is over within
    /// `timeout`, and sent once.
    ///
    /// Cancel safe: who drops it ends the exchange.
    ///
    /// # Errors
    /// [`CallError`]: whether to go on without an answer is the caller's decision.
    pub async fn post(
        &self,
        config: &ClientConfig,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let client = tokio::time::timeout(timeout, self.client(config)).await;
        let client = client.unwrap_or(Err(SetupError::Deadline));
        let client = client.map_err(CallError::Setup)?;
        client.post(&*self.dialer, body, timeout).await
    }

    async fn client(&self, config: &ClientConfig) -> Result<Arc<Client>, SetupError> {
        if let Some(client) = self.clients.lock().find(config) {
            return Ok(client);
        }
        let own = config.clone();
        let made = spawn_blocking(move || Client::new(&own)).await;
        // It does not panic, and is not told to end.
        let made = made.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(SetupError::SystemRoots(source))
        })?;
        Ok(self.clients.lock().add(config, Arc::new(made)))
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks")
            .field("clients", &self.clients.lock().by_config.len())
            .finish_non_exhaustive()
    }
}

impl Clients {
    fn find(&mut self, config: &ClientConfig) -> Option<Arc<Client>> {
        let now = Instant::now();
        if now.saturating_duration_since(self.swept) > SWEEP {
            self.swept = now;
            let all = self.by_config.iter();
            all.for_each(|(_, client)| client.sweep(now));
        }
        self.by_config.get(config).map(Arc::clone)
    }

    /// Unless somebody was faster.
    fn add(&mut self, config: &ClientConfig, client: Arc<Client>) -> Arc<Client> {
        if let Some(known) = self.find(config) {
            return known;
        }
        let kept = Arc::clone(&client);
        self.by_config.insert(config.clone(), kept);
        client
    }
}
