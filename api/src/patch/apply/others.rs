//! What a write makes of fields that are owned in other versions than the one that is written.
//!
//! Source: `update` in `sigs.k8s.io/structured-merge-diff/v6/merge/update.go`.

use serde_json::Value;

use super::{
    Conflict,
    manager::Manager,
    set::Set,
    typed,
    versions::{Form, Versions},
};
use crate::{
    schema::{NodeRef, Typed},
    status::Status,
};

/// What a write makes of an object, in the version of some of its managers.
struct Compared {
    api_version: String,
    /// Of paths in what is to be: what differs from what was.
    changed: Set,
    /// All that is to be there.
    all: Set,
    /// Whether these are of metadata alone.
    is_partial: bool,
}

/// What a write makes of an object, in the versions of all managers of other versions.
#[derive(Default)]
pub(super) struct Others {
    compared: Vec<Compared>,
    /// Versions that there are no more.
    gone: Vec<String>,
}

/// An object as it was, if it was, and as it is to be.
pub(super) type Change<'a> = (Option<&'a Value>, &'a Value);

impl Others {
    /// Looks at a change to an object in versions of its managers.
    pub(super) fn of(
        all: Vec<String>,
        root: impl Typed,
        (old, new): Change<'_>,
        versions: &impl Versions,
    ) -> Result<Self, Status> {
        let mut others = Self::default();
        if versions.is_one() {
            return Ok(others);
        }
        for api_version in all {
            let told = |what: &str, status: Status| Status {
                message: format!("failed to convert {what} object: {}", status.message),
                ..status
            };
            let was = old.map(|old| versions.form(old, &api_version));
            let was = was.transpose().map_err(|status| told("old", status))?;
            let is = versions.form(new, &api_version);
            match (was, is.map_err(|status| told("new", status))?) {
                (_, Form::Gone) => others.gone.push(api_version),
                (_, Form::Unseen) => {
                    let metadata = metadata(api_version, root, (old, new));
                    others.compared.push(metadata);
                }
                (was, Form::Other(new, schema)) => {
                    let shape = NodeRef::of(&schema).shape();
                    let all = typed::to_set(&new, shape);
                    let changed = match was {
                        Some(Form::Other(old, _)) => typed::changed(&all, &old, &new, shape),
                        _ => all.clone(),
                    };
                    others.compared.push(Compared {
                        api_version,
                        changed,
                        all,
                        is_partial: false,
                    });
                }
            }
        }
        Ok(others)
    }

    fn find(&self, manager: &Manager) -> Option<&Compared> {
        let mut all = self.compared.iter();
        all.find(|compared| compared.api_version == manager.api_version)
    }

    /// Whether a manager owns fields of a version that is there no more: then it owns nothing.
    pub(super) fn is_gone(&self, manager: &Manager) -> bool {
        self.gone.contains(&manager.api_version)
    }

    /// Whether a manager owns fields of a version that is looked at here.
    pub(super) fn has(&self, manager: &Manager) -> bool {
        self.find(manager).is_some()
    }

    /// What of a manager's fields is changed.
    pub(super) fn conflicts(&self, manager: &Manager, set: &Set, found: &mut Vec<Conflict>) {
        let Some(compared) = self.find(manager) else {
            return;
        };
        let paths = set.intersection(&compared.changed).paths();
        found.extend(paths.into_iter().map(|path| Conflict {
            manager: manager.clone(),
            path,
        }));
    }

    /// Takes from a manager what is changed.
    pub(super) fn take_changed(&self, manager: &Manager, set: &mut Set) {
        if let Some(compared) = self.find(manager) {
            set.subtract(&compared.changed);
        }
    }

    /// Takes from a manager what is not there any more.
    pub(super) fn keep_existing(&self, manager: &Manager, set: &mut Set) {
        let Some(compared) = self.find(manager) else {
            return;
        };
        if !compared.is_partial {
            return set.retain(&compared.all);
        }
        if let (Some(own), Some(all)) = (
            set.children.get_mut(METADATA),
            compared.all.children.get(METADATA),
        ) {
            own.retain(all);
        }
    }
}

const METADATA: &str = "f:metadata";

/// The same of metadata alone, which is of one form in all versions.
fn metadata(api_version: String, root: impl Typed, (old, new): Change<'_>) -> Compared {
    let shape = root.shape();
    let only = |mut set: Set| {
        set.children.retain(|key, _| key == METADATA);
        set
    };
    let all = only(typed::to_set(new, shape));
    let changed = match old {
        Some(old) => only(typed::changed(&all, old, new, shape)),
        None => all.clone(),
    };
    Compared {
        api_version,
        changed,
        all,
        is_partial: true,
    }
}
