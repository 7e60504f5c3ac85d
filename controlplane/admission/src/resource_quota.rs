//! ResourceQuota: charges what objects use to the ResourceQuotas of their namespace.
//!
//! A quota's `status.used` is written in the same transaction as the object that uses it, compared
//! with the revision that was read: two creates can never both take what is left for one, and a
//! create that fails has used nothing. What goes is given back by the controller, which counts
//! anew. Writers of one namespace take turns, so that they do not lose races against each other.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go` at v1.37.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use coracle_api::{
    meta, quota,
    resource_list::{self, Amounts, amounts_of_json},
    status::Status,
};
use coracle_registry::{
    encode,
    resource::Resource,
    store::{
        Current, Store, cache_status,
        companions::{Companion, Companions, Write},
    },
    watch_cache::{KeyScope, Selection},
};
use coracle_store::{Compare, Op};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::{
    attributes::{Operation, Request},
    parts::Parts,
};

/// Upstream's name of it.
pub(crate) const NAME: &str = "ResourceQuota";
/// Namespaces with turns to take before those that nobody waits for are forgotten.
const TURNS_KEPT: usize = 64;

/// The quotas of every namespace. Not one look among others: it is a part of the transaction.
pub(crate) struct ResourceQuota {
    store: Store,
    quotas: Arc<Resource>,
    turns: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

/// A turn at the quotas of one namespace, for the transaction of one write.
pub(crate) struct QuotaLock<'a> {
    of: &'a ResourceQuota,
    _guard: OwnedMutexGuard<()>,
}

impl ResourceQuota {
    /// `None` if the server has no such kind.
    pub(crate) fn new(parts: &Parts) -> Option<Self> {
        let quotas = Arc::clone(parts.registry.core("resourcequotas")?);
        Some(Self {
            store: parts.store.clone(),
            quotas,
            turns: Mutex::default(),
        })
    }

    /// Waits for the turn of the write's namespace; `None` if it has no quota, or if nothing is
    /// charged for such writes. `change` is from what to what, of an update.
    pub(crate) async fn turn(
        &self,
        request: &Request<'_>,
        change: Option<(&Value, &Value)>,
    ) -> Result<Option<QuotaLock<'_>>, Status> {
        // The first quota of all counts for nothing before the controller has seen it: no need to
        // wait for its sight.
        if self.quotas.cache.is_empty() || !charges(request, change) {
            return Ok(None);
        }
        let namespace = request.namespace;
        self.store.cache.catch_up().await.map_err(cache_status)?;
        if self.keys(namespace).is_empty() {
            return Ok(None);
        }
        let turn = {
            let mut turns = self.turns.lock();
            if turns.len() > TURNS_KEPT {
                turns.retain(|_, turn| turn.strong_count() > 0);
            }
            let known = turns.get(namespace).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::new(AsyncMutex::new(()));
                turns.insert(namespace.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        Ok(Some(QuotaLock {
            of: self,
            _guard: turn.lock_owned().await,
        }))
    }

    fn keys(&self, namespace: &str) -> Vec<Arc<str>> {
        if self.quotas.cache.is_empty() {
            return Vec::new();
        }
        let selection = Selection::of(KeyScope::Namespace(namespace.to_owned()));
        let snapshot = self.quotas.cache.snapshot();
        snapshot
            .select(&selection, &self.quotas.prefix)
            .map(|entry| Arc::from(entry.key()))
            .collect()
    }
}

/// Whether such a write can use more than there was used before.
fn charges(request: &Request<'_>, change: Option<(&Value, &Value)>) -> bool {
    let resource = request.resource;
    match request.operation {
        Operation::Create => {
            let is_event = resource.is_core("events") || resource.is("events.k8s.io", "events");
            resource.is_namespaced() && !is_event
        }
        Operation::Update => change.is_some_and(|change| {
            let kind = (&*resource.group, &*resource.plural);
            quota::changes_by_update(kind, request.subresource, change)
        }),
        Operation::Delete | Operation::Connect => false,
    }
}

#[async_trait]
impl Companion for QuotaLock<'_> {
    /// The quotas with what they have used after the write. 403 in upstream's words if one does not
    /// allow it.
    async fn companions(&self, write: Write<'_>) -> Result<Companions, Status> {
        let mut companions = Companions::default();
        let now = Timestamp::now();
        for key in self.of.keys(meta::namespace(write.new)) {
            let Some(current) = self.of.store.fresh(&key).await? else {
                continue;
            };
            let used = plan(&current.object, write, now).map_err(|why| {
                Status::forbidden(&write.resource.group_resource, meta::name(write.new), why)
            })?;
            if let Some(used) = used {
                add(&mut companions, current, &used)?;
            }
        }
        Ok(companions)
    }

    fn exhausted(&self) -> Status {
        Status::internal("resource quota evaluation timed out")
    }
}

fn add(companions: &mut Companions, current: Current, used: &Amounts) -> Result<(), Status> {
    let mut quota = current.object;
    meta::set(&mut quota, &["status", "used"], quota::to_value(used));
    encode::strip(&mut quota);
    companions.compare.push(Compare::ModRevision(
        Arc::clone(&current.key),
        current.revision,
    ));
    companions.ops.push(Op::Put {
        key: current.key,
        value: encode::encode(&quota)?,
    });
    Ok(())
}

/// What `quota` has used after the write; `None` if it does not matter to it.
///
/// # Errors
/// Why it is not allowed.
fn plan(quota: &Value, write: Write<'_>, now: Timestamp) -> Result<Option<Amounts>, String> {
    let (group, plural) = (&*write.resource.info.group, &*write.resource.info.plural);
    let (name, spec) = (meta::name(quota), &quota["spec"]);
    let hard = amounts_of_json(&quota["status"]["hard"]);
    let names = quota::names_of(group, plural, hard.keys().map(String::as_str));
    if names.is_empty() || !quota::in_scope(spec, group, plural, write.new) {
        return Ok(None);
    }
    if write.resource.is_core("pods")
        && let Some(missing) = quota::missing(&names, write.new)
    {
        return Err(format!("failed quota: {name}: {missing}"));
    }
    let mut used = amounts_of_json(&quota["status"]["used"]);
    if names.iter().any(|name| !used.contains_key(*name)) {
        return Err(format!(
            "status unknown for quota: {name}, resources: {}",
            names.join(",")
        ));
    }
    let mut asked = increase(spec, write, now)?;
    asked.retain(|name, _| hard.contains_key(name));
    if asked.is_empty() {
        return Ok(None);
    }
    let before = used.clone();
    resource_list::add(&mut used, &asked);
    let exceeded: Vec<&String> = asked
        .keys()
        .filter(|name| used[*name] > hard[*name])
        .collect();
    if exceeded.is_empty() {
        return Ok(Some(used));
    }
    let of = |amounts: &Amounts| {
        quota::print(
            exceeded
                .iter()
                .filter_map(|name| amounts.get_key_value(*name)),
        )
    };
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        of(&asked),
        of(&before),
        of(&hard)
    ))
}

/// What the write uses more than there was used before by what it replaces, as far as that is in
/// the quota's scopes. What becomes less is given back by the controller, which counts anew.
///
/// # Errors
/// It says that it uses less than nothing.
fn increase(spec: &Value, write: Write<'_>, now: Timestamp) -> Result<Amounts, String> {
    let (group, plural) = (&*write.resource.info.group, &*write.resource.info.plural);
    let mut asked = quota::usage(group, plural, write.new, now);
    let negative: Vec<&str> = asked
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        ));
    }
    if let Some(old) = write.old
        && quota::in_scope(spec, group, plural, old)
    {
        let before = quota::usage(group, plural, old, now);
        for (name, amount) in &mut asked {
            if let Some(before) = before.get(name) {
                *amount -= *before;
            }
        }
    }
    asked.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    Ok(asked)
}
