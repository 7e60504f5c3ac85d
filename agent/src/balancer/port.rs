//! The balancer's port on loopback, for what else on the node speaks to the API, such as the agent
//! of a foreign network.
//!
//! Clients of TLS speak first: one that says nothing costs no connection to a server, and is the
//! first to go when there are too many.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use coracle_relay::{Connections, Slot};
use coracle_telemetry::ErrorChain;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Balancer;

/// Connections that come over the port, less what [`Connections`] adds for this machine. Each is
/// two descriptors and 16 KiB.
const MOST: usize = 64;
/// By when a client has said something.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// After a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The port, open.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// As k3s has it.
    pub(crate) const DEFAULT: u16 = 6444;

    /// Opens the port that was asked for; if none was, that of k3s, or any if that is taken: the
    /// agent itself does not need it.
    pub(crate) async fn open(wanted: Option<u16>) -> io::Result<Self> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = match TcpListener::bind(at(wanted.unwrap_or(Self::DEFAULT))).await {
            Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
                let listener = TcpListener::bind(at(0)).await?;
                let found = listener.local_addr()?;
                tracing::warn!(
                    taken = Self::DEFAULT, %found,
                    "the port that leads to the API servers is taken: they are at another one"
                );
                listener
            }
            bound => bound?,
        };
        Ok(Self {
            address: listener.local_addr()?,
            listener,
        })
    }

    /// Where it is.
    #[cfg(test)]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves all who come, until `shutdown`.
    pub(crate) async fn serve(self, balancer: Balancer, shutdown: CancellationToken) {
        tracing::info!(address = %self.address, "leads others on this node to the API servers");
        let connections = Connections::new(MOST);
        let tasks = TaskTracker::new();
        while let Some(accepted) = shutdown.run_until_cancelled(self.listener.accept()).await {
            let (client, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "cannot accept a connection to the API servers");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(slot) = connections.admit(peer.ip()) else {
                tracing::debug!("refused a connection to the API servers: all places are taken");
                continue;
            };
            let (balancer, ends) = (balancer.clone(), shutdown.clone());
            coracle_telemetry::spawn_tracked(&tasks, "balance a connection", async move {
                let leave = slot.leave();
                tokio::select! {
                    () = leave.cancelled() => {}
                    () = ends.cancelled() => {}
                    () = join(client, &slot, &balancer) => {}
                }
            });
        }
    }
}

/// Joins a client to a server until one of them ends.
async fn join(mut client: TcpStream, slot: &Slot, balancer: &Balancer) {
    let mut first = [0];
    let spoken = tokio::time::timeout(SILENCE_LIMIT, client.peek(&mut first));
    if !matches!(spoken.await, Ok(Ok(1..))) {
        return;
    }
    slot.settle();
    let _ = client.set_nodelay(true);
    let mut server = match balancer.connect().await {
        Ok(server) => server,
        Err(error) => {
            return tracing::debug!(error = %ErrorChain(&error), "a client of the node's port gets no API server");
        }
    };
    // What a failure on one side takes with it TLS makes good, or the client by asking again.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
