//! What a pod may pull its images with.

use k8s_openapi::api::core::v1::Pod;

use crate::{
    context::NodeContext,
    image::credentials::{self, Collected},
    objects::FRESH,
    pod::PodExt,
    runtime::{RegistryAuth, SecretCoordinates},
};

/// What a pod's `imagePullSecrets` hold, and the names of those that could not be read, or hold
/// more than is taken: as upstream, the pull is tried without them.
pub(crate) async fn pull_credentials(
    ctx: &NodeContext,
    pod: &Pod,
) -> (Vec<RegistryAuth>, Vec<String>) {
    let spec = pod.spec_or_default();
    let references = spec.image_pull_secrets.iter().flatten();
    let (names, beyond) = credentials::to_read(references.map(|reference| &*reference.name));
    let (mut found, mut missing) = (Collected::default(), Vec::new());
    for name in names {
        let secret = ctx.objects.secret(pod.namespace(), name, FRESH).await;
        let Ok(Some(secret)) = secret else {
            missing.push(name.to_owned());
            continue;
        };
        let coordinates = SecretCoordinates {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.namespace().to_owned(),
            name: name.to_owned(),
        };
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let whole = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(json), _) => found.add(&json.0, credentials::parse_config, coordinates),
            (None, Some(json)) => found.add(&json.0, credentials::parse_legacy, coordinates),
            (None, None) => true,
        };
        if !whole {
            missing.push(name.to_owned());
        }
    }
    missing.extend(beyond.into_iter().map(str::to_owned));
    (found.auths, missing)
}
