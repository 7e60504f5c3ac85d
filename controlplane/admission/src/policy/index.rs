//! The policies of one kind and their bindings, as writes are held against them.
//!
//! The truth is in the watch cache. A task reads it off and compiles; a write takes what there is,
//! and where there is nothing, that is one atomic load.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_api::{meta, resource::Gvk};
use coracle_registry::{
    resource::{Registry, Resource},
    value::{items, string},
    watch_cache::{KeyScope, Selection},
};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::matching::Criteria;

const GROUP: &str = "admissionregistration.k8s.io";

/// Policies of a kind with what `E` makes of their expressions.
pub(super) struct Index<E> {
    policies: Arc<Resource>,
    bindings: Arc<Resource>,
    compile: fn(&Value) -> E,
    hooks: RwLock<Arc<[Hook<E>]>>,
    is_empty: AtomicBool,
    /// By the policies' UIDs, each of one generation. Whoever has it is the one that refreshes.
    compiled: Mutex<HashMap<String, (i64, Arc<E>)>>,
}

/// A policy with at least one binding.
pub(super) struct Hook<E> {
    pub(super) name: String,
    /// Whether what fails refuses.
    pub(super) is_strict: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) constraints: Criteria,
    pub(super) bindings: Vec<Binding>,
    pub(super) evaluator: Arc<E>,
}

/// The kind of a policy's parameters.
pub(super) struct ParamKind {
    pub(super) gvk: Gvk,
}

/// Where a policy holds, and with which parameters.
pub(super) struct Binding {
    pub(super) name: String,
    /// `None`: wherever the policy does.
    pub(super) matching: Option<Criteria>,
    /// `null` if there is none.
    pub(super) param_ref: Value,
    /// `Deny`, `Warn`, `Audit`: of a validating policy.
    pub(super) actions: Vec<String>,
}

impl<E> Index<E> {
    /// Of the kinds with these names; `None` if the server does not have them.
    pub(super) fn new(
        registry: &Registry,
        [policies, bindings]: [&str; 2],
        compile: fn(&Value) -> E,
    ) -> Option<Self> {
        let of = |plural: &str| registry.get(GROUP, "v1", plural).cloned();
        Some(Self {
            policies: of(policies)?,
            bindings: of(bindings)?,
            compile,
            hooks: RwLock::new(Arc::new([])),
            is_empty: AtomicBool::new(true),
            compiled: Mutex::default(),
        })
    }

    /// Whether there is no policy at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// All that there are now, by name.
    pub(super) fn hooks(&self) -> Arc<[Hook<E>]> {
        Arc::clone(&self.hooks.read())
    }

    /// Reads policies and bindings, and compiles what has changed.
    pub(super) fn refresh(&self) {
        let mut compiled = self.compiled.lock();
        let mut bindings: HashMap<String, Vec<Binding>> = HashMap::new();
        for binding in self.bindings.objects(KeyScope::Resource) {
            let policy = string(&binding["spec"]["policyName"]).to_owned();
            bindings
                .entry(policy)
                .or_default()
                .push(Binding::read(&binding));
        }
        let policies = match bindings.is_empty() {
            true => Vec::new(),
            false => self.policies.objects(KeyScope::Resource),
        };
        let mut kept = HashMap::new();
        let mut hooks = Vec::new();
        for policy in policies {
            let Some(bindings) = bindings.remove(meta::name(&policy)) else {
                continue;
            };
            let uid = string(&policy["metadata"]["uid"]).to_owned();
            let generation = meta::generation(&policy);
            let known = compiled.get(&uid).filter(|(at, _)| *at == generation);
            let evaluator = match known {
                Some((_, evaluator)) => Arc::clone(evaluator),
                None => Arc::new((self.compile)(&policy)),
            };
            kept.insert(uid, (generation, Arc::clone(&evaluator)));
            hooks.push(Hook::read(&policy, bindings, evaluator));
        }
        *compiled = kept;
        let is_empty = hooks.is_empty();
        *self.hooks.write() = hooks.into();
        self.is_empty.store(is_empty, Ordering::Release);
    }

    /// Keeps it up to date until `stop`.
    pub(super) async fn follow(&self, stop: &CancellationToken) {
        let everything = || Selection::of(KeyScope::Resource);
        let (_, mut policies) = self.policies.cache.snapshot_and_watch(everything());
        let (_, mut bindings) = self.bindings.cache.snapshot_and_watch(everything());
        loop {
            self.refresh();
            tokio::select! {
                () = stop.cancelled() => return,
                news = policies.next() => if news.is_err() {
                    (_, policies) = self.policies.cache.snapshot_and_watch(everything());
                },
                news = bindings.next() => if news.is_err() {
                    (_, bindings) = self.bindings.cache.snapshot_and_watch(everything());
                },
            }
        }
    }
}

impl<E> Hook<E> {
    fn read(policy: &Value, bindings: Vec<Binding>, evaluator: Arc<E>) -> Self {
        let spec = &policy["spec"];
        let kind = &spec["paramKind"];
        let param_kind = kind.is_object().then(|| {
            let api_version = string(&kind["apiVersion"]);
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            ParamKind {
                gvk: Gvk::new(group, version, string(&kind["kind"])),
            }
        });
        Self {
            name: meta::name(policy).to_owned(),
            is_strict: spec["failurePolicy"] != "Ignore",
            param_kind,
            constraints: Criteria::read(&spec["matchConstraints"], "resourceRules"),
            bindings,
            evaluator,
        }
    }
}

impl Binding {
    fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let matching = &spec["matchResources"];
        Self {
            name: meta::name(binding).to_owned(),
            matching: matching.is_object().then(|| criteria(matching)),
            param_ref: spec["paramRef"].clone(),
            actions: items(&spec["validationActions"])
                .iter()
                .map(|action| string(action).to_owned())
                .collect(),
        }
    }
}

/// A binding without rules is about all that its policy is about.
fn criteria(matching: &Value) -> Criteria {
    if !items(&matching["resourceRules"]).is_empty() {
        return Criteria::read(matching, "resourceRules");
    }
    let mut matching = matching.clone();
    matching["resourceRules"] = json!([{"operations": ["*"], "apiGroups": ["*"],
        "apiVersions": ["*"], "resources": ["*/*"]}]);
    Criteria::read(&matching, "resourceRules")
}
