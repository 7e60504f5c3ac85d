//! PodSecurity: holds pods to the Pod Security Standards, as the labels of their namespace say.
//!
//! ```text
//! Pod, made or changed       enforce: refused     audit: on record     warn: told
//! what makes pods                                 audit: on record     warn: told
//! Namespace                  labels must be readable; pods that are there and would be refused are told of
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`level`] | levels, versions, and what labels say |
//! | [`pod`] | a pod as the checks look at it, and where it is in what makes it |
//! | [`standard`] | which check belongs to which level, since which release |
//! | [`checks`] | the checks |
//! | [`words`] | what their sentences are put together from |
//! | [`violation`] | what a check has against a pod |
//! | [`verdict`] | what comes of a pod |
//! | [`existing`] | what is told of pods that are there |
//! | [`config`] | defaults and exemptions |
//! | [`metrics`] | what is counted |
//!
//! Source: `plugin/pkg/admission/security/podsecurity/admission.go` and
//! `k8s.io/pod-security-admission/admission/admission.go` at v1.37.

mod checks;
pub(crate) mod config;
mod existing;
mod level;
pub(crate) mod metrics;
mod pod;
mod standard;
#[cfg(test)]
mod tests;
mod verdict;
mod violation;
mod words;

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::{Store, cache_status},
    watch_cache::{Entry, KeyScope, Selection},
};
use serde_json::Value;

use self::{
    config::PodSecurityConfig,
    existing::{LIMITS, Stored},
    level::{Level, LevelVersion, PREFIX, Policy},
    metrics::{Count, PodSecurityMetrics},
    pod::Pod,
    verdict::Verdict,
};
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

/// What is below a pod and changes nothing of its spec.
const NO_SPEC: &[&str] = &[
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

pub(crate) struct PodSecurity {
    store: Store,
    registry: Arc<Registry>,
    config: Arc<PodSecurityConfig>,
    metrics: PodSecurityMetrics,
}

impl PodSecurity {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            config: Arc::new(parts.config.pod_security.clone()),
            metrics: parts.metrics.clone(),
        }
    }

    /// What a namespace asks, and what is wrong with its labels.
    async fn policy_of(&self, namespace: &str) -> Result<(Policy, FieldErrors), Status> {
        let lost = || Status::internal(format_args!("failed to lookup namespace {namespace:?}"));
        let namespaces = self.registry.core("namespaces").ok_or_else(lost)?;
        let key = namespaces.key("", namespace);
        // Every write of a pod comes here: nothing is parsed for those that ask for nothing.
        if !self.store.cache.is_behind(&key)
            && let Some(entry) = namespaces.cache.get(&key)
        {
            return Ok(Policy::of_labels(
                |label| entry.label(label),
                &self.config.defaults,
            ));
        }
        let current = self.store.current(namespaces, &key).await?;
        Ok(self.asked_by(&current.ok_or_else(lost)?.object))
    }

    fn asked_by(&self, namespace: &Value) -> (Policy, FieldErrors) {
        let label = |label: &str| meta::label(namespace, label);
        Policy::of_labels(label, &self.config.defaults)
    }

    // === pods, and what makes them ===

    /// Whom nobody looks at.
    fn exempt(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        let exemptions = &self.config.exemptions;
        if exemptions.has_namespace(attributes.namespace) {
            Some(Verdict::exempt("namespace"))
        } else if exemptions.has_user(&attributes.user.name) {
            Some(Verdict::exempt("user"))
        } else {
            None
        }
    }

    async fn of_pod(&self, attributes: &Attributes<'_>) -> Result<Verdict, Status> {
        if NO_SPEC.contains(&attributes.subresource) {
            return Ok(Verdict::default());
        }
        if let Some(exempt) = self.exempt(attributes) {
            return Ok(exempt);
        }
        let asked = self.policy_of(attributes.namespace).await;
        let (policy, errors) = asked.inspect_err(|_| {
            let failed = Count::Failed { is_fatal: true };
            self.metrics.count(attributes, &failed);
        })?;
        if errors.is_empty() && policy.is_privileged() {
            return Ok(Verdict::privileged());
        }
        let pod = attributes.object();
        if attributes
            .old()
            .is_some_and(|old| !pod::changes_much(pod, old))
        {
            return Ok(Verdict::default());
        }
        Ok(self.judge(&policy, &errors, Pod::of(pod), true))
    }

    async fn of_template(
        &self,
        attributes: &Attributes<'_>,
        path: &[&str],
    ) -> Result<Verdict, Status> {
        if !attributes.subresource.is_empty() {
            return Ok(Verdict::default());
        }
        if let Some(exempt) = self.exempt(attributes) {
            return Ok(exempt);
        }
        let (policy, errors) = match self.policy_of(attributes.namespace).await {
            Ok(asked) => asked,
            // It refuses nothing, so it does not for this either.
            Err(status) => return Ok(Verdict::failed(&status.message)),
        };
        if errors.is_empty() && policy.asks_nothing_but_enforced() {
            return Ok(Verdict::default());
        }
        let template = meta::get(attributes.object(), path).filter(|template| !template.is_null());
        Ok(template.map_or_else(Verdict::default, |template| {
            self.judge(&policy, &errors, Pod::of(template), false)
        }))
    }

    fn judge(
        &self,
        policy: &Policy,
        errors: &FieldErrors,
        pod: Pod<'_>,
        is_enforced: bool,
    ) -> Verdict {
        if self
            .config
            .exemptions
            .has_runtime_class(pod.runtime_class())
        {
            return Verdict::exempt("runtimeClass");
        }
        verdict::of_pod(policy, errors, pod, is_enforced)
    }

    // === namespaces ===

    async fn of_namespace(&self, attributes: &Attributes<'_>) -> Result<Verdict, Status> {
        if !attributes.subresource.is_empty() {
            return Ok(Verdict::default());
        }
        let (namespace, name) = (attributes.object(), attributes.shown_name());
        let (policy, errors) = self.asked_by(namespace);
        let before = attributes.old().map(|old| self.asked_by(old));
        let known = before.as_ref().map(|(_, errors)| errors.to_string());
        if !errors.is_empty() && known != Some(errors.to_string()) {
            let gvk = attributes.resource.gvk();
            return Err(Status::invalid(&gvk, name, errors));
        }
        if before.is_some_and(|(before, _)| !asks_more(&policy.enforce, &before.enforce)) {
            return Ok(Verdict::default());
        }
        let warnings = if self.config.exemptions.has_namespace(name) {
            let warning = self.ignored(name, namespace, &policy);
            warning.into_iter().collect()
        } else if attributes.old().is_some() {
            self.of_existing(name, policy.enforce).await?
        } else {
            Vec::new()
        };
        Ok(Verdict {
            warnings,
            ..Verdict::default()
        })
    }

    /// Tells who labels a namespace that nobody goes by its labels.
    fn ignored(&self, name: &str, namespace: &Value, policy: &Policy) -> Option<String> {
        if policy.is_privileged() || policy.is_as_strict_as(&self.config.defaults) {
            return None;
        }
        let modes = [
            ("enforce", policy.enforce),
            ("audit", policy.audit),
            ("warn", policy.warn),
        ];
        let is_labelled = |mode: &str| {
            let labels = [format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version")];
            labels
                .iter()
                .any(|label| meta::label(namespace, label).is_some())
        };
        let said = modes
            .into_iter()
            .filter(|(mode, asked)| asked.level != Level::Privileged && is_labelled(mode));
        let said: Vec<String> = said
            .map(|(mode, asked)| format!("{mode}={asked}"))
            .collect();
        Some(format!(
            "namespace \"{name}\" is exempt from Pod Security, and the policy ({}) will be ignored",
            said.join(", ")
        ))
    }

    async fn of_existing(
        &self,
        namespace: &str,
        asked: LevelVersion,
    ) -> Result<Vec<String>, Status> {
        let Some(pods) = self.registry.core("pods") else {
            return Ok(Vec::new());
        };
        self.store.cache.catch_up().await.map_err(cache_status)?;
        let selection = Selection::of(KeyScope::Namespace(namespace.to_owned()));
        let snapshot = pods.cache.snapshot();
        let entries: Vec<Arc<Entry>> = snapshot.select(&selection, &pods.prefix).cloned().collect();
        let (config, name) = (Arc::clone(&self.config), namespace.to_owned());
        let looking = tokio::task::spawn_blocking(move || {
            let is_exempt = |class: &str| config.exemptions.has_runtime_class(class);
            existing::warnings(&name, asked, &entries, is_exempt, LIMITS)
        });
        Ok(looking.await.unwrap_or_else(|_| {
            vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()]
        }))
    }
}

/// Whether pods that were let in may be refused now.
fn asks_more(new: &LevelVersion, old: &LevelVersion) -> bool {
    let is_relaxed = new.version == old.version && new.level <= old.level;
    new.level != Level::Privileged && !is_relaxed
}

impl Stored for Arc<Entry> {
    fn pod(&self) -> Option<Value> {
        serde_json::from_slice(&self.unmanaged()).ok()
    }
}

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes()
            && (resource.is_core("namespaces")
                || pod::path_of(&resource.group, &resource.plural).is_some())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let resource = attributes.resource;
        let mut verdict = match pod::path_of(&resource.group, &resource.plural) {
            None => self.of_namespace(attributes).await?,
            Some([]) => self.of_pod(attributes).await?,
            Some(path) => self.of_template(attributes, path).await?,
        };
        for count in &verdict.counts {
            self.metrics.count(attributes, count);
        }
        for (key, value) in verdict.annotations() {
            attributes.annotate(key, value);
        }
        for warning in verdict.warnings {
            attributes.warn(warning);
        }
        match verdict.refusal {
            Some(why) => Err(attributes.forbidden(why)),
            None => Ok(()),
        }
    }
}
