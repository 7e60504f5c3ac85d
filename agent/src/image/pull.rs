//! Pulling from registries: mirrors in order, manifest, config, then all layers side by side.
//!
//! `oci-client` speaks the distribution protocol and its authentication; this module bounds, verifies and
//! hands the bytes to [`super::layer`]. Credentials are sent only to the host they are for.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use oci_client::{
    Client, Reference,
    client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol},
    manifest::{OciDescriptor, OciImageManifest},
    secrets::RegistryAuth as ClientAuth,
};
use tokio::sync::mpsc;

use super::{
    config::{self, DOCUMENT_MAX},
    index::{Layout, Record},
    layer::{LayerSpec, ensure_layer, is_sha256},
    reference,
    registries::{Endpoint, Registries},
};
use crate::runtime::RegistryAuth;

/// For a manifest or a config, from one endpoint.
const DOCUMENT_DEADLINE: Duration = Duration::from_secs(30);
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Longest silence within a layer.
const READ_DEADLINE: Duration = Duration::from_secs(60);
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
    let client = client(registries, endpoint)?;
    let auth = credentials(registries, endpoint, image.registry(), auth);
    let mut at_endpoint = image.clone();
    if endpoint.host != image.registry() {
        at_endpoint.set_mirror_registry(endpoint.host.clone());
    }
    let manifest = client.pull_image_manifest_and_list_digest(&at_endpoint, &auth);
    let (manifest, digest, list_digest) = deadline("fetch the manifest", manifest).await?;
    let config_bytes = fetch_config(&client, &at_endpoint, &manifest.config).await?;
    let (config, diff_ids) = config::parse(&config_bytes)?;
    let specs = layer_specs(&manifest, &diff_ids)?;

    let sizes: Vec<u64> = stream::iter(specs.into_iter().zip(manifest.layers.iter().cloned()))
        .map(|(spec, descriptor)| fetch_layer(layout.clone(), &client, &at_endpoint, descriptor, spec))
        .buffered(LAYERS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Record {
        id: manifest.config.digest,
        layers: diff_ids,
        size_bytes: sizes.iter().sum(),
        repo_tags: reference::tag_name(image).into_iter().collect(),
        repo_digests: [reference::digest_name(image, &list_digest.unwrap_or(digest))].into(),
        config,
    })
}

/// Checks the manifest against the config before a byte of a layer is fetched.
fn layer_specs(manifest: &OciImageManifest, diff_ids: &[String]) -> Result<Vec<LayerSpec>, String> {
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

async fn fetch_config(client: &Client, image: &Reference, descriptor: &OciDescriptor) -> Result<Vec<u8>, String> {
    if !is_sha256(&descriptor.digest) || u64::try_from(descriptor.size).is_ok_and(|size| size > DOCUMENT_MAX) {
        return Err(format!("config {:?} of {} bytes is not acceptable", descriptor.digest, descriptor.size));
    }
    let fetch = async {
        let mut blob = client.pull_blob_stream(image, descriptor).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = blob.stream.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() as u64 > DOCUMENT_MAX {
                break;
            }
        }
        Ok::<_, oci_client::errors::OciDistributionError>(bytes)
    };
    let bytes = deadline("fetch the config", fetch).await?;
    let actual = format!("sha256:{}", hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes)));
    if actual != descriptor.digest {
        return Err(format!("config is {actual}, expected {}", descriptor.digest));
    }
    Ok(bytes)
}

async fn fetch_layer(
    layout: Layout,
    client: &Client,
    image: &Reference,
    descriptor: OciDescriptor,
    spec: LayerSpec,
) -> Result<u64, String> {
    if let Some(size) = layout.layer_size(&spec.diff_id) {
        return Ok(size);
    }
    let digest = descriptor.digest.clone();
    let open = client.pull_blob_stream(image, &descriptor);
    let mut blob = deadline(&format!("fetch layer {digest}"), open).await?;
    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let feed = async move {
        while let Some(chunk) = blob.stream.next().await {
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

fn client(registries: &Registries, endpoint: &Endpoint) -> Result<Client, String> {
    let tls = registries.configs.get(&endpoint.host).and_then(|config| config.tls.clone()).unwrap_or_default();
    let mut extra_root_certificates = Vec::new();
    if let Some(path) = &tls.ca_file {
        let data = std::fs::read(path).map_err(|error| format!("read ca_file {}: {error}", path.display()))?;
        extra_root_certificates.push(Certificate { encoding: CertificateEncoding::Pem, data });
    }
    let protocol = if endpoint.plain_http { ClientProtocol::Http } else { ClientProtocol::Https };
    Ok(Client::new(ClientConfig {
        protocol,
        accept_invalid_certificates: tls.insecure_skip_verify,
        extra_root_certificates,
        connect_timeout: Some(CONNECT_DEADLINE),
        read_timeout: Some(READ_DEADLINE),
        user_agent: concat!("coracle/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    }))
}

/// The node's own credentials for this endpoint, else those of the pod's pull secrets for it or for the registry.
fn credentials(registries: &Registries, endpoint: &Endpoint, registry: &str, auth: &[RegistryAuth]) -> ClientAuth {
    let own = registries.configs.get(&endpoint.host).and_then(|config| config.auth.clone());
    if let Some(own) = own {
        return match (own.token, own.username) {
            (Some(token), _) => ClientAuth::Bearer(token),
            (None, Some(username)) => ClientAuth::Basic(username, own.password.unwrap_or_default()),
            (None, None) => ClientAuth::Anonymous,
        };
    }
    let serves_registry_itself =
        endpoint.host == registry || registry == "docker.io" && endpoint.host == "index.docker.io";
    let matching = auth.iter().find(|auth| {
        auth.registry == endpoint.host || serves_registry_itself && secret_host(&auth.registry) == registry
    });
    match matching {
        Some(auth) => ClientAuth::Basic(auth.username.clone(), auth.password.clone()),
        None => ClientAuth::Anonymous,
    }
}

/// `https://index.docker.io/v1/` is what `docker login` writes for `docker.io`.
fn secret_host(key: &str) -> &str {
    let host = key.trim_start_matches("https://").trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or(host);
    if host == "index.docker.io" { "docker.io" } else { host }
}

async fn deadline<T>(
    what: &str,
    work: impl Future<Output = Result<T, oci_client::errors::OciDistributionError>>,
) -> Result<T, String> {
    match tokio::time::timeout(DOCUMENT_DEADLINE, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{what}: {}", chain(&error))),
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
