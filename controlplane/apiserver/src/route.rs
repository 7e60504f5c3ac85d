//! Which URLs there are: the form of a path against the scope of the kind that it names. Pure.
//!
//! Authorization decides by the namespace in the URL, the registry by the scope of the kind; the
//! two agree because a path of the wrong form is no path at all. Asked before authorization, so
//! that nobody is allowed something in a namespace that is then done to the cluster.
//!
//! Not here: which methods a path has (405), which is for the handler of each verb to say.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/installer.go`, `registerResourceHandlers`, at v1.37.

use coracle_registry::{
    api_resource::ApiResource,
    strategy::{Scope, Subresource},
};

use crate::request_info::{ResourceRequest, Verb};

/// Whether a kind has paths of this form: exactly those that the OpenAPI documents show, and the
/// old ones for watches.
pub(crate) fn exists(info: &ApiResource, request: &ResourceRequest<'_>) -> bool {
    let fits_scope = match (info.scope, request.in_namespace) {
        (Scope::Cluster, in_namespace) => !in_namespace,
        (Scope::Namespaced, true) => !request.namespace.is_empty(),
        // The objects of all namespaces can be read together, and nothing else.
        (Scope::Namespaced, false) => !request.is_named && has_any(info, &[Verb::List]),
    };
    fits_scope && fits_form(info, request)
}

fn fits_form(info: &ApiResource, request: &ResourceRequest<'_>) -> bool {
    if request.subresource.is_empty() {
        return !request.is_named
            || has_any(info, &[Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]);
    }
    let is_known = info
        .subresources
        .iter()
        .any(|subresource| subresource.name() == request.subresource);
    let ends_here = request.rest.is_empty() || request.subresource == Subresource::Proxy.name();
    is_known && ends_here && request.is_named && !request.is_old_watch
}

fn has_any(info: &ApiResource, verbs: &[Verb]) -> bool {
    verbs.iter().any(|verb| info.has_verb(verb.as_str()))
}

#[cfg(test)]
mod tests {
    use coracle_registry::strategy::{Text, VERBS_ALL};
    use http::Method;

    use super::*;
    use crate::{query::Query, request_info::RequestInfo};

    fn check(scope: Scope, verbs: &'static [&'static str], path: &str, expect: bool) {
        let subresources = vec![Subresource::Status, Subresource::Proxy].into();
        let things = ApiResource::new("example.org", "v1", "Thing", "things");
        let info = ApiResource {
            scope,
            verbs: verbs.iter().copied().map(Text::Borrowed).collect(),
            subresources,
            ..things
        };
        let path = format!("/apis/example.org/v1/{path}");
        let query = Query::parse("fieldSelector=metadata.name%3Dx");
        let RequestInfo::Resource(request) = RequestInfo::parse(&Method::GET, &path, &query) else {
            panic!("{path}")
        };
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
        check(
            Scope::Namespaced,
            &["create"],
            "namespaces/n/things/x",
            false,
        );
    }
}
