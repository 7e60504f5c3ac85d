//! Which paths there are, and who gets what through one of the wrong form.

use std::collections::HashMap;

use coracle_auth::user::UserInfo;
use coracle_registry::{
    api_resource::ApiResource,
    strategy::{Scope, Subresource},
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::raw::{Raw, config_map};
use crate::{
    openapi,
    published::{GroupVersion, Published},
    testing,
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const NO_SUCH_PATH: &str = "the server could not find the requested resource";
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const SUBRESOURCES: [Subresource; 14] = [
    Subresource::Status,
    Subresource::Scale,
    Subresource::Binding,
    Subresource::Eviction,
    Subresource::Log,
    Subresource::Exec,
    Subresource::Attach,
    Subresource::Portforward,
    Subresource::Proxy,
    Subresource::EphemeralContainers,
    Subresource::Resize,
    Subresource::Finalize,
    Subresource::Token,
    Subresource::Approval,
];
/// Requests under way at once.
const AT_ONCE: usize = 32;

/// A path as the documents write it, and one that can be asked for.
struct Path {
    template: String,
    concrete: String,
}

impl Path {
    fn new(template: String) -> Self {
        let concrete = template
            .replace("{namespace}", "default")
            .replace("{name}", "nothing");
        Self { template, concrete }
    }
}

/// Every form that a path of the kind could have, right or wrong.
fn paths(info: &ApiResource) -> Vec<Path> {
    let root = match &*info.group {
        "" => format!("/api/{}", info.version),
        group => format!("/apis/{group}/{}", info.version),
    };
    let mut paths = Vec::new();
    for base in [
        format!("{root}/{}", info.plural),
        format!("{root}/namespaces/{{namespace}}/{}", info.plural),
    ] {
        let below = SUBRESOURCES
            .iter()
            .map(|subresource| format!("{base}/{{name}}/{}", subresource.name()));
        paths.extend(
            [base.clone(), format!("{base}/{{name}}")]
                .into_iter()
                .chain(below)
                .map(Path::new),
        );
    }
    paths
}

/// The published operations: by path, the methods in lower case.
fn operations(published: &Published) -> HashMap<String, Vec<String>> {
    let mut all = HashMap::new();
    for GroupVersion { group, version, .. } in &published.versions {
        let name = if group.is_empty() {
            format!("api/{version}")
        } else {
            format!("apis/{group}/{version}")
        };
        let document = openapi::of_version(published, &name).unwrap().whole();
        let document: Value = serde_json::from_slice(&document).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters")
                .cloned()
                .collect();
            all.insert(path.clone(), methods);
        }
    }
    all
}

/// What is wrong with an answer, if the documents show this method (or none) at the path.
fn deviation(
    methods: Option<&Vec<String>>,
    method: &str,
    code: u16,
    answer: &Value,
) -> Option<String> {
    let is_no_path = code == 404 && answer["message"] == NO_SUCH_PATH;
    let right = match methods {
        None => is_no_path,
        Some(methods) if methods.iter().any(|one| one.eq_ignore_ascii_case(method)) => {
            !is_no_path && code != 405
        }
        Some(_) => code == 405,
    };
    (!right).then(|| format!("{code} {}", answer["message"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_are_those_of_the_published_documents() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let built_in = super::published();
    let published = operations(&built_in);
    let mut asked = Vec::new();
    for shown in &built_in.resources {
        for path in paths(&shown.info) {
            // A proxy takes every method, and the documents show some.
            let methods = METHODS
                .iter()
                .filter(|method| !(path.template.ends_with("/proxy") && **method == "PATCH"));
            asked.extend(methods.map(|method| {
                (
                    *method,
                    path.template.clone(),
                    format!("{}?dryRun=All", path.concrete),
                )
            }));
        }
    }
    assert!(asked.len() > 5000, "{} requests", asked.len());
    let wrong: Vec<String> = futures::stream::iter(asked)
        .map(|(method, template, url)| {
            let (admin, published) = (admin.clone(), &published);
            async move {
                let kind = if method == "PATCH" {
                    "application/merge-patch+json"
                } else {
                    "application/json"
                };
                let (code, answer) = admin.send(method, &url, kind, "{}").await;
                let why = deviation(published.get(&template), method, code, &answer)?;
                Some(format!("{method} {template}: {why}"))
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(
        wrong.is_empty(),
        "{} answers differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn both_scopes_are_among_the_kinds() {
    for scope in [Scope::Cluster, Scope::Namespaced] {
        let published = super::published();
        let of_scope = published
            .resources
            .iter()
            .filter(|shown| shown.info.scope == scope);
        assert!(of_scope.count() > 10, "{scope:?}");
    }
}

/// `owner` may do everything in the namespace `foo` and nothing elsewhere.
async fn owner_of_foo() -> (Raw, Raw) {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    let foo = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foo"}});
    assert_eq!(admin.post("/api/v1/namespaces", foo).await.0, 201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "owner"}]});
    let (code, answer) = admin
        .post(&format!("{RBAC}/namespaces/foo/rolebindings"), binding)
        .await;
    assert_eq!(code, 201, "{answer}");
    (admin, Raw::of(&server, UserInfo::new("owner", &[])))
}

#[tokio::test]
async fn owner_of_a_namespace_reaches_nothing_of_the_cluster_through_it() {
    let (admin, owner) = owner_of_foo().await;
    assert_eq!(owner.get("/api/v1/namespaces/foo/secrets").await.0, 200);
    let grant = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "pwn"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "owner"}]});
    let (code, answer) = owner
        .post(&format!("{RBAC}/namespaces/foo/clusterrolebindings"), grant)
        .await;
    assert_eq!((code, &answer["message"]), (404, &json!(NO_SUCH_PATH)));
    assert_eq!(
        admin
            .get(&format!("{RBAC}/clusterrolebindings/pwn"))
            .await
            .0,
        404,
        "nothing was made"
    );
    for path in [
        "/api/v1/namespaces/foo/nodes",
        "/api/v1/namespaces/foo/persistentvolumes",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/foo/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/foo/clusterroles/cluster-admin",
        "/apis/metrics.k8s.io/v1beta1/namespaces/foo/nodes",
        "/api/v1/namespaces/foo/componentstatuses",
        "/api/v1/watch/namespaces/foo/nodes",
        "/api/v1/namespaces/foo/namespaces",
    ] {
        assert_eq!(owner.get(path).await.0, 404, "{path}");
    }
    let whoever = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/foo/subjectaccessreviews";
    assert_eq!(owner.post(path, whoever).await.0, 404);
}

#[tokio::test]
async fn nothing_is_made_at_the_path_of_a_namespace() {
    let (admin, owner) = owner_of_foo().await;
    let evil = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}});
    assert_eq!(
        owner.post("/api/v1/namespaces/foo", evil.clone()).await.0,
        405
    );
    assert_eq!(owner.post("/api/v1/namespaces", evil).await.0, 403);
    assert_eq!(admin.get("/api/v1/namespaces/evil").await.0, 404);
}

#[tokio::test]
async fn collections_of_all_namespaces_are_only_read() {
    let (admin, _) = owner_of_foo().await;
    admin
        .post("/api/v1/namespaces/foo/configmaps", config_map("kept"))
        .await;
    assert_eq!(admin.delete("/api/v1/configmaps", json!({})).await.0, 405);
    assert_eq!(
        admin
            .post("/api/v1/configmaps", config_map("nowhere"))
            .await
            .0,
        405
    );
    assert_eq!(
        admin.get("/api/v1/namespaces/foo/configmaps/kept").await.0,
        200
    );
    assert_eq!(admin.get("/api/v1/configmaps/kept").await.0, 404);
    for method in ["POST", "DELETE"] {
        let (code, _) = admin
            .send(
                method,
                "/api/v1/watch/namespaces/foo/configmaps",
                "application/json",
                "{}",
            )
            .await;
        assert_eq!(code, 405, "{method}");
    }
}
