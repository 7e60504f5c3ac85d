//! The policies of one kind and their bindings, as writes are held against them.
//!
//! The truth is in the watch cache, and in files, whose policies come first. A task reads both off
//! and compiles; a write takes what there is, and where there is nothing, that is one atomic load.
//! Of what has not changed nothing is read again: a thousand policies that come one after the other
//! are read a thousand times, not a million.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_api::{meta, resource::Gvk};
use coracle_registry::{
    beside::Weight,
    resource::{Registry, Resource},
    value::{items, string},
    watch_cache::{KeyScope, Selection},
};
use coracle_store::Revision;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    attributes::Attributes,
    kinds::Kinds,
    manifests::{Loaded, Source},
    matching::{Asked, Criteria, Namespaces},
};

const GROUP: &str = "admissionregistration.k8s.io";

/// Policies of a kind with what `E` makes of their expressions.
pub(super) struct Index<E> {
    policies: Arc<Resource>,
    bindings: Arc<Resource>,
    compile: fn(&Value) -> E,
    manifests: Option<watch::Receiver<Arc<Loaded>>>,
    /// Of files alone.
    fixed: List<E>,
    /// Those and all others.
    all: List<E>,
    /// Whoever has it is the one that refreshes.
    known: Mutex<Known<E>>,
    /// Of a refresh.
    weight: Weight,
}

/// Policies, and whether there are any.
struct List<E> {
    hooks: RwLock<Arc<[Hook<E>]>>,
    is_empty: AtomicBool,
}

/// What was made of policies and bindings.
struct Known<E> {
    of_files: HashMap<String, Arc<Policy<E>>>,
    policies: ByName<Policy<E>>,
    bindings: ByName<Binding>,
}

/// With the revision of what each was made of.
type ByName<T> = HashMap<String, (Revision, Arc<T>)>;

/// A policy with at least one binding.
pub(super) struct Hook<E> {
    policy: Arc<Policy<E>>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

impl<E> Deref for Hook<E> {
    type Target = Policy<E>;

    fn deref(&self) -> &Policy<E> {
        &self.policy
    }
}

/// A policy, compiled.
pub(super) struct Policy<E> {
    pub(super) name: String,
    uid: String,
    generation: i64,
    /// Whether what fails refuses.
    pub(super) is_strict: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) constraints: Criteria,
    pub(super) evaluator: E,
}

/// The kind of a policy's parameters.
pub(super) struct ParamKind {
    pub(super) gvk: Gvk,
}

/// Where a policy holds, and with which parameters.
pub(super) struct Binding {
    pub(super) name: String,
    policy: String,
    /// `None`: wherever the policy does.
    matching: Option<Criteria>,
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
        manifests: Option<&Arc<Source>>,
    ) -> Option<Self> {
        let of = |plural: &str| registry.get(GROUP, "v1", plural).cloned();
        Some(Self {
            policies: of(policies)?,
            bindings: of(bindings)?,
            compile,
            manifests: manifests.map(|source| source.subscribe()),
            fixed: List::default(),
            all: List::default(),
            known: Mutex::new(Known {
                of_files: HashMap::new(),
                policies: HashMap::new(),
                bindings: HashMap::new(),
            }),
            weight: Weight::default(),
        })
    }

    /// Whether there are policies of those that may be asked; which these are is looked at only if
    /// there are any.
    pub(super) fn has_some(&self, asked: impl FnOnce() -> Asked) -> bool {
        let has = |list: &List<E>| !list.is_empty.load(Ordering::Acquire);
        has(&self.all) && self.list(asked()).is_some_and(has)
    }

    /// All that there are of them now, by name.
    pub(super) fn hooks(&self, asked: Asked) -> Arc<[Hook<E>]> {
        let list = self.list(asked);
        list.map_or_else(
            || Arc::new([]) as Arc<[_]>,
            |list| Arc::clone(&list.hooks.read()),
        )
    }

    fn list(&self, asked: Asked) -> Option<&List<E>> {
        match asked {
            Asked::All => Some(&self.all),
            Asked::Manifests => Some(&self.fixed),
            Asked::Nobody => None,
        }
    }

    /// Reads policies and bindings, and compiles what has changed.
    pub(super) fn refresh(&self) {
        self.weight.place(|| self.read());
    }

    fn read(&self) {
        let mut known = self.known.lock();
        let loaded = self.manifests.as_ref().map(|now| Arc::clone(&now.borrow()));
        let fixed = loaded.map(|loaded| self.of_files(&loaded, &mut known.of_files));
        let fixed = fixed.unwrap_or_default();
        let stored = self.stored(&mut known);
        self.all.set(fixed.iter().cloned().chain(stored).collect());
        self.fixed.set(fixed);
    }

    fn of_files(
        &self,
        loaded: &Loaded,
        known: &mut HashMap<String, Arc<Policy<E>>>,
    ) -> Vec<Hook<E>> {
        let mut bound = by_policy(loaded.bindings.iter().map(Binding::read).map(Arc::new));
        let mut before = std::mem::take(known);
        let mut hooks = Vec::new();
        for policy in &loaded.objects {
            let name = meta::name(policy);
            let Some(bindings) = bound.remove(name) else {
                continue;
            };
            let policy = Policy::read(policy, before.remove(name), self.compile);
            known.insert(name.to_owned(), Arc::clone(&policy));
            hooks.push(Hook { policy, bindings });
        }
        hooks
    }

    fn stored(&self, known: &mut Known<E>) -> Vec<Hook<E>> {
        let make = |binding: &Value, _: Option<Arc<Binding>>| Arc::new(Binding::read(binding));
        let bindings = kept(&self.bindings, &mut known.bindings, |_| true, make);
        let mut bound = by_policy(bindings);
        let is_bound = |name: &str| bound.contains_key(name);
        let make = |policy: &Value, before| Policy::read(policy, before, self.compile);
        let policies = kept(&self.policies, &mut known.policies, is_bound, make);
        let hook = |policy: Arc<Policy<E>>| {
            let bindings = bound.remove(&policy.name)?;
            Some(Hook { policy, bindings })
        };
        policies.into_iter().filter_map(hook).collect()
    }

    /// Keeps it up to date until `stop`.
    pub(super) async fn follow(&self, stop: &CancellationToken) {
        let everything = || Selection::of(KeyScope::Resource);
        let (_, mut policies) = self.policies.cache.snapshot_and_watch(everything());
        let (_, mut bindings) = self.bindings.cache.snapshot_and_watch(everything());
        let mut manifests = self.manifests.clone();
        loop {
            self.refresh();
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed(&mut manifests) => {}
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

/// Waits until files say something else.
async fn changed(manifests: &mut Option<watch::Receiver<Arc<Loaded>>>) {
    let is_over = match manifests {
        Some(now) => now.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending::<()>().await;
    }
}

impl<E> Default for List<E> {
    fn default() -> Self {
        Self {
            hooks: RwLock::new(Arc::new([])),
            is_empty: AtomicBool::new(true),
        }
    }
}

impl<E> List<E> {
    fn set(&self, hooks: Vec<Hook<E>>) {
        let is_empty = hooks.is_empty();
        *self.hooks.write() = hooks.into();
        self.is_empty.store(is_empty, Ordering::Release);
    }
}

impl<E> Clone for Hook<E> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            bindings: self.bindings.clone(),
        }
    }
}

fn by_policy(
    bindings: impl IntoIterator<Item = Arc<Binding>>,
) -> HashMap<String, Vec<Arc<Binding>>> {
    let mut bound: HashMap<String, Vec<_>> = HashMap::new();
    for binding in bindings {
        let policy = binding.policy.clone();
        bound.entry(policy).or_default().push(binding);
    }
    bound
}

/// What is made of the objects of a kind that are wanted, in the order of their names. `make` is
/// given what was made of an object before it changed, if it did.
fn kept<T>(
    resource: &Resource,
    known: &mut ByName<T>,
    is_wanted: impl Fn(&str) -> bool,
    make: impl Fn(&Value, Option<Arc<T>>) -> Arc<T>,
) -> Vec<Arc<T>> {
    let (snapshot, all) = (resource.cache.snapshot(), Selection::of(KeyScope::Resource));
    let mut before = std::mem::take(known);
    let mut found = Vec::new();
    for entry in snapshot.select(&all, &resource.prefix) {
        let (name, revision) = (entry.name(), entry.revision());
        if !is_wanted(name) {
            continue;
        }
        let own = match before.remove(name) {
            Some((known, own)) if known == revision => own,
            old => {
                // What cannot be read is about nothing.
                let object = serde_json::from_slice(&entry.unmanaged()).unwrap_or_default();
                make(&object, old.map(|(_, own)| own))
            }
        };
        known.insert(name.to_owned(), (revision, Arc::clone(&own)));
        found.push(own);
    }
    found
}

impl<E> Policy<E> {
    /// `before` is the same of an earlier state: where its spec has not changed, it is taken.
    fn read(policy: &Value, before: Option<Arc<Self>>, compile: fn(&Value) -> E) -> Arc<Self> {
        let (uid, generation) = (meta::uid(policy), meta::generation(policy));
        let is_same = |before: &Arc<Self>| before.uid == uid && before.generation == generation;
        if let Some(before) = before.filter(is_same) {
            return before;
        }
        let spec = &policy["spec"];
        let kind = &spec["paramKind"];
        let param_kind = kind.is_object().then(|| {
            let api_version = string(&kind["apiVersion"]);
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            ParamKind {
                gvk: Gvk::new(group, version, string(&kind["kind"])),
            }
        });
        Arc::new(Self {
            name: meta::name(policy).to_owned(),
            uid: uid.to_owned(),
            generation,
            is_strict: spec["failurePolicy"] != "Ignore",
            param_kind,
            constraints: Criteria::read(&spec["matchConstraints"], "resourceRules"),
            evaluator: compile(policy),
        })
    }
}

impl Binding {
    /// Whether it is about a write that its policy is about.
    ///
    /// # Errors
    /// Why it cannot be told.
    pub(super) async fn is_about(
        &self,
        attributes: &Attributes<'_>,
        (kinds, namespaces): (&dyn Kinds, &Namespaces),
    ) -> Result<bool, String> {
        let Some(criteria) = &self.matching else {
            return Ok(true);
        };
        let found = criteria.find(attributes, kinds, namespaces).await;
        found
            .map(|found| found.is_some())
            .map_err(|status| status.message)
    }

    fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let matching = &spec["matchResources"];
        Self {
            name: meta::name(binding).to_owned(),
            policy: string(&spec["policyName"]).to_owned(),
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
