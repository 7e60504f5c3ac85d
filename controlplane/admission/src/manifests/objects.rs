//! What the documents say, as clients would have made it: decoded strictly, with its defaults, and
//! checked as the API checks it. Nothing in it leads into the cluster.
//!
//! Source: `.../plugin/webhook/manifest/loader/loader.go`,
//! `.../plugin/policy/manifest/loader/loader.go` at v1.37.

use std::{collections::BTreeMap, path::PathBuf};

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    meta,
    resource::Gvk,
};
use coracle_registry::{
    kinds::admissionregistration::{
        STATIC_SUFFIX, mutatingadmissionpolicy::MutatingAdmissionPolicy,
        mutatingadmissionpolicybinding::MutatingAdmissionPolicyBinding,
        mutatingwebhookconfiguration::MutatingWebhookConfiguration,
        validatingadmissionpolicy::ValidatingAdmissionPolicy,
        validatingadmissionpolicybinding::ValidatingAdmissionPolicyBinding,
        validatingwebhookconfiguration::ValidatingWebhookConfiguration,
    },
    strategy::BuiltIn,
    value::{items, string},
};
use serde_json::Value;

use super::{Holds, directory::Document};

const GROUP: &str = "admissionregistration.k8s.io";
const V1: &str = "admissionregistration.k8s.io/v1";

/// Objects of one kind by their names, with the files that they are from.
type Named = BTreeMap<String, (PathBuf, Value)>;

impl Holds {
    /// The kind of what a directory has, and of what binds it.
    fn kinds(self) -> Vec<&'static dyn BuiltIn> {
        match self {
            Self::MutatingWebhooks => vec![&MutatingWebhookConfiguration],
            Self::ValidatingWebhooks => vec![&ValidatingWebhookConfiguration],
            Self::MutatingPolicies => {
                vec![&MutatingAdmissionPolicy, &MutatingAdmissionPolicyBinding]
            }
            Self::ValidatingPolicies => vec![
                &ValidatingAdmissionPolicy,
                &ValidatingAdmissionPolicyBinding,
            ],
        }
    }
}

/// Configurations or policies, and bindings, all by name. `version` is theirs.
///
/// # Errors
/// The file and the object, and what is wrong there.
pub(super) fn of(
    holds: Holds,
    documents: Vec<Document>,
    version: i64,
) -> Result<(Vec<Value>, Vec<Value>), String> {
    let kinds = holds.kinds();
    let mut named: Vec<Named> = kinds.iter().map(|_| Named::new()).collect();
    for document in documents {
        let loading = |why: String| format!("error loading {}: {why}", document.file.display());
        let value: serde_yaml::Value =
            serde_yaml::from_str(&document.text).map_err(|error| loading(error.to_string()))?;
        let value: Value =
            serde_json::to_value(value).map_err(|error| loading(error.to_string()))?;
        for (at, object) in read(&kinds, value, Some(&document.text)).map_err(loading)? {
            let name = meta::name(&object).to_owned();
            let file = document.file.clone();
            if let Some((before, _)) = named[at].get(&name) {
                return Err(loading(format!(
                    "duplicate name {name:?} (previously seen in {})",
                    before.display()
                )));
            }
            named[at].insert(name, (file, with_identity(object, version)));
        }
    }
    let mut named = named.into_iter();
    let (objects, bindings) = (
        named.next().unwrap_or_default(),
        named.next().unwrap_or_default(),
    );
    for (name, (file, binding)) in &bindings {
        let policy = string(&binding["spec"]["policyName"]);
        if !objects.contains_key(policy) {
            return Err(format!(
                "error loading {}: binding {name:?} references policy {policy:?} which does not exist in the manifest directory",
                file.display()
            ));
        }
    }
    let values = |named: Named| named.into_values().map(|(_, object)| object).collect();
    Ok((values(objects), values(bindings)))
}

/// The objects that a document has, each with the place of its kind: one, or those of a list. A
/// document with nothing in it has none. `text` is what `value` was read from, and read again as
/// the API reads YAML.
fn read(
    kinds: &[&dyn BuiltIn],
    value: Value,
    text: Option<&str>,
) -> Result<Vec<(usize, Value)>, String> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let (version, kind) = (string(&value["apiVersion"]), string(&value["kind"]));
    let is_list = |one: &&dyn BuiltIn| kind.strip_suffix("List") == Some(one.resource().kind);
    if (version, kind) == ("v1", "List") || (version == V1 && kinds.iter().any(is_list)) {
        let inner = (version == V1).then(|| kind.trim_end_matches("List").to_owned());
        let mut all = Vec::new();
        for item in items(&value["items"]) {
            let mut item = item.clone();
            if let Some(inner) = inner.as_deref().filter(|_| item["kind"].is_null()) {
                item["apiVersion"] = V1.into();
                item["kind"] = inner.into();
            }
            all.extend(read(kinds, item, None)?);
        }
        return Ok(all);
    }
    let mut places = kinds.iter().enumerate();
    let found = places.find(|(_, one)| version == V1 && one.resource().kind == kind);
    let Some((at, strategy)) = found else {
        let known: Vec<&str> = kinds.iter().map(|one| one.resource().kind).collect();
        return Err(format!(
            "unsupported resource type {kind} of {version:?}: {} of {V1} can be here",
            known.join(" and ")
        ));
    };
    let decoded = match text {
        Some(text) => decoded(*strategy, text.as_bytes(), ContentType::Yaml),
        None => decoded(*strategy, value.to_string().as_bytes(), ContentType::Json),
    };
    Ok(vec![(at, checked(*strategy, decoded?)?)])
}

fn decoded(strategy: &dyn BuiltIn, body: &[u8], content: ContentType) -> Result<Value, String> {
    let kind = Gvk::new(GROUP, "v1", strategy.resource().kind);
    let decoded = decode::decode(body, content, &kind, FieldValidation::Strict);
    decoded
        .map(|decoded| decoded.object)
        .map_err(|status| status.message)
}

/// The object with its defaults, if it may be one of files.
fn checked(strategy: &dyn BuiltIn, mut object: Value) -> Result<Value, String> {
    let name = meta::name(&object).to_owned();
    if name.is_empty() {
        return Err("a resource must have a name".to_owned());
    }
    let of_object =
        |why: &dyn std::fmt::Display| format!("{} {name:?}: {why}", strategy.resource().kind);
    if !name.ends_with(STATIC_SUFFIX) {
        let why = format!("must have a name ending with {STATIC_SUFFIX:?}");
        return Err(of_object(&why));
    }
    if let Some(why) = strategy.name_error(&name) {
        return Err(of_object(&why));
    }
    strategy.default(&mut object);
    let errors = strategy.validate(&object);
    if !errors.is_empty() {
        return Err(of_object(&errors));
    }
    leads_nowhere(&object).map_err(|why| of_object(&why))?;
    Ok(object)
}

/// Whether an object needs nothing of the cluster.
fn leads_nowhere(object: &Value) -> Result<(), String> {
    for webhook in items(&object["webhooks"]) {
        let (name, client) = (string(&webhook["name"]), &webhook["clientConfig"]);
        if !client["service"].is_null() {
            return Err(format!(
                "webhook {name:?}: clientConfig.service is not supported for static manifests; use clientConfig.url instead"
            ));
        }
        if string(&client["url"]).is_empty() {
            return Err(format!(
                "webhook {name:?}: clientConfig.url is required for static manifests"
            ));
        }
    }
    let spec = &object["spec"];
    for field in ["paramKind", "paramRef"] {
        if !spec[field].is_null() {
            return Err(format!(
                "spec.{field} is not supported for static manifests"
            ));
        }
    }
    Ok(())
}

/// What the API would have given it: what is compiled of it is kept by this.
fn with_identity(mut object: Value, version: i64) -> Value {
    let uid = format!("manifest/{}", meta::name(&object));
    meta::set(&mut object, &["metadata", "uid"], uid);
    meta::set(&mut object, &["metadata", "generation"], version);
    object
}
