//! For whom a node may have a token of a pod's account, and for how long: as the pod's volumes say.
//!
//! A token for another audience is good elsewhere (a vault, a cloud), where nobody knows that a
//! node asked for it.
//!
//! Source: `validateNodeServiceAccountAudience` in
//! `plugin/pkg/admission/noderestriction/admission.go` at v1.37. That a token lives no longer than
//! its volume says is ours.

use coracle_api::{meta, status::Status};
use coracle_auth::authz::{Attributes, ResourceTarget, Target};
use coracle_registry::{resource::Registry, store::cache_status};
use serde_json::Value;

use crate::endpoints::Call;

const VERB: &str = "request-serviceaccounts-token-audience";
/// Of a token whose life nobody chose.
const DEFAULT_SECS: i64 = super::DEFAULT_SECS;

/// Whether a node gets the token that it asks for. Without an audience it is the API server's.
pub(super) async fn check(
    call: &Call<'_>,
    pod: &Value,
    request: &Value,
    seconds: i64,
) -> Result<(), Status> {
    let forbidden =
        |why: &str| Status::forbidden(&call.resource.group_resource, &call.info.name, why);
    let audience = match meta::get_array(request, &["spec", "audiences"]) {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err(forbidden("node may only request 0 or 1 audiences")),
    };
    // Roles, drivers and claims as they are now.
    call.server
        .store
        .cache
        .catch_up()
        .await
        .map_err(cache_status)?;
    if let Some(longest) = life(&call.server.registry, pod, audience) {
        if seconds <= longest {
            return Ok(());
        }
        let why = format!(
            "node requested a token for {seconds} seconds, the volumes of the pod say {longest}"
        );
        return Err(forbidden(&why));
    }
    let target = ResourceTarget {
        resource: audience,
        namespace: &call.info.namespace,
        name: &call.info.name,
        ..ResourceTarget::default()
    };
    if call.server.authorizer.allows(&Attributes {
        user: call.user,
        verb: VERB,
        target: Target::Resource(target),
    }) {
        return Ok(());
    }
    let why = format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        call.user.name
    );
    Err(forbidden(&why))
}

/// The longest life of a token for `audience` in any of the pod's volumes; `None` if it is in none.
fn life(registry: &Registry, pod: &Value, audience: &str) -> Option<i64> {
    let volumes = meta::get_array(pod, &["spec", "volumes"]);
    let lives = volumes.iter().flat_map(|volume| {
        let projected = meta::get_array(volume, &["projected", "sources"])
            .iter()
            .filter_map(|source| source.get("serviceAccountToken").cloned());
        let driver = driver(registry, pod, volume)
            .and_then(|name| object(registry, ("storage.k8s.io", "csidrivers"), "", &name));
        let requests =
            driver.map(|driver| meta::get_array(&driver, &["spec", "tokenRequests"]).to_vec());
        projected
            .chain(requests.unwrap_or_default())
            .collect::<Vec<Value>>()
    });
    lives
        .filter(|token| meta::get_str(token, &["audience"]) == audience)
        .map(|token| meta::get_i64(&token, &["expirationSeconds"]).unwrap_or(DEFAULT_SECS))
        .max()
}

/// The CSI driver of a volume, if it has one: in the pod, or in the volume behind its claim.
fn driver(registry: &Registry, pod: &Value, volume: &Value) -> Option<String> {
    if let Some(driver) = volume["csi"]["driver"].as_str() {
        return Some(driver.to_owned());
    }
    let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => name.to_owned(),
        None if volume["ephemeral"].is_object() => {
            format!("{}-{}", meta::name(pod), meta::get_str(volume, &["name"]))
        }
        None => return None,
    };
    let claim = object(
        registry,
        ("", "persistentvolumeclaims"),
        meta::namespace(pod),
        &claim,
    )?;
    let bound = object(
        registry,
        ("", "persistentvolumes"),
        "",
        meta::get_str(&claim, &["spec", "volumeName"]),
    )?;
    bound["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}

/// As the cache has it.
fn object(
    registry: &Registry,
    (group, plural): (&str, &str),
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let resource = registry.get(group, "v1", plural)?;
    let entry = resource.cache.get(&resource.key(namespace, name))?;
    serde_json::from_slice(entry.unmanaged()).ok()
}
