//! PodNodeSelector: pods of a namespace go to the nodes that an annotation of it or the
//! configuration says, and to no others.
//!
//! ```yaml
//! podNodeSelectorPluginConfig:
//!   clusterDefaultNodeSelector: env=test     # of namespaces without the annotation
//!   NAMESPACE: env=test,disk=ssd             # all that pods of the namespace may say
//! ```
//!
//! Source: `plugin/pkg/admission/podnodeselector/admission.go` at v1.37.

pub(crate) mod config;

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    status::{Reason, Status},
};
use coracle_registry::{
    api_resource::ApiResource, fill, resource::Registry, store::Store, value::string,
};
use serde_json::Value;

use self::config::{PodNodeSelectorConfig, Selector, selector};
use super::namespaces::namespace;
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
    pod::spec_mut,
};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

pub(crate) struct PodNodeSelector {
    store: Store,
    registry: Arc<Registry>,
    config: PodNodeSelectorConfig,
}

impl PodNodeSelector {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            config: parts.config.pod_node_selector.clone(),
        }
    }

    async fn of_namespace(&self, name: &str) -> Result<Selector, Status> {
        let namespace = namespace(&self.store, &self.registry, name).await?;
        let own = meta::annotation(&namespace, ANNOTATION);
        own.map_or_else(|| self.config.named(CLUSTER_DEFAULT), selector)
            .map_err(|why| Status::new(500, Reason::Unknown, why))
    }
}

#[async_trait]
impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        let wanted = self.of_namespace(attributes.namespace).await?;
        check_conflict(&wanted, &attributes.object()["spec"])
            .map_err(|why| attributes.forbidden(why))?;
        if !wanted.is_empty()
            && let Some(spec) = spec_mut(attributes)
        {
            fill::object(spec, "nodeSelector");
            for (key, value) in wanted {
                spec["nodeSelector"][key] = value.into();
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        let spec = &attributes.object()["spec"];
        let wanted = self.of_namespace(attributes.namespace).await?;
        let allowed = self.config.named(attributes.namespace);
        let allowed = allowed.map_err(|why| Status::new(500, Reason::Unknown, why))?;
        check_conflict(&wanted, spec)
            .and_then(|()| check_allowed(&allowed, spec))
            .map_err(|why| attributes.forbidden(why))
    }
}

fn check_conflict(wanted: &Selector, spec: &Value) -> Result<(), &'static str> {
    let differs = |(key, value): (&String, &String)| {
        let own = &spec["nodeSelector"][key];
        own.is_string() && own != value.as_str()
    };
    if wanted.iter().any(differs) {
        return Err("pod node label selector conflicts with its namespace node label selector");
    }
    Ok(())
}

/// Nothing said allows all.
fn check_allowed(allowed: &Selector, spec: &Value) -> Result<(), &'static str> {
    let own = spec["nodeSelector"].as_object();
    let mut own = own.into_iter().flatten();
    let is_allowed = |(key, value): (&String, &Value)| {
        allowed
            .get(key)
            .is_some_and(|allowed| allowed == string(value))
    };
    if allowed.is_empty() || own.all(is_allowed) {
        return Ok(());
    }
    Err("pod node label selector labels conflict with its namespace whitelist")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What becomes of a pod whose namespace says `namespace`, where the cluster says `default` and
    /// allows `allowed`.
    fn admitted(
        default: &str,
        namespace: Option<&str>,
        allowed: &str,
        own: Value,
    ) -> Result<Value, &'static str> {
        let wanted = selector(namespace.unwrap_or(default)).unwrap();
        let mut spec = json!({"nodeSelector": own});
        check_conflict(&wanted, &spec)?;
        for (key, value) in &wanted {
            spec["nodeSelector"][key] = value.as_str().into();
        }
        check_allowed(&selector(allowed).unwrap(), &spec)?;
        Ok(spec["nodeSelector"].clone())
    }

    #[test]
    fn pods_get_the_selector_of_their_namespace_within_what_it_may() {
        let conflict =
            Err("pod node label selector conflicts with its namespace node label selector");
        let forbidden = Err("pod node label selector labels conflict with its namespace whitelist");
        for (default, namespace, allowed, own, expect) in [
            ("", None, "", json!({}), Ok(json!({}))),
            (
                "infra = false",
                None,
                "",
                json!({}),
                Ok(json!({"infra": "false"})),
            ),
            (
                "",
                Some(" infra = false "),
                "",
                json!({}),
                Ok(json!({"infra": "false"})),
            ),
            (
                "infra = false",
                Some("infra=true"),
                "",
                json!({}),
                Ok(json!({"infra": "true"})),
            ),
            ("infra = false", Some(""), "", json!({}), Ok(json!({}))),
            (
                "infra = false",
                Some("infra=true"),
                "",
                json!({"env": "test"}),
                Ok(json!({"infra": "true", "env": "test"})),
            ),
            (
                "env = test",
                Some("infra=true"),
                "",
                json!({"infra": "false"}),
                conflict.clone(),
            ),
            (
                "env=dev",
                Some("infra=false, env = test"),
                "",
                json!({"env": "dev", "color": "blue"}),
                conflict,
            ),
            (
                "env=dev",
                Some("infra=false, env = dev"),
                "env=dev, infra=false, color=blue",
                json!({"env": "dev", "color": "blue"}),
                Ok(json!({"infra": "false", "env": "dev", "color": "blue"})),
            ),
            (
                "env=dev",
                Some("infra=false, env = dev"),
                "env=dev, infra=true, color=blue",
                json!({"env": "dev", "color": "blue"}),
                forbidden.clone(),
            ),
            ("env=dev", None, "env=prd", json!({}), forbidden),
        ] {
            assert_eq!(
                admitted(default, namespace, allowed, own.clone()),
                expect,
                "{default} {namespace:?} {allowed} {own}"
            );
        }
    }
}
