//! Server-side apply: who owns which field, and what that means for a write.
//!
//! An apply merges the fields that its manager names into the live object, takes out those that the
//! manager named the last time and nobody names now, and refuses to change what another manager
//! owns unless forced. Any other write is tracked: what it changes becomes its manager's. Ownership
//! lies in `metadata.managedFields`.
//!
//! What kubectl applied on its own side before, as its annotation says, is not in its way.
//!
//! Managers may own fields in other versions of the kind: see [`versions`].
//!
//! Source: `sigs.k8s.io/structured-merge-diff/v6/merge/update.go`,
//! `k8s.io/apimachinery/pkg/util/managedfields`.

mod manager;
mod managers;
mod others;
mod prune;
mod set;
mod typed;
pub mod versions;

use serde_json::Value;

use self::{
    manager::Manager,
    managers::Managers,
    others::Others,
    prune::Applier,
    set::Set,
    versions::{OneVersion, Versions},
};
use crate::{
    meta,
    schema::{NodeRef, Schema, TypeRef, Typed},
    status::{Cause, Status, quote},
};

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The `fieldManager` of the request.
    pub manager: &'a str,
    /// `apiVersion` of the object as written.
    pub api_version: &'a str,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// This moment as RFC 3339.
    pub time: &'a str,
}

/// The manager that takes over from its own client-side apply.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Members of every object that nobody owns.
const UNOWNED: [&str; 2] = ["f:apiVersion", "f:kind"];
const UNOWNED_METADATA: [&str; 8] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// Applies `config`, a decoded object of this schema, to `live`; without `live` it is created. The
/// result carries its `managedFields`; it may differ from `live` in nothing at all, and then needs
/// no write.
///
/// # Errors
/// 400 if `config` has `managedFields`; 409 with a cause for each field that another manager owns,
/// unless `force`.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    apply_across(&OneVersion, schema, (live, config), writer, force)
}

/// The same for a kind whose managers may own fields in other versions of it. `objects` are the
/// live one and what is applied.
///
/// # Errors
/// As [`apply`], and what `versions` says.
pub fn apply_across(
    versions: &impl Versions,
    schema: &Schema,
    objects: (Option<&Value>, &Value),
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    let how = (writer, force);
    match schema {
        Schema::BuiltIn(ty) => apply_along(TypeRef::of(*ty), objects, how, versions),
        Schema::Structural(schema) => apply_along(NodeRef::of(schema), objects, how, versions),
    }
}

/// Merges `config`, some of an object of this schema, into `live`; nobody comes to own anything of
/// it.
///
/// # Errors
/// In upstream's words: elements that cannot be told apart, or values that would be replaced as a
/// whole, with all in them that `config` does not name.
pub fn merge(schema: &Schema, live: &Value, config: &Value) -> Result<Value, String> {
    match schema {
        Schema::BuiltIn(ty) => merge_along(TypeRef::of(*ty), live, config),
        Schema::Structural(schema) => merge_along(NodeRef::of(schema), live, config),
    }
}

fn merge_along(root: impl Typed, live: &Value, config: &Value) -> Result<Value, String> {
    let shape = root.shape();
    typed::check(config, shape, "")
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    typed::atomics(config, shape, "", &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    Ok(typed::merge(live.clone(), config, shape))
}

fn apply_along(
    root: impl Typed,
    (live, config): (Option<&Value>, &Value),
    (writer, force): (Writer<'_>, bool),
    versions: &impl Versions,
) -> Result<Value, Status> {
    let given = meta::get_array(config, &["metadata", "managedFields"]);
    if !given.is_empty() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let shape = root.shape();
    typed::check(config, shape, "").map_err(|why| {
        Status::bad_request(format!("failed to create typed patch object: {why}"))
    })?;
    let mut managers = live.map_or_else(Managers::default, Managers::read);
    let me = Manager::applier(writer);
    let before = managers.set_of(&me);
    let named = typed::to_set(config, shape);
    let last_version = managers.version_of(&me).map(ToOwned::to_owned);
    let last_version = last_version.as_deref().unwrap_or(writer.api_version);
    let merged = match live {
        Some(live) => typed::merge(without_managed_fields(live), config, shape),
        None => config.clone(),
    };
    let applier = Applier {
        me: &me,
        named: &named,
        last: (&before, last_version),
    };
    let mut merged = match prune::pruned(&merged, root, &managers, &applier, versions)? {
        Some(pruned) => pruned,
        None => without_unowned(merged, root, &managers, &applier),
    };
    let in_versions = managers.versions_of_others(&me, writer.api_version);
    let others = Others::of(in_versions, root, (live, &merged), versions)?;
    managers.forget_gone(&me, &others);
    if let Some(live) = live {
        let conflicts = managers.conflicts((&me, &named), (live, &merged), shape, &others);
        let last = last_applied(live, writer).filter(|_| !force && !conflicts.is_empty());
        let inherited = |conflict: &Conflict| {
            last.as_ref()
                .is_some_and(|last| typed::is_same_at(last, live, shape, &conflict.path))
        };
        let (inherited, refused): (Vec<_>, Vec<_>) = conflicts.into_iter().partition(inherited);
        if !force && !refused.is_empty() {
            return Err(conflict_status(&refused));
        }
        managers.take(&inherited);
        managers.take(&refused);
    }
    managers.keep_existing(&typed::to_set(&merged, shape), &others);
    let owned = stripped(named);
    // If so, the time stays too, and nothing is left to write.
    let unchanged = owned == before
        && last_version == writer.api_version
        && live.is_some_and(|live| without_managed_fields(live) == merged);
    managers.put(
        me,
        owned,
        if unchanged { None } else { Some(writer.time) },
        writer.api_version,
    );
    managers.write(&mut merged);
    Ok(merged)
}

/// Without what its applier named the last time and nobody names now.
fn without_unowned(
    mut merged: Value,
    root: impl Typed,
    managers: &Managers,
    applier: &Applier<'_>,
) -> Value {
    let mut owned = managers.union_of_others(applier.me);
    owned.merge(applier.named);
    typed::remove_unowned(&mut merged, root.shape(), applier.last.0, &owned);
    merged
}

/// What client-side apply wrote last, if it is kubectl that now applies here: those fields are its
/// own already.
fn last_applied(live: &Value, writer: Writer<'_>) -> Option<Value> {
    if writer.manager != KUBECTL {
        return None;
    }
    serde_json::from_str(meta::annotation(live, LAST_APPLIED)?).ok()
}

/// Tracks a write that is no apply: what `new` has otherwise than `old` becomes the writer's. Sets
/// `managedFields` of `new`.
pub fn track(schema: &Schema, old: Option<&Value>, new: &mut Value, writer: Writer<'_>) {
    // Nothing is converted, so nothing fails.
    let _ = track_across(&OneVersion, schema, (old, new), writer);
}

/// The same for a kind whose managers may own fields in other versions of it. `change` is the
/// object as it was and as it is to be.
///
/// # Errors
/// What `versions` says: `new` is as it was then.
pub fn track_across(
    versions: &impl Versions,
    schema: &Schema,
    change: (Option<&Value>, &mut Value),
    writer: Writer<'_>,
) -> Result<(), Status> {
    match schema {
        Schema::BuiltIn(ty) => track_along(TypeRef::of(*ty), change, writer, versions),
        Schema::Structural(schema) => track_along(NodeRef::of(schema), change, writer, versions),
    }
}

fn track_along(
    root: impl Typed,
    (old, new): (Option<&Value>, &mut Value),
    writer: Writer<'_>,
    versions: &impl Versions,
) -> Result<(), Status> {
    let shape = root.shape();
    let given = meta::get_array(new, &["metadata", "managedFields"]);
    // One empty entry is how a client resets the list.
    let reset = given == [serde_json::json!({})];
    let mut managers = match (given.is_empty(), old) {
        (true, Some(old)) => Managers::read(old),
        (false, _) if !reset => Managers::read(new),
        _ => Managers::default(),
    };
    let me = Manager::updater(writer);
    let all = typed::to_set(new, shape);
    let changed = match old {
        Some(old) => typed::changed(&all, old, new, shape),
        None => all.clone(),
    };
    let in_versions = managers.versions_of_others(&me, writer.api_version);
    let others = Others::of(in_versions, root, (old, &*new), versions)?;
    managers.forget_gone(&me, &others);
    managers.lose(&me, &changed, &others);
    let changed = stripped(changed);
    if !changed.is_empty() {
        let mut mine = managers.set_of(&me);
        mine.merge(&changed);
        managers.put(me, mine, Some(writer.time), writer.api_version);
    }
    managers.keep_existing(&all, &others);
    managers.write(new);
    Ok(())
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    meta::remove(&mut object, &["metadata", "managedFields"]);
    object
}

/// Without what nobody owns.
fn stripped(mut set: Set) -> Set {
    for key in UNOWNED {
        set.children.remove(key);
    }
    if let Some(metadata) = set.children.get_mut("f:metadata") {
        for key in UNOWNED_METADATA {
            metadata.children.remove(key);
        }
        metadata.own = false;
        if metadata.is_empty() {
            set.children.remove("f:metadata");
        }
    }
    set
}

/// A field that two managers want otherwise.
struct Conflict {
    manager: Manager,
    path: Vec<String>,
}

fn conflict_status(conflicts: &[Conflict]) -> Status {
    let causes = conflicts
        .iter()
        .map(|c| Cause {
            kind: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", print(&c.manager)),
            field: set::print_path(&c.path),
        })
        .collect();
    let message = match conflicts {
        [one] => {
            let (manager, path) = (print(&one.manager), set::print_path(&one.path));
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        }
        several => {
            let mut lines = Vec::new();
            let mut last = None;
            for conflict in several {
                if last != Some(&conflict.manager) {
                    lines.push(format!("conflicts with {}:", print(&conflict.manager)));
                    last = Some(&conflict.manager);
                }
                lines.push(format!("- {}", set::print_path(&conflict.path)));
            }
            format!(
                "Apply failed with {} conflicts: {}",
                several.len(),
                lines.join("\n")
            )
        }
    };
    Status::apply_conflict(causes, message)
}

fn print(manager: &Manager) -> String {
    let mut out = quote(&manager.name);
    if !manager.subresource.is_empty() {
        out.push_str(&format!(
            " with subresource {}",
            quote(&manager.subresource)
        ));
    }
    if !manager.applies {
        out.push_str(&format!(" using {}", manager.api_version));
        if !manager.time.is_empty() {
            out.push_str(&format!(" at {}", manager.time));
        }
    }
    out
}

#[cfg(test)]
mod tests;
