//! What a URL asks for, in upstream's terms.
//!
//! Pure: knows nothing of which resources exist.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go` at v1.37.

use std::borrow::Cow;

use coracle_api::percent;
use coracle_auth::{
    authz::{Attributes, ResourceTarget, Target},
    user::UserInfo,
};
use http::Method;

use crate::query::Query;

/// What is done, as authorization sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET of one object, or of something that is no resource.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch`.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// HEAD or OPTIONS of something that is no resource.
    Other,
}

impl Verb {
    /// Such as `deletecollection`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }

    /// Whether nothing changes.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch | Self::Other)
    }
}

/// A request to a resource: `/api/v1/namespaces/NS/pods/NAME/log` taken apart. Absent parts are
/// empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest<'a> {
    /// What is done.
    pub verb: Verb,
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `pods`.
    pub resource: &'a str,
    /// Such as `log`.
    pub subresource: &'a str,
    /// Of the object; for a Namespace its own name.
    pub namespace: Cow<'a, str>,
    /// Of the object. For a list or watch, what a `metadata.name` field selector asks for.
    pub name: Cow<'a, str>,
    /// What follows the subresource, without the leading slash: the path behind `proxy`.
    pub rest: &'a str,
    /// Whether the URL names a namespace that the resource is in (false for
    /// `/api/v1/namespaces/x`).
    pub in_namespace: bool,
    /// Whether the URL itself names an object: [`ResourceRequest::name`] may come from a field
    /// selector.
    pub is_named: bool,
    /// Whether the URL is of the old form for watches, `/api/v1/watch/pods`.
    pub is_old_watch: bool,
}

/// What a URL asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo<'a> {
    /// Objects.
    Resource(ResourceRequest<'a>),
    /// Anything else: `/version`, discovery, health.
    NonResource {
        /// Without a trailing slash, except for `/` itself.
        path: &'a str,
    },
}

impl<'a> RequestInfo<'a> {
    /// What authorization is asked for `user`'s request.
    pub(crate) fn attributes(
        &'a self,
        user: &'a UserInfo,
        method: &Method,
        query: &'a Query<'a>,
    ) -> Attributes<'a> {
        match self {
            Self::NonResource { path } => Attributes {
                user,
                verb: path_verb(method),
                target: Target::Path(path),
            },
            Self::Resource(request) => Attributes {
                user,
                verb: request.verb.as_str(),
                target: Target::Resource(ResourceTarget {
                    group: request.group,
                    resource: request.resource,
                    subresource: request.subresource,
                    namespace: &request.namespace,
                    name: &request.name,
                    field_selector: query.text("fieldSelector"),
                    label_selector: query.text("labelSelector"),
                }),
            },
        }
    }

    /// Takes `path` apart.
    pub fn parse(method: &Method, path: &'a str, query: &Query<'_>) -> Self {
        let trimmed = path.trim_end_matches('/');
        let non_resource = Self::NonResource {
            path: if trimmed.is_empty() { "/" } else { trimmed },
        };
        let mut parts = Segments(trimmed.trim_start_matches('/'));
        let (group, version) = match parts.next() {
            Some("api") => ("", parts.next()),
            Some("apis") => match parts.next() {
                Some(group) => (group, parts.next()),
                None => return non_resource,
            },
            _ => return non_resource,
        };
        let Some(version) = version else {
            return non_resource;
        };
        let Some(mut first) = parts.next() else {
            return non_resource;
        };
        let is_old_watch = first == "watch";
        if is_old_watch {
            let Some(next) = parts.next() else {
                return non_resource;
            };
            first = next;
        }
        let mut request = ResourceRequest {
            verb: Verb::Other,
            group,
            version,
            resource: first,
            subresource: "",
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(""),
            rest: "",
            in_namespace: false,
            is_named: false,
            is_old_watch,
        };
        if first == "namespaces" {
            request.take_namespace(&mut parts);
        } else {
            request.take_name(&mut parts);
        }
        request.is_named = !request.name.is_empty();
        request.verb = verb(method, request.is_named, is_old_watch, query);
        // As upstream: a right to one object by its name covers the list and the watch of that one.
        if matches!(
            request.verb,
            Verb::List | Verb::Watch | Verb::DeleteCollection
        ) && let Some(name) = query.text("fieldSelector").and_then(selected_name)
        {
            request.name = Cow::Owned(name.to_owned());
        }
        Self::Resource(request)
    }
}

impl<'a> ResourceRequest<'a> {
    /// What follows `namespaces`: its name, and what is meant of it or in it.
    fn take_namespace(&mut self, parts: &mut Segments<'a>) {
        let Some(namespace) = parts.next() else {
            return;
        };
        self.namespace = percent::decode(namespace);
        self.name = self.namespace.clone();
        match parts.next() {
            None => {}
            // As upstream: a Namespace has these two itself, anything else is in it.
            Some(sub @ ("status" | "finalize")) => {
                self.subresource = sub;
                self.rest = parts.0;
            }
            Some(resource) => {
                self.in_namespace = true;
                self.resource = resource;
                self.name = Cow::Borrowed("");
                self.take_name(parts);
            }
        }
    }

    fn take_name(&mut self, parts: &mut Segments<'a>) {
        if let Some(name) = parts.next() {
            self.name = percent::decode(name);
        }
        if let Some(subresource) = parts.next() {
            self.subresource = subresource;
        }
        self.rest = parts.0;
    }

    /// `pods` or `pods/log`.
    pub fn resource_path(&self) -> Cow<'a, str> {
        if self.subresource.is_empty() {
            Cow::Borrowed(self.resource)
        } else {
            Cow::Owned(format!("{}/{}", self.resource, self.subresource))
        }
    }
}

fn verb(method: &Method, is_named: bool, is_old_watch: bool, query: &Query<'_>) -> Verb {
    match *method {
        Method::GET | Method::HEAD if is_old_watch => Verb::Watch,
        // Nothing is written at the path of a watch.
        _ if is_old_watch => Verb::Other,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if !is_named => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        Method::GET | Method::HEAD if is_named => Verb::Get,
        Method::GET | Method::HEAD if query.flag("watch").unwrap_or(false) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        _ => Verb::Other,
    }
}

/// The name that a field selector pins, if it pins one.
fn selected_name(selector: &str) -> Option<&str> {
    selector.split(',').find_map(|part| {
        let value = part.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })
}

/// Path elements; the rest stays reachable as it is.
struct Segments<'a>(&'a str);

impl<'a> Segments<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let (first, rest) = self.0.split_once('/').unwrap_or((self.0, ""));
        self.0 = rest;
        Some(first)
    }
}

fn path_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, url: &str, expect: &str) {
        let (path, raw) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(raw);
        let said = match RequestInfo::parse(&method, path, &query) {
            RequestInfo::NonResource { path } => path.to_owned(),
            RequestInfo::Resource(r) => format!(
                "{} g={} v={} r={} s={} ns={} n={} rest={}",
                r.verb.as_str(),
                r.group,
                r.version,
                r.resource,
                r.subresource,
                r.namespace,
                r.name,
                r.rest
            ),
        };
        assert_eq!(said, expect, "{method} {url}");
    }

    #[test]
    fn urls_are_taken_apart_as_upstream_does() {
        let get = || Method::GET;
        check(get(), "/version/", "/version");
        check(get(), "/", "/");
        check(get(), "/apis/apps/v1/", "/apis/apps/v1");
        check(get(), "/api/v1/pods", "list g= v=v1 r=pods s= ns= n= rest=");
        check(
            get(),
            "/api/v1/pods?watch=1",
            "watch g= v=v1 r=pods s= ns= n= rest=",
        );
        check(
            get(),
            "/api/v1/namespaces/",
            "list g= v=v1 r=namespaces s= ns= n= rest=",
        );
        check(
            get(),
            "/api/v1/namespaces/a",
            "get g= v=v1 r=namespaces s= ns=a n=a rest=",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update g= v=v1 r=namespaces s=finalize ns=a n=a rest=",
        );
        check(
            get(),
            "/api/v1/namespaces/a/pods/b/",
            "get g= v=v1 r=pods s= ns=a n=b rest=",
        );
        check(
            Method::POST,
            "/apis/apps/v1/namespaces/a/deployments",
            "create g=apps v=v1 r=deployments s= ns=a n= rest=",
        );
        check(
            Method::DELETE,
            "/api/v1/namespaces/a/pods",
            "deletecollection g= v=v1 r=pods s= ns=a n= rest=",
        );
        check(
            Method::PATCH,
            "/api/v1/nodes/n%2F1/status",
            "patch g= v=v1 r=nodes s=status ns= n=n/1 rest=",
        );
        check(
            get(),
            "/api/v1/nodes/n/proxy/a/b",
            "get g= v=v1 r=nodes s=proxy ns= n=n rest=a/b",
        );
        check(
            get(),
            "/api/v1/watch/namespaces/a/pods",
            "watch g= v=v1 r=pods s= ns=a n= rest=",
        );
        check(
            get(),
            "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Db",
            "list g= v=v1 r=secrets s= ns=a n=b rest=",
        );
    }
}
