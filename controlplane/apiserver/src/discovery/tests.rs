use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::tests::published;

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 6443);

fn parse(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

fn find<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|item| item[key] == value)
        .unwrap_or_else(|| panic!("no {key} {value} in {list}"))
}

#[test]
fn accept_header_chooses_the_form() {
    for (accept, expect) in [
        ("", Some(Form::Legacy)),
        ("*/*", Some(Form::Legacy)),
        ("application/json, */*", Some(Form::Legacy)),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Some(Form::AggregatedV2),
        ),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            Some(Form::AggregatedV2beta1),
        ),
        (
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
            Some(Form::Legacy),
        ),
        ("application/vnd.kubernetes.protobuf", None),
    ] {
        assert_eq!(negotiate(accept), expect, "{accept}");
    }
}

#[test]
fn aggregated_documents_say_their_content_type() {
    let document = apis(&published(), Form::AggregatedV2);
    assert_eq!(
        document.content_type,
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_eq!(parse(&document)["apiVersion"], "apidiscovery.k8s.io/v2");
    assert_eq!(
        parse(&apis(&published(), Form::AggregatedV2beta1))["apiVersion"],
        "apidiscovery.k8s.io/v2beta1"
    );
}

#[test]
fn aggregated_core_has_pods_with_eviction() {
    let core = parse(&api(&published(), Form::AggregatedV2, ADDRESS));
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    let version = &core["items"][0]["versions"][0];
    assert_eq!(version["version"], "v1");
    let pods = find(&version["resources"], "resource", "pods");
    assert_eq!(pods["scope"], "Namespaced");
    assert_eq!(pods["singularResource"], "pod");
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(pods["categories"], json!(["all"]));
    let eviction = find(&pods["subresources"], "subresource", "eviction");
    assert_eq!(
        eviction["responseKind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
    assert_eq!(eviction["verbs"], json!(["create"]));
}

#[test]
fn aggregated_groups_have_scale() {
    let groups = parse(&apis(&published(), Form::AggregatedV2));
    let apps = groups["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["metadata"]["name"] == "apps")
        .unwrap();
    let deployments = find(&apps["versions"][0]["resources"], "resource", "deployments");
    let scale = find(&deployments["subresources"], "subresource", "scale");
    assert_eq!(
        scale["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn legacy_documents_name_groups_and_versions() {
    let core = parse(&api(&published(), Form::Legacy, ADDRESS));
    assert_eq!(core["kind"], "APIVersions");
    assert_eq!(
        core["serverAddressByClientCIDRs"][0]["serverAddress"],
        "10.0.0.1:6443"
    );
    let groups = parse(&apis(&published(), Form::Legacy));
    let apps = find(&groups["groups"], "name", "apps");
    assert_eq!(
        apps["preferredVersion"],
        json!({"groupVersion": "apps/v1", "version": "v1"})
    );
    assert_eq!(
        parse(&group(&published(), "apps").unwrap())["kind"],
        "APIGroup"
    );
    assert!(group(&published(), "").is_none());
    assert!(group(&published(), "nosuch").is_none());
}

#[test]
fn legacy_resource_lists_have_subresources() {
    let list = parse(&resources(&published(), "", "v1").unwrap());
    assert_eq!(list["groupVersion"], "v1");
    let eviction = find(&list["resources"], "name", "pods/eviction");
    assert_eq!(
        (&eviction["group"], &eviction["version"], &eviction["kind"]),
        (&json!("policy"), &json!("v1"), &json!("Eviction"))
    );
    let token = find(&list["resources"], "name", "serviceaccounts/token");
    assert_eq!(token["kind"], "TokenRequest");
    assert_eq!(
        find(&list["resources"], "name", "nodes")["namespaced"],
        false
    );
    assert!(resources(&published(), "apps", "v9").is_none());
}

#[test]
fn every_kind_is_discovered_once() {
    let (mut count, published) = (0, published());
    for GroupVersion { group, version, .. } in &published.versions {
        let list = parse(&resources(&published, group, version).unwrap());
        count += list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| !r["name"].as_str().unwrap().contains('/'))
            .count();
    }
    assert_eq!(count, published.resources.len());
}
