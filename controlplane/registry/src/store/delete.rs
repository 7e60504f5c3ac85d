//! DELETE: at once, with grace, or when the finalizers are done.
//!
//! An object that still waits for something gets `deletionTimestamp` and stays; the update that settles the last of it
//! removes it (see [`super::update`]).
//!
//! Source: `k8s.io/apiserver/pkg/registry/rest/delete.go`, `.../generic/registry/store.go` at v1.37.

use std::time::Duration;

use bytes::Bytes;
use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Current, Replacement, Store, companions::Companions};
use crate::{encode, resource::Resource, strategy::Deletion};

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
    /// What becomes of dependents; `None` for what its finalizers say.
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

impl Store {
    /// Deletes one object.
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
        let Some(seen) = &resource.view else { return self.delete_stored(resource, namespace, name, options).await };
        Ok(match self.delete_stored(&seen.stored, namespace, name, options).await? {
            Deleted::Gone { json, object } => {
                Deleted::Gone { json: resource.shown_json(json), object: resource.shown(object) }
            }
            Deleted::Waiting { json } => Deleted::Waiting { json: resource.shown_json(json) },
        })
    }

    async fn delete_stored(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let key = resource.key(namespace, name);
        let not_found = || Status::not_found(&resource.group_resource, name);
        let mut current = self.current(resource, &key).await?.ok_or_else(not_found)?;
        for _ in 0..TRIES {
            if let Err(status) = check_preconditions(resource, name, options, &current) {
                // The cache may be behind: nothing is refused by its word alone.
                if current.is_fresh {
                    return Err(status);
                }
                current = self.fresh(&key).await?.ok_or_else(not_found)?;
                continue;
            }
            let found = match plan(resource, &current.object, options)? {
                Step::Nothing if current.is_fresh => return Ok(Deleted::Waiting { json: current.json }),
                Step::Nothing => self.fresh(&key).await?,
                Step::Remove => {
                    if options.dry_run {
                        return Ok(Deleted::Gone { json: current.json, object: current.object });
                    }
                    match self.remove(resource, &current).await? {
                        Ok(revision) => {
                            encode::set_revision(&mut current.object, revision);
                            return Ok(Deleted::Gone { json: current.json, object: current.object });
                        }
                        Err(found) => found,
                    }
                }
                Step::Mark(mut marked) => {
                    encode::strip(&mut marked);
                    let value = encode::encode(&marked)?;
                    if options.dry_run {
                        let json = encode::with_revision(&value, current.revision);
                        return Ok(Deleted::Waiting { json });
                    }
                    let with = Companions::default();
                    let new = Replacement { value: value.clone(), with, may_use_reserve: true };
                    match self.replace(&current, new, None).await? {
                        Ok(revision) => {
                            return Ok(Deleted::Waiting { json: encode::with_revision(&value, revision) });
                        }
                        Err(found) => found,
                    }
                }
            };
            current = found.ok_or_else(not_found)?;
        }
        Err(Status::modified(&resource.group_resource, name))
    }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    current: &Current,
) -> Result<(), Status> {
    let fail = |what: &str, asked: &str, is: &str| {
        let why = format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {is}");
        Err(Status::conflict(&resource.group_resource, name, why))
    };
    let uid = meta::uid(&current.object);
    match &options.uid {
        Some(asked) if asked != uid => return fail("UID", asked, uid),
        _ => {}
    }
    match &options.resource_version {
        Some(asked) if *asked != current.revision.to_string() => {
            fail("ResourceVersion", asked, &current.revision.to_string())
        }
        _ => Ok(()),
    }
}

/// Pure: what this delete means for this object now.
fn plan(resource: &Resource, object: &Value, options: &DeleteOptions) -> Result<Step, Status> {
    if options.grace_secs.is_some_and(|secs| secs < 0) {
        let mut errors = FieldErrors::default();
        errors.invalid("gracePeriodSeconds", &json!(options.grace_secs), "must be greater than or equal to 0");
        return Err(Status::invalid(&resource.gvk, meta::name(object), errors));
    }
    let deletion = resource.strategy.deletion(object, options.grace_secs);
    let finalizers = wanted_finalizers(object, options.propagation);
    let has_finalizers = !finalizers.is_empty()
        || (resource.is_core("namespaces") && !meta::get_array(object, &["spec", "finalizers"]).is_empty());
    let grace = match deletion {
        Deletion::Graceful(secs) if secs > 0 => secs,
        _ if has_finalizers => 0,
        _ => return Ok(Step::Remove),
    };
    let mut marked = object.clone();
    let had_finalizers = meta::finalizers(object).len();
    if finalizers.is_empty() {
        meta::remove(&mut marked, &["metadata", "finalizers"]);
    } else {
        meta::set(&mut marked, &["metadata", "finalizers"], finalizers.clone());
    }
    let is_terminating = meta::is_terminating(object);
    let old_grace = object["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if is_terminating {
        // A repeated delete may only hasten: never grant more time.
        let hastens = old_grace.is_some_and(|old| grace < old);
        if hastens {
            set_deletion(&mut marked, grace, old_grace);
        } else if had_finalizers == finalizers.len() {
            return Ok(Step::Nothing);
        }
        return Ok(Step::Mark(marked));
    }
    set_deletion(&mut marked, grace, None);
    if resource.is_core("namespaces") {
        meta::set(&mut marked, &["status", "phase"], "Terminating");
    }
    Ok(Step::Mark(marked))
}

/// Sets the time of deletion; the spec counts as changed, as upstream has it.
fn set_deletion(object: &mut Value, grace: i64, old_grace: Option<i64>) {
    let start = match (old_grace, meta::deletion_timestamp(object).and_then(meta::parse_time)) {
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

/// The finalizers that stand after a delete with this propagation.
fn wanted_finalizers(object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let mut finalizers: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
    let wanted = match propagation {
        None => return finalizers,
        Some(Propagation::Background) => None,
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
    };
    finalizers.retain(|one| !(one == ORPHAN || one == FOREGROUND) || Some(one.as_str()) == wanted);
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|one| one == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}
