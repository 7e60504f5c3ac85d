//! DELETE: at once, with grace, or when the finalizers are done.
//!
//! An object that still waits for something gets `deletionTimestamp` and stays; the update that
//! settles the last of it removes it (see [`super::update`]).
//!
//! Source: `k8s.io/apiserver/pkg/registry/rest/delete.go`, `.../generic/registry/store.go` at
//! v1.37.

use std::{mem::take, time::Duration};

use bytes::Bytes;
use coracle_api::{meta, resource::GroupResource, status::Status};
use jiff::Timestamp;
use serde_json::Value;

use super::{Current, OptimisticWrite, Replacement, Store, companions_of_kind};
use crate::{
    encode,
    resource::Resource,
    strategy::{Deletion, Dependents},
};

const TRIES: usize = 32;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What becomes of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Left without their owner.
    Orphan,
    /// Collected after the owner is gone.
    Background,
    /// Collected first.
    Foreground,
}

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// How long the object may take to end; `None` for what its kind says.
    pub grace_secs: Option<i64>,
    /// Only the object with this UID.
    pub uid: Option<String>,
    /// Only this version of the object.
    pub resource_version: Option<String>,
    /// What becomes of dependents; `None` for what its finalizers say, or its kind.
    pub propagation: Option<Propagation>,
    /// Do everything but write.
    pub dry_run: bool,
}

/// How a delete ended.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// Gone: the last state.
    Gone {
        /// As clients see it.
        json: Bytes,
        /// With the revision of the deletion.
        object: Value,
    },
    /// Still there, waiting for its grace or its finalizers.
    Waiting {
        /// As clients see it.
        json: Bytes,
    },
}

/// What is to be done with one object.
#[derive(Debug, PartialEq)]
enum Step {
    Remove,
    Mark(Value),
    Nothing,
}

/// A deletion under way, and the object as it is known to be now.
pub struct Delete<'a> {
    store: &'a Store,
    /// What the client deletes; may be a view.
    resource: &'a Resource,
    name: &'a str,
    options: &'a DeleteOptions,
    current: Current,
    tries_left: usize,
}

impl Store {
    /// Deletes one object. For what no client asked for: nothing is admitted.
    ///
    /// # Errors
    /// 404, and 409 for a precondition that does not hold.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let mut delete = self
            .begin_delete(resource, namespace, name, options)
            .await?;
        loop {
            if let Some(deleted) = delete.commit().await? {
                return Ok(deleted);
            }
        }
    }

    /// The first step: finds the object.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn begin_delete<'a>(
        &'a self,
        resource: &'a Resource,
        namespace: &str,
        name: &'a str,
        options: &'a DeleteOptions,
    ) -> Result<Delete<'a>, Status> {
        let stored = resource.storing();
        let current = self.current(stored, &stored.key(namespace, name)).await?;
        let current = current.ok_or_else(|| Status::not_found(&stored.group_resource, name))?;
        Ok(Delete {
            store: self,
            resource,
            name,
            options,
            current,
            tries_left: TRIES,
        })
    }
}

impl Delete<'_> {
    /// The object as it is now, as it is stored.
    pub fn current(&self) -> &Value {
        &self.current.object
    }

    /// Looks again after a refusal, which the cache may be to blame for. Whether the object is
    /// another one now.
    ///
    /// # Errors
    /// 404 if it has gone.
    pub async fn refresh(&mut self) -> Result<bool, Status> {
        if self.current.is_fresh {
            return Ok(false);
        }
        let before = self.current.revision;
        self.current = self
            .store
            .newest(self.resource.storing(), &self.current.key)
            .await?
            .ok_or_else(|| self.not_found())?;
        Ok(self.current.revision != before)
    }

    /// The last step: removes or marks the object. `None` if it is another one meanwhile: then all
    /// of it is to be done again.
    ///
    /// # Errors
    /// 404 if it has gone, and 409 for a precondition that does not hold.
    pub async fn commit(&mut self) -> Result<Option<Deleted>, Status> {
        let resource = self.resource.storing();
        if let Err(status) = check_preconditions(resource, self.name, self.options, &self.current) {
            // The cache may be behind: nothing is refused by its word alone.
            return if self.refresh().await? {
                Ok(None)
            } else {
                Err(status)
            };
        }
        let found = match self.write(resource).await? {
            OptimisticWrite::Succeeded(deleted) => return Ok(Some(self.shown(deleted).await?)),
            OptimisticWrite::Conflict(found) => found.ok_or_else(|| self.not_found())?,
            // Nothing that goes claims anything.
            OptimisticWrite::Taken(_) => self.current.clone(),
        };
        self.current = found;
        self.tries_left = self.tries_left.saturating_sub(1);
        if self.tries_left == 0 {
            return Err(Status::modified(&resource.group_resource, self.name));
        }
        Ok(None)
    }

    async fn write(&mut self, resource: &Resource) -> Result<OptimisticWrite<Deleted>, Status> {
        let Self {
            store,
            options,
            current,
            ..
        } = self;
        let json = current.json.clone();
        match plan(resource, &current.object, options) {
            Step::Nothing if current.is_fresh => {
                Ok(OptimisticWrite::Succeeded(Deleted::Waiting { json }))
            }
            Step::Nothing => Ok(OptimisticWrite::Conflict(
                store.newest(resource, &current.key).await?,
            )),
            Step::Remove if options.dry_run => Ok(OptimisticWrite::Succeeded(Deleted::Gone {
                json,
                object: take(&mut current.object),
            })),
            Step::Remove => Ok(store.remove(resource, current).await?.map(|revision| {
                let mut object = take(&mut current.object);
                encode::set_revision(&mut object, revision);
                Deleted::Gone { json, object }
            })),
            Step::Mark(mut marked) => {
                encode::strip(&mut marked);
                let value = encode::encode(&*resource.to_store(&marked).await?)?;
                if options.dry_run {
                    let json = encode::with_revision(&value, current.revision);
                    return Ok(OptimisticWrite::Succeeded(Deleted::Waiting { json }));
                }
                let new = Replacement {
                    value: value.clone(),
                    with: companions_of_kind(resource, Some(&current.object), Some(&marked)),
                    may_use_disk_reserve: true,
                };
                let replaced = store.replace(resource, current, new, None).await?;
                Ok(replaced.map(|revision| Deleted::Waiting {
                    json: encode::with_revision(&value, revision),
                }))
            }
        }
    }

    async fn shown(&self, deleted: Deleted) -> Result<Deleted, Status> {
        let resource = self.resource;
        Ok(match deleted {
            // Of kinds that webhooks convert nobody is shown the text of what has gone.
            Deleted::Gone { json, object } => Deleted::Gone {
                json: resource.shown_json(json),
                object: resource.shown(object),
            },
            Deleted::Waiting { json } => Deleted::Waiting {
                json: resource.shown_written(json).await?,
            },
        })
    }

    fn not_found(&self) -> Status {
        Status::not_found(&self.resource.storing().group_resource, self.name)
    }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    current: &Current,
) -> Result<(), Status> {
    // Upstream names the kind here, where every other conflict has the resource.
    let subject = GroupResource::new(&resource.gvk.group, &resource.gvk.kind);
    let fail = |what: &str, asked: &str, is: &str, guess: &str| {
        let why = format!(
            "the {what} in the precondition ({asked}) does not match the {what} in record ({is}). {guess}"
        );
        Err(Status::conflict(&subject, name, why))
    };
    let uid = meta::uid(&current.object);
    match &options.uid {
        Some(asked) if asked != uid => {
            let guess = "The object might have been deleted and then recreated";
            return fail("UID", asked, uid, guess);
        }
        _ => {}
    }
    match &options.resource_version {
        Some(asked) if *asked != current.revision.to_string() => {
            let guess = "The object might have been modified";
            fail(
                "ResourceVersion",
                asked,
                &current.revision.to_string(),
                guess,
            )
        }
        _ => Ok(()),
    }
}

/// Pure: what this delete means for this object now.
fn plan(resource: &Resource, object: &Value, options: &DeleteOptions) -> Step {
    let asked = options.grace_secs.map(at_least_one_if_negative);
    let left = grace_left(object);
    // A deletion under way may be hastened. Nothing else of it changes, neither its finalizers.
    if left.is_some_and(|left| asked.is_none_or(|asked| asked >= left)) {
        return Step::Nothing;
    }
    let strategy = &resource.strategy;
    let finalizers = wanted_finalizers(object, options.propagation, strategy.dependents());
    let has_finalizers = !finalizers.is_empty() || !strategy.pending_finalizers(object).is_empty();
    let is_terminating = meta::is_terminating(object);
    let grace = match (left, strategy.deletion(object, asked)) {
        (Some(_), _) => asked.unwrap_or(0),
        (None, Deletion::Graceful(secs)) if !is_terminating => secs,
        _ => 0,
    };
    if grace == 0 && !has_finalizers {
        return Step::Remove;
    }
    let had_finalizers = meta::finalizers(object).len();
    if is_terminating && left.is_none() && had_finalizers == finalizers.len() {
        return Step::Nothing;
    }
    let mut marked = object.clone();
    if finalizers.is_empty() {
        meta::remove(&mut marked, &["metadata", "finalizers"]);
    } else {
        meta::set(&mut marked, &["metadata", "finalizers"], finalizers);
    }
    if !is_terminating || left.is_some() {
        set_deletion(&mut marked, grace, left);
    }
    if !is_terminating {
        strategy.prepare_for_deletion(&mut marked);
    }
    Step::Mark(marked)
}

fn at_least_one_if_negative(secs: i64) -> i64 {
    if secs < 0 { 1 } else { secs }
}

/// The grace of a deletion under way that is not over yet.
fn grace_left(object: &Value) -> Option<i64> {
    let secs = object["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
    let secs = at_least_one_if_negative(secs);
    (meta::is_terminating(object) && secs > 0).then_some(secs)
}

/// Sets the time of deletion; the spec counts as changed, as upstream has it.
fn set_deletion(object: &mut Value, grace: i64, old_grace: Option<i64>) {
    let start = match (
        old_grace,
        meta::deletion_timestamp(object).and_then(meta::parse_time),
    ) {
        (Some(old), Some(deadline)) => deadline.saturating_sub(seconds(old)).unwrap_or(deadline),
        _ => Timestamp::now(),
    };
    let deadline = start.saturating_add(seconds(grace)).unwrap_or(start);
    meta::set_text(object, "deletionTimestamp", meta::time(deadline));
    meta::set(object, &["metadata", "deletionGracePeriodSeconds"], grace);
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set(object, &["metadata", "generation"], generation + 1);
    }
}

fn seconds(secs: i64) -> Duration {
    Duration::from_secs(u64::try_from(secs).unwrap_or(0))
}

/// The finalizers that stand after a delete with this propagation. Those of the object say what
/// becomes of its dependents if the delete does not, and its kind if they do not.
fn wanted_finalizers(
    object: &Value,
    propagation: Option<Propagation>,
    otherwise: Dependents,
) -> Vec<String> {
    let mut finalizers: Vec<String> = meta::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let said = finalizers
        .iter()
        .find_map(|finalizer| [ORPHAN, FOREGROUND].into_iter().find(|of| of == finalizer));
    let wanted = match (propagation, said, otherwise) {
        (Some(Propagation::Orphan), ..) | (None, None, Dependents::Orphaned) => Some(ORPHAN),
        (Some(Propagation::Foreground), ..) => Some(FOREGROUND),
        (Some(Propagation::Background), ..) | (None, None, Dependents::Deleted) => None,
        (None, said, _) => said,
    };
    finalizers.retain(|one| !(one == ORPHAN || one == FOREGROUND) || Some(one.as_str()) == wanted);
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|one| one == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}
