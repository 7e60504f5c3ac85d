//! A control plane alone: `cargo run -p coracle-controlplane --example serve -- DATA_DIR ADDRESS`.

use coracle_controlplane::{Server, ServerConfig};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(data_dir), Some(address)) = (args.next(), args.next()) else {
        return Err("usage: serve DATA_DIR ADDRESS".into());
    };
    let shutdown = CancellationToken::new();
    let server = Server::start(
        ServerConfig::new(data_dir, address.parse()?),
        shutdown.clone(),
    )
    .await?;
    coracle_telemetry::spawn("serve", async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            shutdown.cancel();
        }
    });
    server.stopped().await?;
    Ok(())
}
