//! ResourceQuota: charges what objects use to the ResourceQuotas of their namespace.
//!
//! A quota's `status.used` is written in the same transaction as the object that uses it, compared
//! with the revision that was read: two creates can never both take what is left for one, and a
//! create that fails has used nothing. What goes is given back by the controller, which counts
//! anew. Writers of one namespace take turns, so that they do not lose races against each other.
//!
//! A configuration may name what nobody uses without a quota that limits it ([`limited`]).
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go` at v1.37.

pub(crate) mod limited;
mod plan;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use coracle_api::{
    meta, quota,
    resource_list::Amounts,
    status::{Reason, Status},
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

use self::{
    limited::{Limited, Uncovered},
    plan::{Interest, charge, increase, interest},
};
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
    limited: Arc<Limited>,
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
            limited: Arc::new(parts.config.limited.clone()),
            turns: Mutex::default(),
        })
    }

    /// Waits for the turn of the write's namespace; `None` if it has no quota and needs none, or if
    /// nothing is charged for such writes. `change` is from what to what, of an update.
    pub(crate) async fn turn(
        &self,
        request: &Request<'_>,
        change: Option<(&Value, &Value)>,
    ) -> Result<Option<QuotaLock<'_>>, Status> {
        // The first quota of all counts for nothing before the controller has seen it: no need to
        // wait for its sight.
        let resource = request.resource;
        let is_limited = self.limited.concerns(&resource.group, &resource.plural);
        if (self.quotas.cache.is_empty() && !is_limited) || !charges(request, change) {
            return Ok(None);
        }
        let namespace = request.namespace;
        self.store.cache.catch_up().await.map_err(cache_status)?;
        if !is_limited && self.keys(namespace).is_empty() {
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
    /// The quotas with what they have used after the write. Refused in upstream's words if one does
    /// not allow it, or if there is none where one is needed.
    async fn companions(&self, write: Write<'_>) -> Result<Companions, Status> {
        let mut companions = Companions::default();
        let now = Timestamp::now();
        let forbidden = |why: String| {
            Status::forbidden(&write.resource.group_resource, meta::name(write.new), why)
        };
        let (mut all, mut interested) = (Vec::new(), Vec::new());
        for key in self.of.keys(meta::namespace(write.new)) {
            if let Some(current) = self.of.store.fresh(&key).await? {
                all.push(current);
            }
        }
        for current in &all {
            interested.push(interest(&current.object, write).map_err(forbidden)?);
        }
        self.is_covered(&all, &interested, write, now)?;
        for (current, interest) in all.into_iter().zip(interested) {
            if interest.is_none() {
                continue;
            }
            let used = charge(&current.object, write, now).map_err(forbidden)?;
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

impl QuotaLock<'_> {
    /// Whether there is a quota for all that is limited by the configuration.
    fn is_covered(
        &self,
        all: &[Current],
        interested: &[Option<Interest>],
        write: Write<'_>,
        now: Timestamp,
    ) -> Result<(), Status> {
        let (group, plural) = (&*write.resource.info.group, &*write.resource.info.plural);
        if !self.of.limited.concerns(group, plural) {
            return Ok(());
        }
        let more = |quota: Option<&Value>| increase(quota, write, now);
        let specs: Vec<&Value> = all.iter().map(|current| &current.object["spec"]).collect();
        let mut increases = Vec::new();
        for (spec, _) in specs
            .iter()
            .zip(interested)
            .filter(|(_, one)| one.is_some())
        {
            increases.push(more(Some(spec)));
        }
        if increases.is_empty() {
            increases.push(more(None));
        }
        let forbidden = |why: String| {
            Status::forbidden(&write.resource.group_resource, meta::name(write.new), why)
        };
        let mut is_used = false;
        for increase in increases {
            is_used |= !increase.map_err(forbidden)?.is_empty();
        }
        if !is_used {
            return Ok(());
        }
        let covered = interested.iter().flatten().flat_map(|one| one.names.iter());
        let scopes = specs.iter().flat_map(|spec| quota::scopes(spec));
        let used = quota::usage(group, plural, write.new, now);
        let limited = &self.of.limited;
        let checked = limited.check((group, plural, write.new), &used, covered, scopes);
        checked.map_err(|uncovered| match uncovered {
            Uncovered::Names(_) => forbidden(uncovered.to_string()),
            // Upstream gives it no reason, and so it is an error of the server.
            Uncovered::Scopes(_) => Status::new(500, Reason::Unknown, uncovered.to_string()),
        })
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
