//! One operation: its parameters, bodies and Kubernetes' extensions.

use coracle_registry::strategy::{Scope, Subresource};
use serde_json::{Map, Value, json};

use super::{META, REF_PREFIX, parameters::query_parameter};
use crate::published::Shown;

/// Media types of patches, in upstream's order.
const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

const PATCH_TYPES_OF_CUSTOM: [&str; 3] = [PATCH_TYPES[0], PATCH_TYPES[1], PATCH_TYPES[3]];

/// What an operation is about.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) shown: &'a Shown,
    pub(super) sub: Option<Subresource>,
    /// A namespaced resource, listed across namespaces.
    pub(super) in_all_namespaces: bool,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    List,
    Post,
    DeleteCollection,
    Get,
    Put,
    Patch,
    Delete,
    ConnectGet,
    ConnectPost,
    ConnectPut,
    ConnectDelete,
}

/// An action on a target.
pub(super) struct Operation<'a> {
    pub(super) action: Action,
    pub(super) target: &'a Target<'a>,
}

impl Action {
    /// The HTTP method, as a path item's member is named.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get | Self::ConnectGet => "get",
            Self::Post | Self::ConnectPost => "post",
            Self::Put | Self::ConnectPut => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection | Self::ConnectDelete => "delete",
        }
    }

    fn kubernetes_action(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Post => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::ConnectGet | Self::ConnectPost | Self::ConnectPut | Self::ConnectDelete => {
                "connect"
            }
        }
    }

    /// What the operation's ID begins with, and what its description says before the object.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::List => ("list", "list or watch objects of kind "),
            Self::Post => ("create", "create"),
            Self::DeleteCollection => ("deleteCollection", "delete collection of "),
            Self::Get => ("read", "read"),
            Self::Put => ("replace", "replace"),
            Self::Patch => ("patch", "partially update"),
            Self::Delete => ("delete", "delete"),
            Self::ConnectGet => ("connectGet", "connect GET requests to"),
            Self::ConnectPost => ("connectPost", "connect POST requests to"),
            Self::ConnectPut => ("connectPut", "connect PUT requests to"),
            Self::ConnectDelete => ("connectDelete", "connect DELETE requests to"),
        }
    }

    /// What stands before the kind of the object.
    fn article(self, kind: &str) -> &'static str {
        match self {
            Self::Get | Self::Put | Self::Patch => " the specified ",
            // Of several there is none.
            Self::Post | Self::Delete if kind.ends_with('s') && !kind.ends_with("ss") => " ",
            Self::Post | Self::Delete if kind.starts_with(['A', 'E', 'I', 'O', 'U']) => " an ",
            Self::Post | Self::Delete => " a ",
            Self::List | Self::DeleteCollection => "",
            _ => " ",
        }
    }
}

impl<'a> Target<'a> {
    /// Group, version and kind that the operation speaks.
    pub(super) fn kind(&self) -> (&'a str, &'a str, &'a str) {
        let info = &self.shown.info;
        let foreign = self.sub.and_then(|sub| sub.foreign_kind(&info.kind));
        foreign.unwrap_or((&*info.group, &*info.version, &*info.kind))
    }

    /// A reference to the schema of a kind.
    fn schema_of(&self, group: &str, version: &str, kind: &str) -> Value {
        match self.shown.schema_name(group, version, kind) {
            Some(name) => reference(&name),
            None => json!({"type": "object"}),
        }
    }
}

impl Operation<'_> {
    pub(super) fn value(&self) -> Value {
        let (group, version, kind) = self.target.kind();
        let mut value = json!({
            "tags": [self.tag()],
            "description": self.description(),
            "operationId": self.id(),
            "responses": self.responses(),
            "x-kubernetes-action": self.action.kubernetes_action(),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        let parameters = self.parameters();
        if !parameters.is_empty() {
            value["parameters"] = parameters.into();
        }
        if let Some(body) = self.request_body() {
            value["requestBody"] = body;
        }
        value
    }

    /// `read status of the specified Deployment`
    fn description(&self) -> String {
        let kind = &self.target.shown.info.kind;
        let is_custom = self.target.shown.definitions.is_some();
        let words = match self.action {
            Action::List if is_custom => "list objects of kind ",
            action => action.words().1,
        };
        let sub = self.target.sub;
        let sub = sub.map_or_else(String::new, |sub| format!(" {} of", sub.name()));
        format!("{words}{sub}{}{kind}", self.action.article(kind))
    }

    /// `apps_v1`
    fn tag(&self) -> String {
        let info = &self.target.shown.info;
        let group = if info.group.is_empty() {
            "core"
        } else {
            info.group.split('.').next().unwrap_or_default()
        };
        format!("{group}_{}", info.version)
    }

    /// `readAppsV1NamespacedDeploymentStatus`
    fn id(&self) -> String {
        let info = &self.target.shown.info;
        let tag: String = self.tag().split('_').map(capitalized).collect();
        let namespaced = match info.scope {
            Scope::Namespaced if !self.target.in_all_namespaces => "Namespaced",
            _ => "",
        };
        let sub = self
            .target
            .sub
            .map_or_else(String::new, |sub| capitalized(sub.name()));
        let everywhere = if self.target.in_all_namespaces {
            "ForAllNamespaces"
        } else {
            ""
        };
        format!(
            "{}{tag}{namespaced}{}{sub}{everywhere}",
            self.action.words().0,
            info.kind
        )
    }

    fn parameters(&self) -> Vec<Value> {
        let names: &[&str] = match self.action {
            Action::List => &[
                "allowWatchBookmarks",
                "continue",
                "fieldSelector",
                "labelSelector",
                "limit",
                "resourceVersion",
                "resourceVersionMatch",
                "sendInitialEvents",
                "timeoutSeconds",
                "watch",
            ],
            Action::Post | Action::Put => &["dryRun", "fieldManager", "fieldValidation"],
            Action::Patch => &["dryRun", "fieldManager", "fieldValidation", "force"],
            Action::Delete => &[
                "dryRun",
                "gracePeriodSeconds",
                "orphanDependents",
                "propagationPolicy",
            ],
            Action::DeleteCollection => &[
                "continue",
                "dryRun",
                "fieldSelector",
                "gracePeriodSeconds",
                "labelSelector",
                "limit",
                "orphanDependents",
                "propagationPolicy",
                "resourceVersion",
                "resourceVersionMatch",
                "sendInitialEvents",
                "timeoutSeconds",
            ],
            Action::Get if self.target.sub == Some(Subresource::Log) => &[
                "container",
                "follow",
                "insecureSkipTLSVerifyBackend",
                "limitBytes",
                "previous",
                "sinceSeconds",
                "stream",
                "tailLines",
                "timestamps",
            ],
            Action::ConnectGet | Action::ConnectPost => match self.target.sub {
                Some(Subresource::Exec) => {
                    &["command", "container", "stderr", "stdin", "stdout", "tty"]
                }
                Some(Subresource::Attach) => &["container", "stderr", "stdin", "stdout", "tty"],
                Some(Subresource::Portforward) => &["ports"],
                _ => &["path"],
            },
            Action::ConnectPut | Action::ConnectDelete => &["path"],
            Action::Get => &[],
        };
        names.iter().map(|name| query_parameter(name)).collect()
    }

    fn request_body(&self) -> Option<Value> {
        let (types, schema): (&[&str], _) = match self.action {
            Action::Post | Action::Put => (&["*/*"], self.own_schema()),
            Action::Patch => (self.patch_types(), reference(&format!("{META}Patch"))),
            Action::Delete | Action::DeleteCollection => {
                (&["*/*"], reference(&format!("{META}DeleteOptions")))
            }
            _ => return None,
        };
        let mut body = json!({"content": content(types, &schema)});
        if !matches!(self.action, Action::Delete | Action::DeleteCollection) {
            body["required"] = true.into();
        }
        Some(body)
    }

    /// A strategic merge needs a type of the schema table.
    fn patch_types(&self) -> &'static [&'static str] {
        if self.target.shown.definitions.is_none() {
            &PATCH_TYPES
        } else {
            &PATCH_TYPES_OF_CUSTOM
        }
    }

    fn responses(&self) -> Value {
        let json = ["application/json"];
        let ok = |schema: &Value| json!({"description": "OK", "content": content(&json, schema)});
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        let status = || reference(&format!("{META}Status"));
        match self.action {
            Action::List => responses["200"] = ok(&self.list_schema()),
            Action::DeleteCollection | Action::Delete => responses["200"] = ok(&status()),
            Action::Get if self.target.sub == Some(Subresource::Log) => {
                responses["200"] = json!({"description": "OK", "content": content(&["text/plain"], &json!({"type": "string"}))});
            }
            Action::Get => responses["200"] = ok(&self.own_schema()),
            Action::Post | Action::Put | Action::Patch => {
                responses["200"] = ok(&self.own_schema());
                responses["201"] = json!({"description": "Created", "content": content(&json, &self.own_schema())});
            }
            _ => {
                responses["200"] = json!({"description": "OK", "content": content(&["*/*"], &json!({"type": "string"}))})
            }
        }
        responses
    }

    fn own_schema(&self) -> Value {
        let (group, version, kind) = self.target.kind();
        self.target.schema_of(group, version, kind)
    }

    fn list_schema(&self) -> Value {
        let info = &self.target.shown.info;
        self.target
            .schema_of(&info.group, &info.version, &info.list_kind)
    }
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REF_PREFIX}{name}")})
}

fn content(types: &[&str], schema: &Value) -> Map<String, Value> {
    types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
        .collect()
}
