use std::{collections::BTreeSet, path::PathBuf};

use super::*;
use crate::tests::published;

fn parse(name: &str) -> Value {
    let published = published();
    let document = of_version(&published, name).unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_slice(&document.whole()).unwrap()
}

#[test]
fn the_index_names_every_document_with_a_hash() {
    let published = published();
    let index: Value = serde_json::from_slice(&index(&published)).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    assert!(url.starts_with("/openapi/v3/apis/apps/v1?hash="), "{url}");
    for GroupVersion { group, version, .. } in &published.versions {
        let name = document_name(group, version);
        let tag = &of_version(&published, &name).unwrap().tag;
        let url = index["paths"][&name]["serverRelativeURL"].as_str().unwrap();
        assert!(
            url.ends_with(&format!("?hash={}", tag.trim_matches('"'))),
            "{name}: {url} {tag}"
        );
    }
    for absent in ["apis/nosuch/v1", "nosuch", ""] {
        assert!(of_version(&published, absent).is_none(), "{absent}");
    }
}

#[test]
fn patch_says_what_kubectl_looks_for() {
    let document = parse("apis/apps/v1");
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<_> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
}

#[test]
fn operations_are_described_as_upstream_describes_them() {
    let (apps, core) = (parse("apis/apps/v1"), parse("api/v1"));
    let deployments = "/apis/apps/v1/namespaces/{namespace}/deployments";
    let one = format!("{deployments}/{{name}}");
    let (status, scale) = (format!("{one}/status"), format!("{one}/scale"));
    for (document, path, method, expect) in [
        (
            &apps,
            deployments,
            "get",
            "list or watch objects of kind Deployment",
        ),
        (&apps, deployments, "post", "create a Deployment"),
        (
            &apps,
            deployments,
            "delete",
            "delete collection of Deployment",
        ),
        (&apps, one.as_str(), "get", "read the specified Deployment"),
        (
            &apps,
            status.as_str(),
            "put",
            "replace status of the specified Deployment",
        ),
        (
            &apps,
            scale.as_str(),
            "patch",
            "partially update scale of the specified Deployment",
        ),
        (
            &core,
            "/api/v1/namespaces/{namespace}/events",
            "post",
            "create an Event",
        ),
        (
            &core,
            "/api/v1/namespaces/{namespace}/endpoints/{name}",
            "delete",
            "delete Endpoints",
        ),
        (
            &core,
            "/api/v1/namespaces/{namespace}/pods/{name}/exec",
            "get",
            "connect GET requests to exec of Pod",
        ),
        (
            &core,
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            "post",
            "create eviction of a Pod",
        ),
    ] {
        assert_eq!(
            document["paths"][path][method]["description"], expect,
            "{path}"
        );
    }
}

#[test]
fn schemas_carry_kinds_and_merge_keys() {
    let document = parse("apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert!(schemas["io.k8s.api.autoscaling.v1.Scale"].is_object());
}

#[test]
fn metrics_are_explained() {
    let document = parse("apis/metrics.k8s.io/v1beta1");
    let read = &document["paths"]["/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}"]
        ["get"];
    let name = "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics";
    let schema = &read["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(schema, &json!({"$ref": format!("{REF_PREFIX}{name}")}));
    let pod = &document["components"]["schemas"][name];
    assert_eq!(
        pod["required"],
        json!(["timestamp", "window", "containers"])
    );
    assert_eq!(
        pod["x-kubernetes-group-version-kind"][0]["kind"],
        "PodMetrics"
    );
}

#[test]
fn what_is_only_read_is_explained_and_has_no_operation_that_writes() {
    let document = parse("apis/net.coracle.dev/v1");
    let own = "/apis/net.coracle.dev/v1/namespaces/{namespace}/podpeers";
    let all = document["paths"].as_object().unwrap();
    let found: Vec<_> = all.keys().map(String::as_str).collect();
    assert_eq!(
        found,
        [
            own,
            &format!("{own}/{{name}}"),
            "/apis/net.coracle.dev/v1/podpeers"
        ]
    );
    let methods = all
        .values()
        .flat_map(|path| path.as_object().unwrap().keys());
    let methods: BTreeSet<_> = methods.filter(|method| *method != "parameters").collect();
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), ["get"]);
    let schema = &document["components"]["schemas"]["dev.coracle.net.v1.PodPeer"];
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{"group": "net.coracle.dev", "version": "v1", "kind": "PodPeer"}])
    );
    let members: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        ["apiVersion", "kind", "metadata", "spec", "status"]
    );
}

#[test]
fn every_reference_has_its_schema() {
    let published = published();
    for of in &published.versions {
        let GroupVersion { group, version, .. } = of;
        let text = String::from_utf8(document(&published, of).whole()).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let schemas = value["components"]["schemas"].as_object().unwrap();
        for part in text.split(REF_PREFIX).skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{group}/{version} lacks {name}");
        }
    }
}

/// Kubernetes' own list of operations, or nothing (said aloud) where it is absent.
fn golden_operations() -> Vec<Value> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let dir = std::env::var_os("CORACLE_GOLDEN").map_or(default, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(dir.join("openapi-structure.json")) else {
        eprintln!("skipped: no golden data");
        return Vec::new();
    };
    let document: Value = serde_json::from_str(&text).unwrap();
    document["operations"].as_array().unwrap().clone()
}

fn our_operations() -> BTreeSet<[String; 4]> {
    let (mut all, published) = (BTreeSet::new(), published());
    for of in &published.versions {
        let document: Value = serde_json::from_slice(&document(&published, of).whole()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item
                .as_object()
                .unwrap()
                .iter()
                .filter(|(method, _)| *method != "parameters")
            {
                let action = operation["x-kubernetes-action"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                let kind = operation["x-kubernetes-group-version-kind"]["kind"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                all.insert([path.clone(), method.clone(), action, kind]);
            }
        }
    }
    all
}

/// The groups of this server's own.
const OWN: [&str; 2] = ["/apis/net.coracle.dev/", "/apis/scheduling.coracle.dev/"];

/// Kinds that are younger than the golden list of operations.
const YOUNGER: [&str; 4] = [
    "/apis/metrics.k8s.io/v1beta1/",
    "/apis/certificates.k8s.io/v1/clustertrustbundles",
    "/apis/certificates.k8s.io/v1/namespaces/{namespace}/podcertificaterequests",
    "/apis/resource.k8s.io/v1/devicetaintrules",
];
const YOUNGER_EVERYWHERE: &str = "/apis/certificates.k8s.io/v1/podcertificaterequests";

/// Paths of served versions that no route is for.
const NOT_SERVED: [&str; 8] = [
    "/api/v1/componentstatuses",
    "/api/v1/componentstatuses/{name}",
    "/api/v1/namespaces/{namespace}/bindings",
    "/api/v1/namespaces/{namespace}/pods/{name}/ephemeralcontainers",
    "/api/v1/namespaces/{namespace}/pods/{name}/resize",
    "/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}",
    "/api/v1/namespaces/{namespace}/services/{name}/proxy/{path}",
    "/api/v1/nodes/{name}/proxy/{path}",
];

#[test]
fn every_path_of_a_served_version_is_served() {
    let golden = golden_operations();
    let ours: BTreeSet<_> = our_operations()
        .into_iter()
        .map(|[path, ..]| path)
        .collect();
    let published = published();
    let served = |path: &str| {
        published
            .versions
            .iter()
            .any(|GroupVersion { group, version, .. }| {
                let root = if group.is_empty() {
                    "/api/v1/".to_owned()
                } else {
                    format!("/apis/{group}/{version}/")
                };
                path.starts_with(&root)
                    && path != root
                    && !path.starts_with(&format!("{root}watch/"))
            })
    };
    // Reviews are served, but have no kind in the registry.
    let is_review = |path: &str| {
        path.contains("/authentication.k8s.io/") || path.contains("/authorization.k8s.io/")
    };
    let paths: BTreeSet<_> = golden
        .iter()
        .map(|op| op["path"].as_str().unwrap_or_default())
        .collect();
    let wanted: Vec<_> = paths
        .into_iter()
        .filter(|path| served(path) && !is_review(path))
        .collect();
    let missing: Vec<_> = wanted
        .iter()
        .filter(|path| !ours.contains(**path) && !NOT_SERVED.contains(*path))
        .collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
    eprintln!("{} paths of served versions compared", wanted.len());
}

#[test]
fn operations_are_kubernetes_own() {
    let golden = golden_operations();
    if golden.is_empty() {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known: BTreeSet<[String; 4]> = golden
        .iter()
        .map(|op| {
            [
                text(&op["path"]),
                text(&op["method"]),
                text(&op["action"]),
                text(&op["gvk"]["kind"]),
            ]
        })
        .collect();
    let ours = our_operations();
    let is_younger = |path: &str| {
        YOUNGER.iter().any(|young| path.starts_with(young)) || path == YOUNGER_EVERYWHERE
    };
    let is_own = |path: &str| OWN.iter().any(|own| path.starts_with(own));
    let wrong: Vec<_> = ours
        .difference(&known)
        .filter(|op| !is_younger(&op[0]) && !is_own(&op[0]))
        .collect();
    assert!(wrong.is_empty(), "not in Kubernetes: {wrong:#?}");
    // Every operation of a path that is served, but for the old watch paths and the proxies' rarer
    // methods.
    let paths: BTreeSet<_> = ours.iter().map(|op| &op[0]).collect();
    let missing: Vec<_> = known
        .difference(&ours)
        .filter(|op| paths.contains(&op[0]) && op[2] != "connect")
        .collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
    eprintln!("{} operations compared", ours.len());
}
