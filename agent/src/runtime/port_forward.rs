//! `PortForward`: a TCP connection made from inside the pod's network namespace.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use super::{RuntimeError, SandboxId, SandboxState, local::Inner};
use crate::blocking::blocking;

const LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn connect(
    inner: &Arc<Inner>,
    id: &SandboxId,
    port: u16,
) -> Result<tokio::net::TcpStream, RuntimeError> {
    let sandbox = inner.sandbox(id)?;
    let error = |source| RuntimeError::Shim {
        id: id.clone(),
        operation: "connect to a port",
        source,
    };
    let (ready, host_network) = {
        let checkpoint = sandbox.checkpoint.lock();
        (
            checkpoint.state == SandboxState::Ready,
            checkpoint.config.host_network,
        )
    };
    if !ready {
        return Err(error(io::ErrorKind::NotConnected.into()));
    }
    let netns = sandbox.netns();
    let stream = blocking(move || -> io::Result<TcpStream> {
        if host_network {
            return dial(port);
        }
        // Entered by a thread of its own, which ends there.
        let namespace = coracle_netns::NetNs::open(&netns).map_err(io::Error::other)?;
        namespace.run(|| dial(port)).map_err(io::Error::other)?
    })
    .await
    .map_err(error)?;
    stream.set_nonblocking(true).map_err(error)?;
    tokio::net::TcpStream::from_std(stream).map_err(error)
}

fn dial(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT).or_else(
        |error| {
            TcpStream::connect_timeout(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)), LIMIT)
                .map_err(|_| error)
        },
    )
}
