//! The objects that a binding hands to its policy.
//!
//! Of any kind that is served, also of one that came at run time: they are looked up in its cache
//! when a write asks for them.
//!
//! Source: `CollectParams` in `.../policy/generic/policy_dispatcher.go` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_api::{meta, selector::LabelSelector};
use coracle_registry::{
    resource::Resource,
    store::Store,
    value::string,
    watch_cache::{Entry, KeyScope, Selection},
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

/// What a policy is evaluated with, once.
pub(super) enum Param {
    /// There is none.
    None,
    /// One that was named.
    Named(Value),
    /// One of perhaps very many that were selected: read when its turn has come, and no longer kept
    /// than that. Whoever may write them would decide how much a write holds.
    Selected(Arc<Resource>, Arc<Entry>),
}

impl Param {
    /// As expressions see it; null if there is none.
    pub(super) fn read(&self) -> Cow<'_, Value> {
        match self {
            Self::None => Cow::Owned(Value::Null),
            Self::Named(object) => Cow::Borrowed(object),
            Self::Selected(kind, entry) => {
                // What the cache has was written by this server or one like it.
                let object = serde_json::from_slice(&entry.unmanaged()).unwrap_or_default();
                Cow::Owned(kind.shown(object))
            }
        }
    }

    /// Namespace and name.
    pub(super) fn name(&self) -> (&str, &str) {
        match self {
            Self::None => ("", ""),
            Self::Named(object) => (meta::namespace(object), meta::name(object)),
            Self::Selected(_, entry) => (entry.namespace().unwrap_or_default(), entry.name()),
        }
    }
}

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

    /// What a binding refers to for a request in a namespace.
    ///
    /// # Errors
    /// In upstream's words: a reference that leads nowhere, or one that does not fit.
    pub(super) async fn collect(
        &self,
        kind: &Served,
        binding: &Binding,
        namespace: &str,
    ) -> Result<Vec<Param>, String> {
        let reference = &binding.param_ref;
        let Some(kind) = kind.as_ref().filter(|_| reference.is_object()) else {
            return Ok(vec![Param::None]);
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
                let object = current.map(|current| Param::Named(shown(kind, current.object)));
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

fn selected(kind: &Arc<Resource>, namespace: &str, selector: &Value) -> Result<Vec<Param>, String> {
    let selector = LabelSelector::from_object(selector).map_err(|error| error.to_string())?;
    let scope = match namespace {
        "" => KeyScope::Resource,
        namespace => KeyScope::Namespace(namespace.to_owned()),
    };
    let (snapshot, selection) = (kind.cache.snapshot(), Selection::of(scope));
    let found = snapshot
        .select(&selection, &kind.prefix)
        .filter(|entry| selector.matches(|label| entry.label(label)));
    let found = found.map(|entry| Param::Selected(Arc::clone(kind), Arc::clone(entry)));
    Ok(found.collect())
}

/// What the store has of a view is the other kind's.
fn shown(kind: &Resource, object: Value) -> Value {
    if kind.view.is_some() {
        kind.shown(object)
    } else {
        object
    }
}
