//! Probes that open a connection.

use std::time::Duration;

use tokio::net::TcpStream;

use super::Outcome;

pub(super) async fn probe(host: &str, port: u16, limit: Duration) -> Outcome {
    match tokio::time::timeout(limit, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Outcome::Success,
        Ok(Err(error)) => Outcome::Failure(format!("dial tcp {host}:{port}: {error}")),
        Err(_) => Outcome::Failure(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}
