//! The objects that a binding hands to its policy.
//!
//! Of any kind that is served, also of one that came at run time: they are looked up in its cache
//! when a write asks for them.
//!
//! Source: `CollectParams` in `.../policy/generic/policy_dispatcher.go` at v1.37.

use std::sync::Arc;

use coracle_api::selector::LabelSelector;
use coracle_registry::{
    resource::Resource,
    store::Store,
    value::string,
    watch_cache::{KeyScope, Selection},
};
use serde_json::Value;

use super::index::{Binding, Hook, ParamKind};
use crate::kinds::Kinds;

/// Finds parameters.
pub(super) struct Params {
    store: Store,
    kinds: Arc<dyn Kinds>,
}

/// The kind of a policy's parameters as it is served at the moment.
pub(super) type Served = Option<Arc<Resource>>;

impl Params {
    pub(super) fn new(store: Store, kinds: Arc<dyn Kinds>) -> Self {
        Self { store, kinds }
    }

    /// The kind of the parameters of a policy.
    ///
    /// # Errors
    /// It is not served, in upstream's words.
    pub(super) fn kind<E>(&self, hook: &Hook<E>) -> Result<Served, String> {
        let Some(ParamKind { gvk }) = &hook.param_kind else {
            return Ok(None);
        };
        let found = self.kinds.of_kind(gvk);
        found
            .map(Some)
            .ok_or_else(|| format!("failed to find resource referenced by paramKind: '{gvk}'"))
    }

    /// What a binding refers to for a request in a namespace: `null` for a policy without
    /// parameters.
    ///
    /// # Errors
    /// In upstream's words: a reference that leads nowhere, or one that does not fit.
    pub(super) async fn collect(
        &self,
        kind: &Served,
        binding: &Binding,
        namespace: &str,
    ) -> Result<Vec<Value>, String> {
        let reference = &binding.param_ref;
        let Some(kind) = kind.as_ref().filter(|_| reference.is_object()) else {
            return Ok(vec![Value::Null]);
        };
        let own = string(&reference["namespace"]);
        let namespace = match (kind.is_namespaced(), own) {
            (true, "") if namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned(),
                );
            }
            (true, "") => namespace,
            (true, own) => own,
            (false, "") => "",
            (false, _) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                        .to_owned(),
                );
            }
        };
        let found = match string(&reference["name"]) {
            "" => selected(kind, namespace, &reference["selector"])?,
            name => {
                let key = kind.key(namespace, name);
                let current = self.store.current(kind, &key).await;
                let current = current.map_err(|status| status.message)?;
                let object = current.map(|current| shown(kind, current.object));
                object.into_iter().collect()
            }
        };
        if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
            );
        }
        Ok(found)
    }
}

fn selected(kind: &Resource, namespace: &str, selector: &Value) -> Result<Vec<Value>, String> {
    let selector = LabelSelector::from_object(selector).map_err(|error| error.to_string())?;
    let scope = match namespace {
        "" => KeyScope::Resource,
        namespace => KeyScope::Namespace(namespace.to_owned()),
    };
    let (snapshot, selection) = (kind.cache.snapshot(), Selection::of(scope));
    let found = snapshot
        .select(&selection, &kind.prefix)
        .filter(|entry| selector.matches(|label| entry.label(label)))
        .filter_map(|entry| serde_json::from_slice(&entry.unmanaged()).ok());
    Ok(found.map(|object| kind.shown(object)).collect())
}

/// What the store has of a view is the other kind's.
fn shown(kind: &Resource, object: Value) -> Value {
    if kind.view.is_some() {
        kind.shown(object)
    } else {
        object
    }
}
