//! One layer from the network into the staging directory.
//!
//! The network's side is a future, the unpacker a thread that blocks; a bounded channel is between
//! them. The thread outlives the future if that is dropped, but not for long: it is told so. Its
//! part of the node's capacity goes back when the thread has ended.

use std::io;

use bytes::Bytes;
use futures::StreamExt;
use oci_client::manifest::OciDescriptor;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        access::Key,
        capacity::Claim,
        distribution::Distribution,
        error::{PullError, RegistryError},
        layer::{self, LayerSpec, StagedLayer},
        progress,
    },
    Context,
};
use crate::blocking::blocking;

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
/// Nothing of the layer is left then.
pub(super) async fn fetch_layer(
    context: Context<'_>,
    client: &Distribution,
    descriptor: OciDescriptor,
    spec: &LayerSpec,
    access: &[Key],
) -> Result<Fetched, PullError> {
    let layout = context.layout.clone();
    let present = {
        let (layout, spec, access) = (layout.clone(), spec.clone(), access.to_vec());
        blocking(move || {
            let size = spec.present(&layout, &access)?;
            Some(layer::note(&layout, &spec.chain_id, None, &access).map(|()| size))
        })
    };
    if let Some(size) = present.await {
        return Ok(Fetched::Present(size?));
    }
    let digest = descriptor.digest;
    let not_fetched = |source| PullError::FetchLayer {
        digest: digest.clone(),
        source,
    };
    let place = context.capacity.place().await;
    let place = place.map_err(|waited| PullError::Crowded {
        digest: digest.clone(),
        minutes: waited.as_secs() / 60,
    })?;
    let size = spec.blob.as_ref().map_or(u64::MAX, |(_, size)| *size);
    let blob = client.blob(&digest, size, context.retries).await;
    let blob = blob.map_err(not_fetched)?;
    let is_awaited = || context.capacity.is_awaited();
    let mut blob = std::pin::pin!(progress::bounded(Box::pin(blob), is_awaited));
    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let feed = async move {
        while let Some(chunk) = blob.next().await {
            // The unpacker hangs up when it has failed; it says why.
            if sender.send(chunk?).await.is_err() {
                break;
            }
        }
        Ok::<_, RegistryError>(())
    };
    let given_up = CancellationToken::new();
    let claim = Claim::new(context.capacity.clone(), given_up.clone());
    let _wanted = given_up.drop_guard();
    let spec = spec.clone();
    let unpack = tokio::task::spawn_blocking(move || {
        let _place = place;
        let chunks = ChunkReader {
            receiver,
            chunk: Bytes::new(),
        };
        layer::stage(&layout, &spec, chunks, claim)
    });
    let (fed, unpacked) = tokio::join!(feed, unpack);
    // What did not come whole is not what was promised, either.
    fed.map_err(not_fetched)?;
    let staged = unpacked.map_err(|source| PullError::Unpacker {
        digest: digest.clone(),
        source,
    })?;
    Ok(Fetched::Staged(staged?))
}

/// The blocking end of the channel.
struct ChunkReader {
    receiver: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl io::Read for ChunkReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.chunk.len());
        buf[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}
