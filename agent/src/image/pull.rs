//! Pulling from registries: mirrors in order, manifest, config, then all layers side by side.
//!
//! [`super::distribution`] speaks the protocol; this module decides whom to ask with which credentials, checks what
//! belongs together and hands the bytes to [`super::layer`].

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use oci_client::{
    Reference,
    manifest::{OciDescriptor, OciImageManifest},
};
use tokio::sync::mpsc;

use super::{
    config::{self, DOCUMENT_MAX},
    distribution::{Credentials, Distribution, FoundManifest},
    index::{Layout, Record},
    layer::{LayerSpec, ensure_layer, is_sha256},
    reference,
    registries::{Endpoint, Registries},
};
use crate::runtime::RegistryAuth;

/// For a manifest or a config, from one endpoint.
const DOCUMENT_DEADLINE: Duration = Duration::from_secs(30);
/// Layers of one image fetched at a time, as containerd.
const LAYERS_AT_ONCE: usize = 3;
/// Chunks of up to 64 KiB or so between the network and the unpacker, a layer.
const CHUNKS_IN_FLIGHT: usize = 16;
/// Most layers of an image: overlayfs takes 500 lower directories, an option page holds fewer.
const LAYERS_MAX: usize = 127;

/// Pulls `image` into the store from the first endpoint that has it.
///
/// # Errors
/// What every endpoint answered, joined for people.
pub(crate) async fn pull(
    layout: &Layout,
    registries: &Registries,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<Record, String> {
    let mut answers = Vec::new();
    for endpoint in registries.endpoints(image.registry()) {
        match pull_from(layout, registries, &endpoint, image, auth).await {
            Ok(record) => return Ok(record),
            Err(why) => answers.push(format!("{}: {why}", endpoint.host)),
        }
    }
    Err(answers.join("; "))
}

async fn pull_from(
    layout: &Layout,
    registries: &Registries,
    endpoint: &Endpoint,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<Record, String> {
    let client = distribution(registries, endpoint, image, auth)?;
    let FoundManifest { manifest, digest } = deadline("fetch the manifest", client.manifest(image)).await?;
    let config_bytes = fetch_config(&client, &manifest.config).await?;
    let (config, diff_ids) = config::parse(&config_bytes)?;
    let specs = layer_specs(&manifest, &diff_ids)?;

    let sizes: Vec<u64> = stream::iter(specs.into_iter().zip(manifest.layers.iter().cloned()))
        .map(|(spec, descriptor)| fetch_layer(layout.clone(), &client, descriptor, spec))
        .buffered(LAYERS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Record {
        id: manifest.config.digest,
        layers: diff_ids,
        size_bytes: sizes.iter().sum(),
        repo_tags: reference::tag_name(image).into_iter().collect(),
        repo_digests: [reference::digest_name(image, &digest)].into(),
        config,
    })
}

/// Checks the manifest against the config before a byte of a layer is fetched.
pub(super) fn layer_specs(manifest: &OciImageManifest, diff_ids: &[String]) -> Result<Vec<LayerSpec>, String> {
    if manifest.layers.len() != diff_ids.len() {
        return Err(format!("manifest has {} layers, config has {}", manifest.layers.len(), diff_ids.len()));
    }
    if diff_ids.len() > LAYERS_MAX {
        return Err(format!("image has {} layers, at most {LAYERS_MAX} are possible", diff_ids.len()));
    }
    manifest
        .layers
        .iter()
        .zip(diff_ids)
        .map(|(layer, diff_id)| {
            if !is_sha256(&layer.digest) {
                return Err(format!("layer digest {:?} is not a sha256 digest", layer.digest));
            }
            let size = u64::try_from(layer.size).map_err(|_| format!("layer {} has a negative size", layer.digest))?;
            Ok(LayerSpec { blob: Some((layer.digest.clone(), size)), diff_id: diff_id.clone() })
        })
        .collect()
}

async fn fetch_config(client: &Distribution, descriptor: &OciDescriptor) -> Result<Vec<u8>, String> {
    if !is_sha256(&descriptor.digest) || u64::try_from(descriptor.size).is_ok_and(|size| size > DOCUMENT_MAX) {
        return Err(format!("config {:?} of {} bytes is not acceptable", descriptor.digest, descriptor.size));
    }
    deadline("fetch the config", client.small_blob(&descriptor.digest)).await
}

async fn fetch_layer(
    layout: Layout,
    client: &Distribution,
    descriptor: OciDescriptor,
    spec: LayerSpec,
) -> Result<u64, String> {
    if let Some(size) = layout.layer_size(&spec.diff_id) {
        return Ok(size);
    }
    let digest = descriptor.digest.clone();
    let blob = deadline(&format!("fetch layer {digest}"), client.blob(&digest)).await?;
    let mut blob = std::pin::pin!(blob);
    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let feed = async move {
        while let Some(chunk) = blob.next().await {
            // The unpacker hangs up when it has failed; it says why.
            if sender.send(chunk).await.is_err() {
                break;
            }
        }
    };
    let unpack = tokio::task::spawn_blocking(move || {
        ensure_layer(&layout, &spec, ChunkReader { receiver, chunk: Bytes::new() })
    });
    let ((), result) = tokio::join!(feed, unpack);
    result.map_err(|error| format!("unpack layer {digest}: {error}"))?.map_err(|error| chain(&error))
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

fn distribution(
    registries: &Registries,
    endpoint: &Endpoint,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<Distribution, String> {
    let tls = registries.configs.get(&endpoint.host).and_then(|config| config.tls.clone()).unwrap_or_default();
    let scheme = if endpoint.plain_http { "http" } else { "https" };
    let base = format!("{scheme}://{}/", endpoint.host);
    let instead_of = (!serves_itself(endpoint, image.registry())).then(|| image.registry().to_owned());
    let credentials = credentials(registries, endpoint, image.registry(), auth);
    Distribution::new(&base, &tls, image, instead_of, credentials)
}

fn serves_itself(endpoint: &Endpoint, registry: &str) -> bool {
    endpoint.host == registry || registry == "docker.io" && endpoint.host == "index.docker.io"
}

/// The node's own credentials for this endpoint, else those of the pod's pull secrets for it or for the registry.
fn credentials(registries: &Registries, endpoint: &Endpoint, registry: &str, auth: &[RegistryAuth]) -> Credentials {
    let own = registries.configs.get(&endpoint.host).and_then(|config| config.auth.clone());
    if let Some(own) = own {
        return match (own.token, own.username) {
            (Some(token), _) => Credentials::Token(token),
            (None, Some(username)) => Credentials::Basic { username, password: own.password.unwrap_or_default() },
            (None, None) => Credentials::Anonymous,
        };
    }
    let itself = serves_itself(endpoint, registry);
    let matching =
        auth.iter().find(|auth| auth.registry == endpoint.host || itself && secret_host(&auth.registry) == registry);
    match matching {
        Some(auth) => Credentials::Basic { username: auth.username.clone(), password: auth.password.clone() },
        None => Credentials::Anonymous,
    }
}

/// `https://index.docker.io/v1/` is what `docker login` writes for `docker.io`.
fn secret_host(key: &str) -> &str {
    let host = key.trim_start_matches("https://").trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or(host);
    if host == "index.docker.io" { "docker.io" } else { host }
}

async fn deadline<T>(what: &str, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(DOCUMENT_DEADLINE, work).await {
        Ok(outcome) => outcome.map_err(|why| format!("{what}: {why}")),
        Err(_) => Err(format!("{what}: no answer within {} s", DOCUMENT_DEADLINE.as_secs())),
    }
}

/// An error with all its sources, for people.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
