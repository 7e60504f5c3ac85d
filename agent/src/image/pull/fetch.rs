//! One layer from the network into the staging directory.
//!
//! The network's side is a future, the unpacker a thread that blocks; a bounded channel is between
//! them. The thread outlives the future if that is dropped, but not for long: it is told so. Its
//! part of the node's capacity goes back when the thread has ended.

use std::io;

use bytes::Bytes;
use coracle_telemetry::ErrorChain;
use futures::StreamExt;
use oci_client::manifest::OciDescriptor;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        access::Key,
        capacity::Claim,
        distribution::Distribution,
        layer::{self, LayerSpec, StagedLayer},
        progress,
    },
    Context, deadline,
};

/// Chunks of up to 64 KiB or so between the network and the unpacker, a layer.
const CHUNKS_IN_FLIGHT: usize = 16;

/// What there is of a layer.
pub(super) enum Fetched {
    /// Its size: it is in its place.
    Present(u64),
    Staged(StagedLayer),
}

/// Stages the layer, unless it is there for whoever has one of the `access` keys.
///
/// # Errors
/// Why not, for people; nothing of the layer is left then.
pub(super) async fn fetch_layer(
    context: Context<'_>,
    client: &Distribution,
    descriptor: OciDescriptor,
    spec: LayerSpec,
    access: &[Key],
) -> Result<Fetched, String> {
    let layout = context.layout.clone();
    let present = {
        let (layout, spec, access) = (layout.clone(), spec.clone(), access.to_vec());
        tokio::task::spawn_blocking(move || {
            let size = spec.present(&layout, &access)?;
            Some(layer::note(&layout, &spec.chain_id, None, &access).map(|()| size))
        })
    };
    if let Some(size) = present.await.map_err(|error| error.to_string())? {
        return size
            .map(Fetched::Present)
            .map_err(|error| ErrorChain(&error).to_string());
    }
    let digest = descriptor.digest.clone();
    let place = context.capacity.place().await;
    let place = place.map_err(|why| format!("fetch layer {digest}: {why}"))?;
    let blob = deadline(&format!("fetch layer {digest}"), client.blob(&digest)).await?;
    let is_awaited = || context.capacity.is_awaited();
    let mut blob = std::pin::pin!(progress::bounded(Box::pin(blob), is_awaited));
    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let feed = async move {
        while let Some(chunk) = blob.next().await {
            // The unpacker hangs up when it has failed; it says why.
            if sender.send(chunk).await.is_err() {
                break;
            }
        }
    };
    let given_up = CancellationToken::new();
    let claim = Claim::new(context.capacity.clone(), given_up.clone());
    let _wanted = given_up.drop_guard();
    let unpack = tokio::task::spawn_blocking(move || {
        let _place = place;
        let chunks = ChunkReader {
            receiver,
            chunk: Bytes::new(),
        };
        layer::stage(&layout, &spec, chunks, claim)
    });
    let ((), result) = tokio::join!(feed, unpack);
    let staged = result
        .map_err(|error| format!("unpack layer {digest}: {error}"))?
        .map_err(|error| ErrorChain(&error).to_string())?;
    Ok(Fetched::Staged(staged))
}

/// The blocking end of the channel.
struct ChunkReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl io::Read for ChunkReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk?,
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.chunk.len());
        buf[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}
