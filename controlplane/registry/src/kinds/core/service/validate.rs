//! Checks of Services.
//!
//! Source: `ValidateService`, `ValidateServiceUpdate` in `pkg/apis/core/validation/validation.go`
//! at v1.37.

use std::{collections::BTreeSet, net::IpAddr};

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::{defaults::is_externally_accessible, load_balancer};
use crate::{
    check,
    kinds::core::endpoints::endpoint_ip,
    value::{items, string},
};

const MAX_SESSION_SECS: i64 = 86400;
const CLUSTER_IPS: &str = "spec.clusterIPs";

pub(super) fn spec(errors: &mut FieldErrors, spec: &Value) {
    let kind = string(&spec["type"]);
    if items(&spec["ports"]).is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    by_type(errors, spec);
    ports(errors, spec);
    check::labels(errors, "spec.selector", &spec["selector"]);
    session_affinity(errors, spec);
    cluster_ips(errors, spec);
    for (index, ip) in items(&spec["externalIPs"]).iter().enumerate() {
        endpoint_ip(errors, &format!("spec.externalIPs[{index}]"), ip);
    }
    check::one_of(
        errors,
        "spec.type",
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    node_ports(errors, spec);
    duplicate_ports(errors, spec);
    traffic_policies(errors, spec);
}

fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"][0] == "None"
}

fn by_type(errors: &mut FieldErrors, spec: &Value) {
    let kind = string(&spec["type"]);
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let message = format!("may not be set to 'None' for {kind} services");
            errors.invalid("spec.clusterIPs[0]", &spec["clusterIPs"][0], message);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let value = &spec[field];
                if value.is_string() || !items(value).is_empty() {
                    errors.forbidden(
                        format!("spec.{field}"),
                        "may not be set for ExternalName services",
                    );
                }
            }
            let name = string(&spec["externalName"]);
            // A full name may end in a dot, which no subdomain may.
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.required("spec.externalName", "");
            } else {
                check::dns_subdomain(errors, "spec.externalName", &name.into());
            }
        }
        _ => {}
    }
}

fn ports(errors: &mut FieldErrors, spec: &Value) {
    let ports = items(&spec["ports"]);
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name_path = format!("{path}.name");
        let name = string(&port["name"]);
        if !name.is_empty() {
            check::dns_label(errors, &name_path, &port["name"]);
            if !names.insert(name) {
                errors.duplicate(&name_path, &port["name"]);
            }
        } else if ports.len() > 1 {
            errors.required(name_path, "");
        }
        check::port_number(
            errors,
            &format!("{path}.port"),
            &port["port"].as_i64().unwrap_or(0).into(),
        );
        check::one_of(
            errors,
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        check::port_number_or_name(errors, &format!("{path}.targetPort"), &port["targetPort"]);
        if port["appProtocol"].is_string() {
            check::qualified_name(errors, &format!("{path}.appProtocol"), &port["appProtocol"]);
        }
    }
}

fn session_affinity(errors: &mut FieldErrors, spec: &Value) {
    check::one_of(
        errors,
        "spec.sessionAffinity",
        &spec["sessionAffinity"],
        &["ClientIP", "None"],
    );
    let config = &spec["sessionAffinityConfig"];
    if spec["sessionAffinity"] == "ClientIP" {
        let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let seconds = &config["clientIP"]["timeoutSeconds"];
        match seconds.as_i64() {
            None => errors.required(path, "when session affinity type is ClientIP"),
            Some(1..=MAX_SESSION_SECS) => {}
            Some(_) => {
                errors.invalid(
                    path,
                    seconds,
                    format!("must be greater than 0 and less than {MAX_SESSION_SECS}"),
                );
            }
        }
    } else if config.is_object() && spec["sessionAffinity"] == "None" {
        errors.forbidden(
            "spec.sessionAffinityConfig",
            "must not be set when session affinity is None",
        );
    }
}

/// `clusterIP`, `clusterIPs` and the families, each and together.
fn cluster_ips(errors: &mut FieldErrors, spec: &Value) {
    // It has none of these: that is the business of `by_type`.
    if spec["type"] == "ExternalName" {
        return;
    }
    let families = items(&spec["ipFamilies"]);
    let mut seen = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        let path = format!("spec.ipFamilies[{index}]");
        check::optional_one_of(errors, &path, family, &["IPv4", "IPv6"]);
        if !seen.insert(string(family)) {
            errors.duplicate(path, family);
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    check::optional_one_of(
        errors,
        "spec.ipFamilyPolicy",
        &spec["ipFamilyPolicy"],
        &policies,
    );
    addresses(errors, spec, families);
}

/// `clusterIP` and `clusterIPs`.
fn addresses(errors: &mut FieldErrors, spec: &Value, families: &[Value]) {
    let (all, ips) = (&spec["clusterIPs"], items(&spec["clusterIPs"]));
    let one = string(&spec["clusterIP"]);
    if one.is_empty() && !ips.is_empty() {
        let message = "must be empty when `clusterIP` is not specified";
        errors.invalid(CLUSTER_IPS, all, message);
    } else if !one.is_empty() && !ips.is_empty() && ips[0] != one {
        errors.invalid(CLUSTER_IPS, all, "first value must match `clusterIP`");
    }
    let mut are_good = true;
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && ip == "None" {
            if ips.len() > 1 {
                errors.invalid(CLUSTER_IPS, all, "'None' must be the first and only value");
                are_good = false;
            }
        } else if string(ip).parse::<IpAddr>().is_err() {
            check::ip(errors, &format!("{CLUSTER_IPS}[{index}]"), ip);
            are_good = false;
        }
    }
    if ips.len() > 2 {
        errors.invalid(CLUSTER_IPS, all, "may only hold up to 2 values");
    }
    // What is said of a bad one would only be said again.
    if !are_good {
        return;
    }
    let of_ipv6 = ips.iter().filter(|ip| string(ip).contains(':')).count();
    if ips.len() > 1 && (of_ipv6 == 0 || of_ipv6 == ips.len()) {
        let message = "may specify no more than one IP for each IP family";
        errors.invalid(CLUSTER_IPS, all, message);
    }
    if ips.first().is_some_and(|ip| ip != "None") {
        families_of_ips(errors, ips, families);
    }
}

/// What a cluster of one family, IPv4, cannot give.
///
/// Source: `initIPFamilyFields` in `pkg/registry/core/service/storage/alloc.go` at v1.37.
pub(super) fn configured_families(errors: &mut FieldErrors, spec: &Value) {
    if spec["type"] == "ExternalName" {
        return;
    }
    let (policy, ips, families) = (
        &spec["ipFamilyPolicy"],
        items(&spec["clusterIPs"]),
        items(&spec["ipFamilies"]),
    );
    if policy == "SingleStack" {
        for (what, count) in [("cluster IPs", ips.len()), ("IP families", families.len())] {
            if count == 2 {
                let message = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid("spec.ipFamilyPolicy", policy, message);
            }
        }
    }
    for (index, _) in ips
        .iter()
        .enumerate()
        .skip(families.len())
        .filter(|(_, ip)| string(ip).contains(':'))
    {
        let path = format!("spec.clusterIPs[{index}]");
        errors.invalid(
            path,
            &spec["clusterIPs"],
            "IPv6 is not configured on this cluster",
        );
    }
    let is_headless = spec["clusterIP"] == "None" || is_headless(spec);
    if is_headless && crate::value::len(&spec["selector"]) == 0 {
        // Its addresses are its owner's.
        return;
    }
    if policy == "RequireDualStack" {
        errors.invalid(
            "spec.ipFamilyPolicy",
            policy,
            "this cluster is not configured for dual-stack services",
        );
    }
    for (index, family) in families
        .iter()
        .enumerate()
        .filter(|(_, family)| *family == "IPv6")
    {
        errors.invalid(
            format!("spec.ipFamilies[{index}]"),
            family,
            "not configured on this cluster",
        );
    }
}

fn families_of_ips(errors: &mut FieldErrors, ips: &[Value], families: &[Value]) {
    for (index, (ip, family)) in ips.iter().zip(families).enumerate() {
        let actual = if string(ip).contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        if family != actual {
            let message = format!(
                "expected an {} value as indicated by `ipFamilies[{index}]`",
                string(family)
            );
            errors.invalid(format!("spec.clusterIPs[{index}]"), ip, message);
        }
    }
}

fn node_ports(errors: &mut FieldErrors, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, port) in items(&spec["ports"]).iter().enumerate() {
        let node_port = port["nodePort"].as_i64().unwrap_or(0);
        if node_port == 0 {
            continue;
        }
        let path = format!("spec.ports[{index}].nodePort");
        if spec["type"] == "ClusterIP" {
            errors.forbidden(&path, "may not be used when `type` is 'ClusterIP'");
        }
        if !seen.insert((string(&port["protocol"]), node_port)) {
            errors.duplicate(path, &port["nodePort"]);
        }
    }
}

fn duplicate_ports(errors: &mut FieldErrors, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, port) in items(&spec["ports"]).iter().enumerate() {
        let (protocol, number) = (
            string(&port["protocol"]),
            port["port"].as_i64().unwrap_or(0),
        );
        if !seen.insert((protocol, number)) {
            errors.duplicate(
                format!("spec.ports[{index}]"),
                &json!({"port": number, "protocol": protocol}),
            );
        }
    }
}

fn traffic_policies(errors: &mut FieldErrors, spec: &Value) {
    let policies = ["Cluster", "Local"];
    let external = &spec["externalTrafficPolicy"];
    let is_set = !string(external).is_empty();
    if is_externally_accessible(spec) {
        check::one_of(errors, "spec.externalTrafficPolicy", external, &policies);
    } else if is_set {
        let message = "may only be set for externally-accessible services";
        errors.invalid("spec.externalTrafficPolicy", external, message);
    }
    load_balancer::health_port(errors, spec);
    let internal = &spec["internalTrafficPolicy"];
    if spec["type"] != "ExternalName" {
        check::one_of(errors, "spec.internalTrafficPolicy", internal, &policies);
    }
    load_balancer::fields(errors, spec);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    check::optional_one_of(
        errors,
        "spec.trafficDistribution",
        &spec["trafficDistribution"],
        &distributions,
    );
}

/// What an update may not change: the first address of a Service, its load balancer, the port of
/// its health.
pub(super) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    primary_address(errors, new, old);
    load_balancer::update(errors, new, old);
}

fn primary_address(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if new["type"] == "ExternalName" || old["type"] == "ExternalName" {
        return;
    }
    let (before, after) = (string(&old["clusterIPs"][0]), string(&new["clusterIPs"][0]));
    if before.is_empty() || before == after {
        return;
    }
    let message = if after.is_empty() {
        "primary clusterIP can not be unset"
    } else {
        "may not change once set"
    };
    errors.invalid("spec.clusterIPs[0]", &new["clusterIPs"], message);
}
