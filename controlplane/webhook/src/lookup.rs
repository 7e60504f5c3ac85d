//! The addresses of a webhook's host.
//!
//! The system's resolver blocks a thread, and goes on when nobody waits for it any more. A name
//! server that is silent keeps it for many seconds, and the threads are those of everybody: so one
//! look at a time for each host, and only so many of all.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{
    net::lookup_host,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Looks at once, for all webhooks. A runtime has 512 threads for what blocks.
const MOST: usize = 64;

static ALL: Semaphore = Semaphore::const_new(MOST);

/// Looks for one host.
#[derive(Debug)]
pub(crate) struct Lookup(Arc<Semaphore>);

impl Lookup {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Addresses of a host. It has no end of its own: the call has.
    ///
    /// Cancel safe: the look goes on, and keeps its place.
    pub(crate) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        // Neither is ever closed.
        let own = Arc::clone(&self.0).acquire_owned().await;
        let one_of_all = ALL.acquire().await;
        let host = host.to_owned();
        let looking = coracle_telemetry::spawn("look for a webhook's host", async move {
            let _places: (Result<OwnedSemaphorePermit, _>, _) = (own, one_of_all);
            let found = lookup_host((host.as_str(), port)).await;
            found.map(Iterator::collect)
        });
        looking.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn addresses_are_not_looked_for() {
        let lookup = Lookup::new();
        let _busy = lookup.0.acquire().await;
        for (host, expect) in [("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1")] {
            let found = lookup.addresses(host, 1).await.unwrap();
            assert_eq!(found, [expect.parse().unwrap()]);
        }
    }

    #[tokio::test]
    async fn one_look_for_a_host_waits_for_the_other() {
        let lookup = Lookup::new();
        let busy = lookup.0.acquire().await;
        let mut second = std::pin::pin!(lookup.addresses("localhost", 1));
        let waiting = tokio::time::timeout(Duration::from_millis(50), second.as_mut()).await;
        assert!(waiting.is_err());
        drop(busy);
        assert!(!second.await.unwrap().is_empty());
    }
}
