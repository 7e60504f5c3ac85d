//! PodTolerationRestriction: pods of a namespace tolerate what annotations of it or the
//! configuration add, and nothing beyond what they allow.
//!
//! ```yaml
//! apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
//! kind: Configuration
//! default: [...]      # added to pods of namespaces that say nothing
//! whitelist: [...]    # all that pods of namespaces that say nothing may tolerate
//! ```
//!
//! Source: `plugin/pkg/admission/podtolerationrestriction/admission.go` at v1.37.

pub(crate) mod config;

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    qos::{self, QosClass},
    status::{Reason, Status},
};
use coracle_registry::{api_resource::ApiResource, resource::Registry, store::Store, value::items};
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Value, json};

use self::config::{PodTolerationConfig, values};
use super::{
    namespaces::namespace,
    tolerations::{are_within, merge},
};
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
    pod::spec_mut,
};

const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const CONFLICT: &str = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";

pub(crate) struct PodTolerationRestriction {
    store: Store,
    registry: Arc<Registry>,
    config: PodTolerationConfig,
}

impl PodTolerationRestriction {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            config: parts.config.pod_tolerations.clone(),
        }
    }

    /// What the namespace says, or else the configuration.
    async fn said(
        &self,
        name: &str,
        annotation: &str,
        otherwise: &[Value],
    ) -> Result<Vec<Value>, Status> {
        let namespace = namespace(&self.store, &self.registry, name).await?;
        let own = of_annotation(&namespace, annotation);
        let own = own.map_err(|why| Status::new(500, Reason::Unknown, why))?;
        Ok(own.unwrap_or_else(|| otherwise.to_vec()))
    }

    async fn check(&self, namespace: &str, pod: &Value) -> Result<(), Status> {
        let tolerations = items(&pod["spec"]["tolerations"]);
        if tolerations.is_empty() {
            return Ok(());
        }
        let allowed = self
            .said(namespace, ALLOWED, &self.config.whitelist)
            .await?;
        if are_within(tolerations, &allowed) {
            return Ok(());
        }
        // Upstream takes this for a failure of its own.
        Err(Status::new(500, Reason::Unknown, CONFLICT))
    }
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        let mut more = match attributes.operation {
            Operation::Create => {
                self.said(attributes.namespace, DEFAULT, &self.config.default)
                    .await?
            }
            _ => Vec::new(),
        };
        more.extend(of_class(&attributes.object()["spec"]));
        if !more.is_empty()
            && let Some(spec) = spec_mut(attributes)
        {
            spec["tolerations"] = merge(items(&spec["tolerations"]), &more).into();
        }
        self.check(attributes.namespace, attributes.object()).await
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        self.check(attributes.namespace, attributes.object()).await
    }
}

/// Only pods that ask for nothing keep off nodes that are short of memory.
fn of_class(spec: &Value) -> Option<Value> {
    let is_best_effort = qos::class_of_json(spec) == QosClass::BestEffort;
    (!is_best_effort).then(|| {
        json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"})
    })
}

/// An empty annotation says something: nothing.
fn of_annotation(namespace: &Value, annotation: &str) -> Result<Option<Vec<Value>>, String> {
    match meta::annotation(namespace, annotation) {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => {
            let all: Vec<Toleration> =
                serde_json::from_str(text).map_err(|error| format!("{annotation}: {error}"))?;
            Ok(Some(values(&all)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_says_nothing_or_that_nothing_is_said() {
        let namespace = |text: &str| json!({"metadata": {"annotations": {DEFAULT: text}}});
        let said = |namespace: &Value| of_annotation(namespace, DEFAULT);
        assert_eq!(said(&json!({})), Ok(None));
        assert_eq!(said(&namespace("")), Ok(Some(vec![])));
        let one = r#"[{"operator": "Exists", "key": "k"}]"#;
        let expect = json!({"operator": "Exists", "key": "k"});
        assert_eq!(said(&namespace(one)), Ok(Some(vec![expect])));
        assert!(said(&namespace("{")).unwrap_err().starts_with(DEFAULT));
    }

    #[test]
    fn whoever_asks_for_something_tolerates_short_memory() {
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]});
        assert!(of_class(&spec).is_some());
        assert!(of_class(&json!({"containers": [{}]})).is_none());
    }
}
