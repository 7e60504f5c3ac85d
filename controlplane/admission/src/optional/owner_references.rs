//! OwnerReferencesPermissionEnforcement: who changes whom an object belongs to may delete it, for
//! the collector will on their behalf; who lets it hold up the deletion of its owner may change the
//! finalizers of that.
//!
//! Source: `plugin/pkg/admission/gc/gc_admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{meta, status::Status};
use coracle_auth::authz::{self, Decision, ResourceTarget, Target};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::{Store, cache_status},
    value::string,
    watch_cache::{KeyScope, Selection},
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

pub(crate) struct OwnerReferencesPermissionEnforcement {
    store: Store,
    registry: Arc<Registry>,
    authorizer: Arc<authz::UnionAuthorizer>,
}

/// A resource that a reference may be to.
struct Mapping {
    plural: String,
    is_namespaced: bool,
}

impl OwnerReferencesPermissionEnforcement {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            authorizer: Arc::clone(&parts.authorizer),
        }
    }

    /// # Errors
    /// `what`, and why the user may not.
    fn check(
        &self,
        attributes: &Attributes<'_>,
        what: &str,
        verb: &str,
        target: ResourceTarget<'_>,
    ) -> Result<(), Status> {
        let asked = authz::Attributes {
            user: attributes.user,
            verb,
            target: Target::Resource(target),
        };
        if self.authorizer.allows(&asked) {
            return Ok(());
        }
        match self.authorizer.explain(&asked) {
            // A role has come in between.
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(reason) => {
                Err(attributes.forbidden(format_args!("{what}: {reason}, <nil>")))
            }
        }
    }

    async fn check_owner(&self, attributes: &Attributes<'_>, owner: &Value) -> Result<(), Status> {
        let (api_version, kind) = (string(&owner["apiVersion"]), string(&owner["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mappings = self.mappings(group, version, kind).await?;
        if mappings.is_empty() {
            return Err(attributes.forbidden(format_args!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
                 {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
            )));
        }
        for mapping in mappings {
            let target = ResourceTarget {
                group,
                resource: &mapping.plural,
                subresource: "finalizers",
                // An owner is in the same namespace, or in none.
                namespace: if mapping.is_namespaced {
                    attributes.namespace
                } else {
                    ""
                },
                name: string(&owner["name"]),
                ..ResourceTarget::default()
            };
            let what = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
            self.check(attributes, what, "update", target)?;
        }
        Ok(())
    }

    async fn mappings(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Vec<Mapping>, Status> {
        let all = self.registry.resources().iter();
        let built_in: Vec<Mapping> = all
            .filter(|one| {
                one.info.kind == kind && one.info.group == group && one.info.version == version
            })
            .map(|one| Mapping {
                plural: one.info.plural.to_string(),
                is_namespaced: one.is_namespaced(),
            })
            .collect();
        let definitions =
            self.registry
                .get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some(definitions) = definitions.filter(|_| built_in.is_empty()) else {
            return Ok(built_in);
        };
        self.store.cache.catch_up().await.map_err(cache_status)?;
        let snapshot = definitions.cache.snapshot();
        let all = Selection::of(KeyScope::Resource);
        // A definition is large and named after its group: the others need not be read.
        let of_group = snapshot.select(&all, &definitions.prefix).filter(|entry| {
            entry
                .name()
                .split_once('.')
                .is_some_and(|(_, of)| of == group)
        });
        Ok(of_group
            .filter_map(|entry| serde_json::from_slice(&entry.unmanaged()).ok())
            .filter_map(|one| mapping(&one, group, version, kind))
            .collect())
    }
}

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, operation: Operation, _: &ApiResource) -> bool {
        operation.writes()
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        // A node writes it as it is: nothing there changes an owner.
        if attributes.resource.is_core("pods") && attributes.subresource == "status" {
            return Ok(());
        }
        let old = attributes.old().map_or(&[][..], meta::owner_references);
        let new = meta::owner_references(attributes.object());
        if new == old {
            return Ok(());
        }
        let target = ResourceTarget {
            group: &attributes.resource.group,
            resource: &attributes.resource.plural,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            ..ResourceTarget::default()
        };
        let what = "cannot set an ownerRef on a resource you can't delete";
        self.check(attributes, what, "delete", target)?;
        for owner in newly_blocked(new, old) {
            self.check_owner(attributes, owner).await?;
        }
        Ok(())
    }
}

/// The resource of a definition, if its objects are of this kind.
fn mapping(definition: &Value, group: &str, version: &str, kind: &str) -> Option<Mapping> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let mut versions = spec["versions"].as_array()?.iter();
    let is_it = spec["group"] == group && names["kind"] == kind;
    let is_served = versions.any(|one| one["name"] == version && one["served"] == true);
    (is_it && is_served).then(|| Mapping {
        plural: string(&names["plural"]).to_owned(),
        is_namespaced: spec["scope"] == "Namespaced",
    })
}

/// Owners whose deletion waits for the object, and did not before.
fn newly_blocked<'a>(new: &'a [Value], old: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    new.iter().filter(move |owner| {
        let mut before = old.iter().filter(|one| one["uid"] == owner["uid"]);
        blocks(owner) && !before.any(blocks)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_blocks_anew_is_looked_at() {
        let owner = |uid: &str, blocks: Value| json!({"uid": uid, "blockOwnerDeletion": blocks});
        let (yes, no, unsaid) = (
            owner("1", json!(true)),
            owner("1", json!(false)),
            owner("1", json!(null)),
        );
        let other = owner("2", json!(true));
        for (new, old, expect) in [
            (vec![], vec![], 0),
            (vec![no.clone()], vec![], 0),
            (vec![yes.clone()], vec![], 1),
            (vec![yes.clone()], vec![yes.clone()], 0),
            (vec![yes.clone()], vec![no], 1),
            (vec![yes.clone()], vec![unsaid], 1),
            (vec![yes.clone(), other], vec![yes], 1),
        ] {
            assert_eq!(newly_blocked(&new, &old).count(), expect, "{new:?} {old:?}");
        }
    }

    #[test]
    fn a_definition_stands_for_the_versions_that_it_serves() {
        let definition = json!({"spec": {"group": "g.example", "scope": "Cluster", "versions": [
            {"name": "v1", "served": true}, {"name": "v2", "served": false}]},
            "status": {"acceptedNames": {"plural": "things", "kind": "Thing"}}});
        let of = |group, version, kind| {
            mapping(&definition, group, version, kind).map(|one| (one.plural, one.is_namespaced))
        };
        assert_eq!(
            of("g.example", "v1", "Thing"),
            Some(("things".to_owned(), false))
        );
        for (group, version, kind) in [
            ("g.example", "v2", "Thing"),
            ("g.example", "v1", "Other"),
            ("h.example", "v1", "Thing"),
        ] {
            assert_eq!(of(group, version, kind), None);
        }
    }
}
