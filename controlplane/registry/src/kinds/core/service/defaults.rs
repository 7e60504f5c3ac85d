//! What a Service leaves out, and what an update of one carries over.
//!
//! Addresses and node ports are reserved elsewhere; here they are only kept in step with each
//! other.
//!
//! Source: `SetDefaults_Service` in `pkg/apis/core/v1/defaults.go`,
//! `pkg/registry/core/service/{strategy,storage}` at v1.37.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Value, json};

use super::load_balancer::needs_health_check;
use crate::{
    fill,
    value::{items, string},
};

const SESSION_SECS: i64 = 10800;

/// Fills in `spec`.
pub(super) fn spec(spec: &mut Value) {
    fill::text(spec, "sessionAffinity", "None");
    fill::text(spec, "type", "ClusterIP");
    match string(&spec["sessionAffinity"]) {
        "None" => remove(spec, "sessionAffinityConfig"),
        "ClientIP" => {
            fill::object(spec, "sessionAffinityConfig");
            fill::object(&mut spec["sessionAffinityConfig"], "clientIP");
            fill::value(
                &mut spec["sessionAffinityConfig"]["clientIP"],
                "timeoutSeconds",
                SESSION_SECS,
            );
        }
        _ => {}
    }
    fill::each(spec, "ports", |port| {
        fill::text(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if target.is_null() || *target == 0 || *target == "" {
            port["targetPort"] = port["port"].clone();
        }
    });
    if is_externally_accessible(spec) {
        fill::text(spec, "externalTrafficPolicy", "Cluster");
    }
    if string(&spec["type"]) != "ExternalName" {
        fill::value(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec["type"] == "LoadBalancer" {
        fill::value(spec, "allocateLoadBalancerNodePorts", true);
    }
    // The singular field makes the plural on its own.
    if !string(&spec["clusterIP"]).is_empty() && items(&spec["clusterIPs"]).is_empty() {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    families(spec);
}

/// Whether the Service may be reached from outside the cluster.
pub(super) fn is_externally_accessible(spec: &Value) -> bool {
    match string(&spec["type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !items(&spec["externalIPs"]).is_empty(),
        _ => false,
    }
}

/// Every Service with addresses says of which family they are. The cluster has IPv4; an address of
/// the other family is left for validation to refuse.
fn families(spec: &mut Value) {
    if spec["type"] == "ExternalName" {
        return;
    }
    let is_headless = spec["clusterIP"] == "None" || spec["clusterIPs"][0] == "None";
    if is_headless && crate::value::len(&spec["selector"]) == 0 {
        // Nobody but the owner of the endpoints knows.
        fill::value(spec, "ipFamilyPolicy", "RequireDualStack");
        if spec["ipFamilyPolicy"] != "SingleStack" {
            fill::value(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
        }
    }
    fill::value(spec, "ipFamilyPolicy", "SingleStack");
    let is_foreign = items(&spec["clusterIPs"])
        .iter()
        .any(|ip| string(ip).contains(':'));
    if items(&spec["ipFamilies"]).is_empty() && !is_foreign {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
}

/// Carries over to an update what was reserved for the stored Service, and drops what its new type
/// has no use for.
pub(super) fn update(new: &mut Value, old: &Value) {
    normalize_cluster_ips(new, old);
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        for field in ["clusterIP", "clusterIPs"] {
            if is_unset(&new[field]) && !is_unset(&old[field]) {
                new[field] = old[field].clone();
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        keep_node_ports(new, old);
    }
    if needs_health_check(old) && needs_health_check(new) && !old["healthCheckNodePort"].is_null() {
        fill::number(
            new,
            "healthCheckNodePort",
            old["healthCheckNodePort"].as_i64().unwrap_or(0),
        );
    }
    drop_type_dependent(new, old);
}

/// When one of `clusterIP` and `clusterIPs` changed and the other did not, the other follows.
fn normalize_cluster_ips(new: &mut Value, old: &Value) {
    let one_changed = string(&new["clusterIP"]) != string(&old["clusterIP"]);
    let many_changed = items(&new["clusterIPs"]) != items(&old["clusterIPs"]);
    let is_empty = string(&new["clusterIP"]).is_empty();
    if one_changed && !many_changed {
        if is_empty {
            remove(new, "clusterIPs");
        } else {
            new["clusterIPs"] = json!([new["clusterIP"]]);
        }
    } else if many_changed && !one_changed && items(&new["clusterIPs"]).is_empty() {
        remove(new, "clusterIP");
    }
}

fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(
        string(&spec["type"]),
        "ClusterIP" | "NodePort" | "LoadBalancer"
    )
}

/// Whether each of its ports has one of the nodes.
pub(crate) fn needs_node_ports(spec: &Value) -> bool {
    match string(&spec["type"]) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Whether its type is one that may have ports of the nodes.
fn has_node_ports(spec: &Value) -> bool {
    matches!(string(&spec["type"]), "NodePort" | "LoadBalancer")
}

fn keep_node_ports(new: &mut Value, old: &Value) {
    // What the client asks for explicitly is not given out a second time.
    let asked: HashSet<_> = items(&new["ports"])
        .iter()
        .map(|port| port["nodePort"].clone())
        .collect();
    let key = |port: &Value| ["port", "protocol"].map(|field| port[field].clone());
    let mut free: HashMap<_, VecDeque<&Value>> = HashMap::new();
    for port in items(&old["ports"]) {
        if !port["nodePort"].is_null() && !asked.contains(&port["nodePort"]) {
            free.entry(key(port))
                .or_default()
                .push_back(&port["nodePort"]);
        }
    }
    fill::each(new, "ports", |port| {
        if port["nodePort"].as_i64().unwrap_or(0) != 0 {
            return;
        }
        if let Some(kept) = free.get_mut(&key(port)).and_then(VecDeque::pop_front) {
            port["nodePort"] = kept.clone();
        }
    });
}

/// A field is only dropped if the client left it as it was: what it sets itself is judged by
/// validation.
fn drop_type_dependent(new: &mut Value, old: &Value) {
    let unchanged = |new: &Value, field: &str| new[field] == old[field];
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        let addresses = ["clusterIP", "clusterIPs"];
        if addresses.iter().all(|field| unchanged(new, field)) {
            addresses.iter().for_each(|field| remove(new, field));
        }
        for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if unchanged(new, field) {
                remove(new, field);
            }
        }
    }
    if has_node_ports(old) && !has_node_ports(new) {
        let node_ports = |spec: &Value| -> HashSet<i64> {
            let ports = items(&spec["ports"]).iter();
            ports
                .map(|port| port["nodePort"].as_i64().unwrap_or(0))
                .filter(|port| *port != 0)
                .collect()
        };
        // Ports may come and go, as long as no port of the nodes is new.
        if node_ports(old).is_superset(&node_ports(new)) {
            fill::each(new, "ports", |port| remove(port, "nodePort"));
        }
    }
    if is_externally_accessible(old)
        && !is_externally_accessible(new)
        && unchanged(new, "externalTrafficPolicy")
    {
        remove(new, "externalTrafficPolicy");
    }
    if old["type"] == "LoadBalancer" && new["type"] != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(new, field) {
                remove(new, field);
            }
        }
    }
    if needs_health_check(old) && !needs_health_check(new) && unchanged(new, "healthCheckNodePort")
    {
        remove(new, "healthCheckNodePort");
    }
    if old["type"] == "ExternalName"
        && new["type"] != "ExternalName"
        && unchanged(new, "externalName")
    {
        remove(new, "externalName");
    }
}

fn is_unset(value: &Value) -> bool {
    value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty)
}

fn remove(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}
