//! Pulling from registries: mirrors in order, manifest, config, then all layers side by side.
//!
//! [`super::distribution`] speaks the protocol; this module decides whom to ask with which
//! credentials, checks what belongs together and hands the bytes to [`super::layer`].

mod fetch;

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use oci_client::{
    Reference,
    manifest::{OciDescriptor, OciImageManifest},
};

use self::fetch::{Fetched, fetch_layer};
use super::{
    access::Key,
    capacity::Capacity,
    config::{self, DOCUMENT_MAX},
    credentials::{coordinates, fingerprint, for_image},
    distribution::{Credentials, Distribution, FoundManifest, Retries},
    error::{DocumentError, PullError, RegistryError, Said},
    index::{Layout, Record},
    layer::{self, LayerSpec, is_sha256},
    reference,
    registries::{Endpoint, Registries},
};
use crate::{blocking::blocking, runtime::RegistryAuth};

/// Layers of one image fetched at a time, as containerd; of all images, as [`Capacity`] has it.
const LAYERS_AT_ONCE: usize = 3;
/// Most credentials tried at one endpoint.
const CREDENTIALS_MAX: usize = 16;
/// Most layers of an image: overlayfs takes 500 lower directories, an option page holds fewer.
const LAYERS_MAX: usize = 127;

/// What every pull of the node works with.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) layout: &'a Layout,
    pub(super) registries: &'a Registries,
    pub(super) capacity: &'a Capacity,
    /// Of what passes by itself, at the last endpoint.
    pub(super) retries: Retries,
}

/// Pulls `image` into the store from the first endpoint that has it.
///
/// # Errors
/// What came of asking the endpoint, or each of them.
pub(super) async fn pull(
    context: Context<'_>,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<Record, PullError> {
    let mut answers = Vec::new();
    let endpoints = context.registries.endpoints(image.registry());
    for (at, endpoint) in endpoints.iter().enumerate() {
        let retries = if at + 1 < endpoints.len() {
            Retries::NONE
        } else {
            context.retries
        };
        match pull_from(context, retries, endpoint, image, auth).await {
            Ok(record) => return Ok(record),
            Err(error) if endpoints.len() == 1 => return Err(error),
            Err(error) => answers.push((endpoint.host.clone(), error)),
        }
    }
    Err(PullError::Endpoints(answers))
}

async fn pull_from(
    context: Context<'_>,
    retries: Retries,
    endpoint: &Endpoint,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<Record, PullError> {
    let layout = context.layout;
    let resolved = resolve(context.registries, retries, endpoint, image, auth).await;
    let (client, access, found) = resolved.map_err(|source| PullError::Resolve {
        reference: image.whole(),
        source,
    })?;
    let FoundManifest { manifest, digest } = found;
    let config_bytes = fetch_config(&client, &manifest.config, retries).await?;
    let (config, diff_ids) = config::parse(&config_bytes)?;
    let specs = layer_specs(&manifest, &diff_ids)?;

    // Fetched and unpacked side by side, put over each other in order.
    let fetches: Vec<_> = specs
        .iter()
        .cloned()
        .zip(manifest.layers.iter().cloned())
        .collect();
    let mut staged = stream::iter(fetches)
        .map(|(spec, descriptor)| {
            let (client, access) = (&client, &access);
            async move {
                let fetched = fetch_layer(context, client, descriptor, &spec, access).await?;
                Ok::<_, PullError>((spec, fetched))
            }
        })
        .buffered(LAYERS_AT_ONCE);
    let (mut size_bytes, mut below) = (0, Vec::new());
    while let Some(layer) = staged.next().await {
        let (spec, layer) = layer?;
        let place = layout.layer_dir(&spec.chain_id).join("fs");
        size_bytes += match layer {
            Fetched::Present(size) => size,
            Fetched::Staged(layer) => {
                let (layout, access, below) = (layout.clone(), access.clone(), below.clone());
                blocking(move || layer::adopt(&layout, &spec, &access, layer, &below)).await?
            }
        };
        below.insert(0, place);
    }
    let digest_name = reference::digest_name(image, &digest);
    let repo_tags: BTreeSet<String> = reference::tag_name(image).into_iter().collect();
    let names = repo_tags.iter().chain([&digest_name]);
    Ok(Record {
        id: manifest.config.digest,
        layers: specs.into_iter().map(|spec| spec.chain_id).collect(),
        size_bytes,
        access: names
            .map(|name| (name.clone(), access.iter().map(Key::line).collect()))
            .collect(),
        repo_tags,
        repo_digests: [digest_name].into(),
        config,
    })
}

/// Finds the credentials that open the image, and with them its manifest. Also tells who else may
/// use what comes of it.
async fn resolve(
    registries: &Registries,
    retries: Retries,
    endpoint: &Endpoint,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Result<(Distribution, Vec<Key>, FoundManifest), RegistryError> {
    let mut refusal = None;
    for (credentials, access) in credentials(registries, endpoint, image, auth) {
        let client = distribution(registries, endpoint, image, credentials)?;
        match client.manifest(image, retries).await {
            Ok(found) => return Ok((client, access, found)),
            // Of several refusals that is told which says more than that it is one.
            Err(error) if error.is_of_credentials() => {
                if refusal.as_ref().is_none_or(RegistryError::is_denied) {
                    refusal = Some(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let said = Said::default();
    Err(refusal.unwrap_or(RegistryError::Denied { said }))
}

/// Checks the manifest against the config before a byte of a layer is fetched.
pub(super) fn layer_specs(
    manifest: &OciImageManifest,
    diff_ids: &[String],
) -> Result<Vec<LayerSpec>, DocumentError> {
    if manifest.layers.len() != diff_ids.len() {
        return Err(DocumentError::LayerCounts {
            manifest: manifest.layers.len(),
            config: diff_ids.len(),
        });
    }
    if diff_ids.len() > LAYERS_MAX {
        return Err(DocumentError::TooManyLayers {
            count: diff_ids.len(),
            most: LAYERS_MAX,
        });
    }
    let blob = |(layer, diff_id): (&OciDescriptor, &String)| {
        let digest = layer.digest.clone();
        if !is_sha256(&digest) {
            let of = "layer digest";
            return Err(DocumentError::Digest { of, digest });
        }
        match u64::try_from(layer.size) {
            Ok(size) => Ok((Some((digest, size)), diff_id.clone())),
            Err(_) => Err(DocumentError::LayerSize {
                digest,
                size: layer.size,
            }),
        }
    };
    let blobs = manifest
        .layers
        .iter()
        .zip(diff_ids)
        .map(blob)
        .collect::<Result<Vec<_>, DocumentError>>()?;
    Ok(layer::specs(blobs))
}

async fn fetch_config(
    client: &Distribution,
    descriptor: &OciDescriptor,
    retries: Retries,
) -> Result<Vec<u8>, PullError> {
    let (digest, size) = (descriptor.digest.clone(), descriptor.size);
    if !is_sha256(&digest) {
        let of = "config digest";
        return Err(DocumentError::Digest { of, digest }.into());
    }
    if u64::try_from(size).is_ok_and(|size| size > DOCUMENT_MAX) {
        return Err(DocumentError::ConfigSize { digest, size }.into());
    }
    let bytes = client.small_blob(&digest, retries).await;
    bytes.map_err(|source| PullError::FetchConfig { digest, source })
}

fn distribution(
    registries: &Registries,
    endpoint: &Endpoint,
    image: &Reference,
    credentials: Credentials,
) -> Result<Distribution, RegistryError> {
    let tls = registries
        .configs
        .get(&endpoint.host)
        .and_then(|config| config.tls.clone())
        .unwrap_or_default();
    let scheme = if endpoint.plain_http { "http" } else { "https" };
    let base = format!("{scheme}://{}/", endpoint.host);
    let instead_of =
        (!serves_itself(endpoint, image.registry())).then(|| image.registry().to_owned());
    Distribution::new(&base, &tls, image, instead_of, credentials)
}

fn serves_itself(endpoint: &Endpoint, registry: &str) -> bool {
    endpoint.host == registry || registry == "docker.io" && endpoint.host == "index.docker.io"
}

/// What to try, each with who may use what it opens: the node's own credentials for this endpoint,
/// else those of the pod's pull secrets for it or for the registry, else none.
fn credentials(
    registries: &Registries,
    endpoint: &Endpoint,
    image: &Reference,
    auth: &[RegistryAuth],
) -> Vec<(Credentials, Vec<Key>)> {
    if let Some(own) = registries
        .configs
        .get(&endpoint.host)
        .and_then(|config| config.auth.clone())
    {
        let own = match (own.token, own.username) {
            (Some(token), _) => Credentials::Token(token),
            (None, Some(username)) => Credentials::Basic {
                username,
                password: own.password.unwrap_or_default(),
            },
            (None, None) => Credentials::Anonymous,
        };
        return vec![(own, vec![Key::anybody()])];
    }
    let matching = matching(endpoint, image, auth);
    if matching.is_empty() {
        return vec![(Credentials::Anonymous, vec![Key::anybody()])];
    }
    let mut all: Vec<(Credentials, Vec<Key>)> = Vec::new();
    for auth in matching {
        let key = Key {
            fingerprint: fingerprint(auth),
            secret: coordinates(auth),
        };
        match all
            .iter()
            .position(|(_, access)| access[0].fingerprint == key.fingerprint)
        {
            // Kept in several secrets, or in several entries of one.
            Some(index) if all[index].1.contains(&key) => {}
            Some(index) => all[index].1.push(key),
            None if all.len() < CREDENTIALS_MAX => all.push((of_secret(auth), vec![key])),
            None => {}
        }
    }
    all
}

/// Those of `auth` that are for this endpoint, or for the registry that it is.
fn matching<'a>(
    endpoint: &Endpoint,
    image: &Reference,
    auth: &'a [RegistryAuth],
) -> Vec<&'a RegistryAuth> {
    let mut matching = for_image(auth, &endpoint.host, image.repository());
    if serves_itself(endpoint, image.registry()) && endpoint.host != image.registry() {
        matching.extend(for_image(auth, image.registry(), image.repository()));
    }
    matching
}

/// What may open what was pulled as `name`, first what a pull would try first: credentials, with
/// the secret that each is in if it is for that registry (or a mirror) still.
pub(super) fn keys(registries: &Registries, name: &str, auth: &[RegistryAuth]) -> Vec<Key> {
    let image = reference::parse(name).ok();
    let endpoints = image
        .iter()
        .flat_map(|image| registries.endpoints(image.registry()));
    let fitting = endpoints
        .zip(image.iter().cycle())
        .flat_map(|(endpoint, image)| matching(&endpoint, image, auth));
    let with_secret = fitting.map(|auth| Key {
        fingerprint: fingerprint(auth),
        secret: coordinates(auth),
    });
    let alone = auth.iter().map(|auth| Key {
        fingerprint: fingerprint(auth),
        secret: None,
    });
    with_secret.chain(alone).collect()
}

fn of_secret(auth: &RegistryAuth) -> Credentials {
    match (auth.registry_token.as_str(), auth.identity_token.as_str()) {
        ("", "") => Credentials::Basic {
            username: auth.username.clone(),
            password: auth.password.clone(),
        },
        ("", identity) => Credentials::Identity(identity.to_owned()),
        (registry, _) => Credentials::Token(registry.to_owned()),
    }
}

#[cfg(test)]
mod tests;
