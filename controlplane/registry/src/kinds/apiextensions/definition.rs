//! What a CustomResourceDefinition may say, and what it says.
//!
//! | module | does |
//! |---|---|
//! | `names` | names: which are allowed; which of them a definition gets |
//! | `version` | versions: schemas, columns, subresources, selectable fields |
//! | `conversion` | how versions are turned into one another |
//! | [`approval`] | groups of Kubernetes' own |
//! | [`conditions`] | what is told in the status |
//! | [`served`] | the kind as it is served |
//!
//! Paths are upstream's: what is the same in all versions is told once, as if it stood in the spec
//! itself, which is how upstream keeps it.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{validation,v1}` at v1.37.

pub mod approval;
pub mod conditions;
mod conversion;
pub mod names;
pub mod served;
mod version;

use std::{
    collections::{BTreeSet, HashSet},
    sync::LazyLock,
};

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    check,
    value::{items, string},
};

/// The finalizer behind which the objects of a kind go.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a definition waits for that is not being deleted yet.
pub(super) fn pending() -> &'static [Value] {
    static PENDING: LazyLock<[Value; 1]> = LazyLock::new(|| [CLEANUP.into()]);
    &*PENDING
}

/// The version in which objects are stored.
#[must_use]
pub fn storage_version(definition: &Value) -> Option<&str> {
    let versions = items(&definition["spec"]["versions"]).iter();
    let storage = versions.filter(|version| version["storage"] == true);
    storage.map(|version| string(&version["name"])).next()
}

/// What is wrong with `spec`.
pub(super) fn spec_errors(definition: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = &definition["spec"];
    group(&mut errors, &spec["group"]);
    if check::required(&mut errors, "spec.scope", &spec["scope"]) {
        let scopes = ["Cluster", "Namespaced"];
        check::one_of(&mut errors, "spec.scope", &spec["scope"], &scopes);
    }
    let versions = items(&spec["versions"]);
    for (at, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.required(path, "schemas are required");
        }
    }
    version::each(&mut errors, versions);
    together(&mut errors, &spec["versions"]);
    names::required(&mut errors, &spec["names"]);
    names::allowed(&mut errors, "spec.names", &spec["names"]);
    version::common(&mut errors, versions);
    conversion::check(&mut errors, spec);
    errors
}

/// What is wrong with a change of how versions are converted, once the kind is served.
pub(super) fn conversion_update_errors(errors: &mut FieldErrors, new: &Value, old: &Value) {
    conversion::check_update(errors, new, old);
}

/// What is wrong with `status.acceptedNames`.
pub(super) fn accepted_names_errors(definition: &Value, errors: &mut FieldErrors) {
    let names = &definition["status"]["acceptedNames"];
    names::allowed(errors, "status.acceptedNames", names);
}

/// What is wrong with `status.storedVersions`.
pub(super) fn stored_versions_errors(definition: &Value, errors: &mut FieldErrors) {
    let stored = &definition["status"]["storedVersions"];
    let path = "status.storedVersions";
    if items(stored).is_empty() {
        return errors.invalid(path, &json!([]), "must have at least one stored version");
    }
    let versions = items(&definition["spec"]["versions"]).iter();
    let known: HashSet<&str> = versions
        .clone()
        .map(|version| string(&version["name"]))
        .collect();
    let had: HashSet<&str> = items(stored).iter().map(string).collect();
    for version in versions.filter(|version| version["storage"] == true) {
        let name = string(&version["name"]);
        if !had.contains(name) {
            errors.invalid(
                path,
                stored,
                format!("must have the storage version {name}"),
            );
        }
    }
    for (at, version) in items(stored).iter().enumerate() {
        let name = string(version);
        if !known.contains(name) {
            let what = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(format!("{path}[{at}]"), version, what);
        }
    }
}

/// What of a definition is kept and not done, and what upstream warns of.
pub(super) fn warnings(definition: &Value) -> Vec<String> {
    let spec = &definition["spec"];
    let mut told = Vec::new();
    let mut formats = BTreeSet::new();
    for version in items(&spec["versions"]) {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            continue;
        }
        formats.extend(coracle_structural::rules::unknown_formats(schema));
    }
    told.extend(
        formats
            .iter()
            .map(|format| format!("unrecognized format {format:?}")),
    );
    told
}

fn group(errors: &mut FieldErrors, group: &Value) {
    if !check::required(errors, "spec.group", group) {
        return;
    }
    let wrong = name::dns_subdomain_errors(string(group));
    if !wrong.is_empty() {
        errors.invalid("spec.group", group, wrong.join(","));
    } else if !string(group).contains('.') {
        errors.invalid(
            "spec.group",
            group,
            "should be a domain with at least one dot",
        );
    }
}

fn together(errors: &mut FieldErrors, versions: &Value) {
    let mut names = HashSet::new();
    let mut all = items(versions).iter();
    if !all.all(|version| names.insert(string(&version["name"]))) {
        errors.invalid(
            "spec.versions",
            versions,
            "must contain unique version names",
        );
    }
    let stored = items(versions)
        .iter()
        .filter(|version| version["storage"] == true);
    if stored.count() != 1 {
        let what = "must have exactly one version marked as storage version";
        errors.invalid("spec.versions", versions, what);
    }
}
