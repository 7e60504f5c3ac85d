//! The query parameters of LIST, WATCH and deletecollection, checked; selectors; continue tokens.
//!
//! Source: `k8s.io/apimachinery/pkg/apis/meta/internalversion/validation/validation.go`,
//! `k8s.io/apiserver/pkg/storage/continue.go` at v1.37.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use coracle_api::{
    resource::Gvk,
    selector::{FieldSelector, LabelSelector},
    status::{FieldErrors, Status},
};
use coracle_registry::{
    resource::Resource,
    watch_cache::{Entry, KeyScope, Selection},
};
use coracle_store::Revision;
use serde::{Deserialize, Serialize};

use crate::{
    query::Query,
    request_info::{ResourceRequest, Verb},
};

/// `resourceVersion` and `resourceVersionMatch` together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Not said: the newest, consistently.
    Newest,
    /// `0`: whatever is at hand.
    Any,
    /// At least this.
    NotOlderThan(Revision),
    /// This.
    Exact(Revision),
}

/// What the parameters are for: the same ones mean other things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListVerb {
    /// LIST and deletecollection.
    List,
    Watch,
}

/// Parsed and checked.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) version: Version,
    pub(crate) limit: Option<usize>,
    pub(crate) token: Option<Token>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_secs: Option<u64>,
}

/// Where a chunked list goes on. `rv` -1 means: in the present state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    v: String,
    pub(crate) rv: i64,
    /// The last key of the chunk before, relative to the resource's prefix.
    pub(crate) start: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remaining: Option<usize>,
}

impl Token {
    pub(crate) fn new(rv: i64, start: &str, remaining: Option<usize>) -> Self {
        Self {
            v: "meta.k8s.io/v1".to_owned(),
            rv,
            start: start.to_owned(),
            remaining,
        }
    }

    pub(crate) fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn decode(text: &str) -> Result<Self, Status> {
        let bad = |why: String| Status::bad_request(format!("continue key is not valid: {why}"));
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|error| bad(error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(bad(format!(
                "server does not recognize this encoded version {:?}",
                token.v
            )));
        }
        if token.rv == 0 || token.rv < -1 {
            return Err(bad(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned(),
            ));
        }
        if token.start.is_empty() || token.start.contains("..") {
            return Err(bad(
                "encoded start key empty (version meta.k8s.io/v1)".to_owned()
            ));
        }
        Ok(token)
    }
}

impl ListOptions {
    /// Parses `query`.
    pub(crate) fn parse(query: &Query<'_>, verb: ListVerb) -> Result<Self, Status> {
        let limit = query.integer("limit")?.unwrap_or(0);
        let send_initial_events = query.flag("sendInitialEvents");
        let version_match = query.text("resourceVersionMatch");
        let version = query.text("resourceVersion");
        let token = query.text("continue");
        let is_watch = verb == ListVerb::Watch;
        let errors = contradictions(query, verb, send_initial_events);
        if !errors.is_empty() {
            return Err(Status::invalid(
                &Gvk::new("meta.k8s.io", "v1", "ListOptions"),
                "",
                errors,
            ));
        }
        let token = if is_watch {
            None
        } else {
            token.map(Token::decode).transpose()?
        };
        if token.is_some() && !matches!(version, None | Some("0")) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let version = match (parse_revision(version)?, version_match) {
            (None, _) => Version::Newest,
            (Some(Revision(0)), _) => Version::Any,
            (Some(revision), Some("Exact")) => Version::Exact(revision),
            (Some(revision), None) if limit > 0 && !is_watch => Version::Exact(revision),
            (Some(revision), _) => Version::NotOlderThan(revision),
        };
        Ok(Self {
            version,
            limit: usize::try_from(limit).ok().filter(|limit| *limit > 0),
            token,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events,
            timeout_secs: query
                .integer("timeoutSeconds")?
                .and_then(|secs| u64::try_from(secs).ok()),
        })
    }
}

/// What of the parameters does not go together, in upstream's words and order.
fn contradictions(
    query: &Query<'_>,
    verb: ListVerb,
    send_initial_events: Option<bool>,
) -> FieldErrors {
    let (is_watch, says_initial) = (verb == ListVerb::Watch, send_initial_events.is_some());
    let field = "resourceVersionMatch";
    let mut errors = FieldErrors::default();
    let name = query.text(field);
    if is_watch && says_initial && name != Some("NotOlderThan") {
        errors.forbidden(
            field,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    if let Some(name) = name {
        if is_watch && !says_initial {
            errors.forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if !is_watch && query.text("resourceVersion").is_none() {
            errors.forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if query.text("continue").is_some() {
            errors.forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        let known: &[&str] = if is_watch {
            &["NotOlderThan"]
        } else {
            &["Exact", "NotOlderThan", ""]
        };
        if !known.contains(&name) {
            errors.not_supported(field, &name.into(), known);
        }
        if !is_watch && name == "Exact" && query.text("resourceVersion") == Some("0") {
            errors.forbidden(
                field,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if !is_watch && says_initial {
        errors.forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    errors
}

/// Parses a `resourceVersion` parameter.
pub(crate) fn parse_revision(text: Option<&str>) -> Result<Option<Revision>, Status> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(Revision(number))),
        Err(_) => {
            let mut errors = FieldErrors::default();
            errors.invalid(
                "resourceVersion",
                &text.into(),
                format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
            );
            Err(Status::invalid(
                &Gvk::new("meta.k8s.io", "v1", "ListOptions"),
                "",
                errors,
            ))
        }
    }
}

/// The objects that a request is about.
pub(crate) fn selection(
    resource: &Resource,
    info: &ResourceRequest<'_>,
    query: &Query<'_>,
) -> Result<Selection, Status> {
    let labels = query
        .text("labelSelector")
        .map(LabelSelector::parse)
        .transpose();
    let labels = labels.map_err(|error| Status::bad_request(error.to_string()))?;
    let fields = query
        .text("fieldSelector")
        .map(FieldSelector::parse)
        .transpose();
    let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
    let labels = labels.filter(|selector| !selector.is_everything());
    let fields = fields.filter(|selector| !selector.is_everything());
    if let Some(fields) = &fields {
        check_fields(resource, fields)?;
    }
    // What a webhook converts has its fields afterwards: [`converted_fields`].
    let fields = match &resource.converted {
        Some(_) => fields.map(|fields| fields.only(is_of_metadata)),
        None => fields,
    };
    let fields = fields.filter(|selector| !selector.is_everything());
    let namespace = if resource.is_namespaced() {
        info.namespace.as_ref()
    } else {
        ""
    };
    let name = fields
        .as_ref()
        .and_then(|fields| fields.exact("metadata.name"));
    // The old path of a watch of one object ends with its name.
    let name = name.or(Some(info.name.as_ref()).filter(|_| info.verb == Verb::Watch));
    let scope = match name {
        Some(name) if !name.is_empty() && (!resource.is_namespaced() || !namespace.is_empty()) => {
            KeyScope::Key(resource.key(namespace, name))
        }
        _ if namespace.is_empty() => KeyScope::Resource,
        _ => KeyScope::Namespace(namespace.to_owned()),
    };
    let mut selection = Selection::of(scope);
    if let Some(fields) = &fields {
        let indexed = resource.selectable_fields.iter();
        let pinned = indexed.filter_map(|field| Some((field, fields.exact(field)?)));
        for (field, value) in pinned {
            selection = selection.requires_field(resource.stored_field(field).to_owned(), value);
        }
    }
    if labels.is_some() || fields.is_some() {
        let stored_field = resource
            .view
            .as_ref()
            .map(|seen| seen.conversion.stored_field);
        selection = selection.filter(Arc::new(move |entry: &Entry| {
            let value =
                |field: &str| entry.field(stored_field.map_or(field, |stored| stored(field)));
            labels
                .as_ref()
                .is_none_or(|labels| labels.matches(|label| entry.label(label)))
                && fields.as_ref().is_none_or(|fields| fields.matches(value))
        }));
    }
    Ok(selection)
}

/// What a request selects by fields of what a webhook converts, which the cache does not know.
pub(crate) fn converted_fields(
    resource: &Resource,
    query: &Query<'_>,
) -> Result<Option<FieldSelector>, Status> {
    let Some(text) = query
        .text("fieldSelector")
        .filter(|_| resource.converted.is_some())
    else {
        return Ok(None);
    };
    let fields = FieldSelector::parse(text);
    let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
    let fields = fields.only(|field| !is_of_metadata(field));
    Ok(Some(fields).filter(|fields| !fields.is_everything()))
}

fn is_of_metadata(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}

fn check_fields(resource: &Resource, selector: &FieldSelector) -> Result<(), Status> {
    let known = &resource.selectable_fields;
    for requirement in selector.requirements() {
        let field = requirement.field.as_str();
        if known.iter().any(|known| known == field)
            || field == "metadata.name"
            || (field == "metadata.namespace" && resource.is_namespaced())
        {
            continue;
        }
        // Kinds with fields of their own say it in other words than those without.
        return Err(Status::bad_request(if known.is_empty() {
            format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        } else {
            format!("field label not supported: {field}")
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ListVerb::*, *};

    fn check(raw: &str, verb: ListVerb) -> Result<Version, String> {
        ListOptions::parse(&Query::parse(raw), verb)
            .map(|options| options.version)
            .map_err(|status| status.message)
    }

    #[test]
    fn resource_versions_mean_what_upstream_says() {
        assert_eq!(check("", List), Ok(Version::Newest));
        assert_eq!(check("resourceVersion=0", List), Ok(Version::Any));
        assert_eq!(
            check("resourceVersion=5", List),
            Ok(Version::NotOlderThan(Revision(5)))
        );
        assert_eq!(
            check("resourceVersion=5&limit=3", List),
            Ok(Version::Exact(Revision(5)))
        );
        assert_eq!(
            check("resourceVersion=5&resourceVersionMatch=Exact", List),
            Ok(Version::Exact(Revision(5)))
        );
        assert_eq!(
            check(
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Watch
            ),
            Ok(Version::Newest)
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for (raw, verb, expect) in [
            (
                "resourceVersionMatch=Exact",
                List,
                "forbidden unless resourceVersion is provided",
            ),
            (
                "resourceVersionMatch=Some&resourceVersion=3",
                List,
                "Unsupported value: \"Some\"",
            ),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                List,
                "is forbidden for resourceVersion \"0\"",
            ),
            (
                "resourceVersionMatch=NotOlderThan",
                Watch,
                "forbidden for watch unless sendInitialEvents is provided",
            ),
            (
                "resourceVersionMatch=Exact&sendInitialEvents=true",
                Watch,
                "supported values: \"NotOlderThan\"",
            ),
            (
                "resourceVersionMatch=Exact&resourceVersion=3&continue=x",
                List,
                "forbidden when continue is provided",
            ),
            (
                "sendInitialEvents=true",
                Watch,
                "requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                List,
                "forbidden for list",
            ),
            ("resourceVersion=x", List, "invalid syntax"),
            ("continue=%25%25", List, "continue key is not valid"),
            ("limit=x", List, "invalid syntax"),
        ] {
            let message = check(raw, verb).expect_err(raw);
            assert!(message.contains(expect), "{raw}: {message}");
        }
    }

    #[test]
    fn tokens_survive_the_trip() {
        let token = Token::new(7, "default/a", Some(3));
        assert_eq!(Token::decode(&token.encode()).unwrap(), token);
        assert!(Token::decode("e30").is_err());
    }
}
