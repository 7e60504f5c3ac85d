//! Which tokens a node may have: those of pods on it, for whom and for as long as the pods' volumes
//! say.
//!
//! A token for another audience is good elsewhere (a vault, a cloud), where nobody knows that a
//! node asked for it.
//!
//! Source: `admitServiceAccount` and `validateNodeServiceAccountAudience` in
//! `plugin/pkg/admission/noderestriction/admission.go` at v1.37. That a token lives no longer than
//! its volume says is ours.

use coracle_api::{meta, status::Status};
use coracle_auth::authz::ResourceTarget;
use coracle_registry::{resource::Registry, store::cache_status};
use serde_json::Value;

use super::{NodeRestriction, runs_on};
use crate::attributes::Attributes;

const VERB: &str = "request-serviceaccounts-token-audience";
/// Of a token whose life nobody chose.
const DEFAULT_SECS: i64 = 3600;

impl NodeRestriction {
    /// Whether a node gets the token that it asks for.
    pub(super) async fn token(
        &self,
        node: &str,
        attributes: &Attributes<'_>,
    ) -> Result<(), Status> {
        let request = attributes.object();
        let reference = &request["spec"]["boundObjectRef"];
        let text = |field: &str| meta::get_str(reference, &[field]);
        let refuse = |why: &str| Err(attributes.forbidden(why));
        if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
            return refuse("node requested token not bound to a pod");
        }
        // Only the UID tells its pod from another of that name on another node.
        if text("uid").is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let Some(pods) = self.registry.core("pods") else {
            return Err(Status::no_such_path());
        };
        let key = pods.key(attributes.namespace, text("name"));
        let Some(pod) = self.store.current(pods, &key).await? else {
            return Err(Status::not_found(&pods.group_resource, text("name")));
        };
        if meta::uid(&pod.object) != text("uid") {
            return refuse(&format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have \
                 been deleted and then recreated",
                text("uid")
            ));
        }
        if !runs_on(node, &pod.object) {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(attributes, &pod.object).await
    }

    /// Whether the pod has a volume for such a token. Without an audience it is the API server's.
    async fn audience(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let request = attributes.object();
        let audience = match meta::get_array(request, &["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return Err(attributes.forbidden("node may only request 0 or 1 audiences")),
        };
        // Roles, drivers and claims as they are now.
        self.store.cache.catch_up().await.map_err(cache_status)?;
        if let Some(longest) = life(&self.registry, pod, audience) {
            let seconds =
                meta::get_i64(request, &["spec", "expirationSeconds"]).unwrap_or(DEFAULT_SECS);
            if seconds <= longest {
                return Ok(());
            }
            return Err(attributes.forbidden(format!(
                "node requested a token for {seconds} seconds, the volumes of the pod say {longest}"
            )));
        }
        let target = ResourceTarget {
            resource: audience,
            name: attributes.name,
            ..ResourceTarget::default()
        };
        if self.is_authorized(attributes, VERB, target) {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            attributes.user.name
        )))
    }
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
pub(super) fn object(
    registry: &Registry,
    (group, plural): (&str, &str),
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let resource = registry.get(group, "v1", plural)?;
    let entry = resource.cache.get(&resource.key(namespace, name))?;
    serde_json::from_slice(&entry.unmanaged()).ok()
}
