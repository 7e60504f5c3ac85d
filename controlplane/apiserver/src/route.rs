//! Which URLs there are: the form of a path against the scope of the kind that it names. Pure.
//!
//! Authorization decides by the namespace in the URL, the registry by the scope of the kind; the two agree because a
//! path of the wrong form is no path at all. Asked before authorization, so that nobody is allowed something in a
//! namespace that is then done to the cluster.
//!
//! Not here: which methods a path has (405), which is for the handler of each verb to say.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/installer.go`, `registerResourceHandlers`, at v1.37.

use coracle_api::status::Status;
use coracle_registry::{
    resource::Registry,
    strategy::{ResourceInfo, Scope, Subresource},
};

use crate::{
    metrics_api,
    request_info::{RequestInfo, ResourceRequest, Verb},
    review, unstored,
};

/// Refuses a path that no kind has. A kind that is not known is left to others: who may not ask is told so first.
///
/// # Errors
/// 404, as for any path that is none.
pub(crate) fn check(registry: &Registry, request: &RequestInfo<'_>) -> Result<(), Status> {
    let RequestInfo::Resource(request) = request else { return Ok(()) };
    match kind(registry, request) {
        Some(info) if !exists(info, request) => Err(Status::no_such_path()),
        _ => Ok(()),
    }
}

/// The kind that a path names, whoever serves it.
fn kind(registry: &Registry, request: &ResourceRequest<'_>) -> Option<&'static ResourceInfo> {
    let stored = registry.get(request.group, request.version, request.resource).map(|resource| resource.info);
    stored.or_else(|| metrics_api::info(request)).or_else(|| unstored::info(request)).or_else(|| review::info(request))
}

/// Whether a kind has paths of this form: exactly those that the OpenAPI documents show, and the old ones for watches.
fn exists(info: &ResourceInfo, request: &ResourceRequest<'_>) -> bool {
    let fits_scope = match (info.scope, request.in_namespace) {
        (Scope::Cluster, in_namespace) => !in_namespace,
        (Scope::Namespaced, true) => !request.namespace.is_empty(),
        // The objects of all namespaces can be read together, and nothing else.
        (Scope::Namespaced, false) => !request.is_named && has_any(info, &[Verb::List]),
    };
    fits_scope && fits_form(info, request)
}

fn fits_form(info: &ResourceInfo, request: &ResourceRequest<'_>) -> bool {
    if request.subresource.is_empty() {
        return !request.is_named || has_any(info, &[Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]);
    }
    let is_known = info.subresources.iter().any(|subresource| subresource.name() == request.subresource);
    let ends_here = request.rest.is_empty() || request.subresource == Subresource::Proxy.name();
    is_known && ends_here && request.is_named && !request.is_old_watch
}

fn has_any(info: &ResourceInfo, verbs: &[Verb]) -> bool {
    verbs.iter().any(|verb| info.verbs.contains(&verb.as_str()))
}

#[cfg(test)]
mod tests {
    use coracle_registry::strategy::VERBS_ALL;
    use http::Method;

    use super::*;
    use crate::query::Query;

    fn check(scope: Scope, verbs: &'static [&'static str], path: &str, expect: bool) {
        let subresources = &[Subresource::Status, Subresource::Proxy];
        let info = ResourceInfo {
            plural: "things",
            scope,
            verbs,
            subresources,
            ..ResourceInfo::in_group("example.org", "v1")
        };
        let path = format!("/apis/example.org/v1/{path}");
        let query = Query::parse("fieldSelector=metadata.name%3Dx");
        let RequestInfo::Resource(request) = RequestInfo::parse(&Method::GET, &path, &query) else { panic!("{path}") };
        assert_eq!(exists(&info, &request), expect, "{scope:?} {path}");
    }

    #[test]
    fn a_path_has_the_scope_of_its_kind() {
        let all = |scope, path, expect| check(scope, VERBS_ALL, path, expect);
        for (path, namespaced, cluster) in [
            ("things", true, true),
            ("things/x", false, true),
            ("things/x/status", false, true),
            ("namespaces/n/things", true, false),
            ("namespaces/n/things/x", true, false),
            ("namespaces/n/things/x/status", true, false),
            ("namespaces//things", false, false),
            ("namespaces//things/x", false, false),
            ("watch/things", true, true),
            ("watch/things/x", false, true),
            ("watch/namespaces/n/things", true, false),
            ("watch/namespaces/n/things/x", true, false),
        ] {
            all(Scope::Namespaced, path, namespaced);
            all(Scope::Cluster, path, cluster);
        }
    }

    #[test]
    fn nothing_follows_a_subresource_but_a_proxied_path() {
        for (path, expect) in [
            ("things/x/scale", false),
            ("things/x/status/y", false),
            ("things/x/proxy/y/z", true),
            ("things//status", false),
            ("watch/things/x/proxy", false),
        ] {
            check(Scope::Cluster, VERBS_ALL, path, expect);
        }
        check(Scope::Namespaced, &["create"], "things", false);
        check(Scope::Namespaced, &["create"], "namespaces/n/things", true);
        check(Scope::Namespaced, &["create"], "namespaces/n/things/x", false);
    }
}
