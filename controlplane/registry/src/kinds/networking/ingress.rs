//! Ingress: which requests from outside go to which Service.
//!
//! Source: `pkg/registry/networking/ingress/strategy.go`, `pkg/apis/networking/validation` at
//! v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of Ingresses.
pub struct Ingress;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Class",
        "The name of the IngressClass resource that should be used for additional configuration",
    ),
    text(
        "Hosts",
        "Hosts that incoming requests are matched against before the ingress rule",
    ),
    text(
        "Address",
        "Address is a list containing ingress points for the load-balancer",
    ),
    text("Ports", "Ports of TLS configurations that open"),
    AGE,
];

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// More hosts are only counted.
const SHOWN_HOSTS: usize = 3;

impl BuiltIn for Ingress {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for Ingress {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(object, "status");
        fill::object(&mut object["status"], "loadBalancer");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        serde_json::json!({"loadBalancer": {}})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let class = &object["metadata"]["annotations"][CLASS_ANNOTATION];
        if class.is_string() && object["spec"]["ingressClassName"].is_string() {
            let message = "can not be set when the class field is also set";
            errors.invalid(format!("annotations[{CLASS_ANNOTATION}]"), class, message);
        }
        errors.extend(check_spec(&object["spec"]));
        errors
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        check_spec(&new["spec"])
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for (index, point) in items(&new["status"]["loadBalancer"]["ingress"])
            .iter()
            .enumerate()
        {
            let path = format!("status.loadBalancer.ingress[{index}]");
            if !string(&point["ip"]).is_empty() {
                check::ip(&mut errors, &format!("{path}.ip"), &point["ip"]);
            }
            if !string(&point["hostname"]).is_empty() {
                check::dns_subdomain(&mut errors, &format!("{path}.hostname"), &point["hostname"]);
            }
        }
        errors
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        match object["metadata"]["annotations"][CLASS_ANNOTATION].as_str() {
            Some(_) => vec![format!(
                "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            )],
            None => Vec::new(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let points = items(&object["status"]["loadBalancer"]["ingress"]).iter();
        let mut points: Vec<_> = points
            .map(|point| value::string_or(&point["ip"], string(&point["hostname"])))
            .collect();
        points.retain(|point| !point.is_empty());
        points.sort_unstable();
        points.dedup();
        let ports = if items(&spec["tls"]).is_empty() {
            "80"
        } else {
            "80, 443"
        };
        vec![
            cells::name(object),
            value::string_or(&spec["ingressClassName"], NONE).into(),
            hosts(&spec["rules"]).into(),
            points.join(",").into(),
            ports.into(),
            cells::age(object, now_secs),
        ]
    }
}

fn hosts(rules: &Value) -> String {
    let rules = items(rules);
    let mut shown = Vec::new();
    let mut is_cut = false;
    // As upstream counts: rules, of which some may have no host.
    for rule in rules {
        is_cut |= shown.len() == SHOWN_HOSTS;
        let host = string(&rule["host"]);
        if !is_cut && !host.is_empty() {
            shown.push(host);
        }
    }
    match shown.join(",") {
        none if none.is_empty() => "*".to_owned(),
        list if is_cut => format!("{list} + {} more...", rules.len() - SHOWN_HOSTS),
        list => list,
    }
}

fn check_spec(spec: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let rules = items(&spec["rules"]);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        errors.invalid(
            "spec",
            &spec["rules"],
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if spec["defaultBackend"].is_object() {
        backend(&mut errors, "spec.defaultBackend", &spec["defaultBackend"]);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_rule(&mut errors, &format!("spec.rules[{index}]"), rule);
    }
    for (index, tls) in items(&spec["tls"]).iter().enumerate() {
        let path = format!("spec.tls[{index}]");
        for (host_index, host) in items(&tls["hosts"]).iter().enumerate() {
            host_name(&mut errors, &format!("{path}.hosts[{host_index}]"), host);
        }
        if !string(&tls["secretName"]).is_empty() {
            check::dns_subdomain(
                &mut errors,
                &format!("{path}.secretName"),
                &tls["secretName"],
            );
        }
    }
    if spec["ingressClassName"].is_string() {
        check::dns_subdomain(
            &mut errors,
            "spec.ingressClassName",
            &spec["ingressClassName"],
        );
    }
    errors
}

fn host_name(errors: &mut FieldErrors, path: &str, host: &Value) {
    let text = string(host);
    let messages = if text.contains('*') {
        name::wildcard_subdomain_errors(text)
    } else {
        name::dns_subdomain_errors(text)
    };
    check::invalid_all(errors, path, host, messages);
}

fn check_rule(errors: &mut FieldErrors, path: &str, rule: &Value) {
    let host = &rule["host"];
    if !string(host).is_empty() {
        let host_path = format!("{path}.host");
        if string(host).parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&host_path, host, "must be a DNS name, not an IP address");
        }
        host_name(errors, &host_path, host);
    }
    if rule["http"].is_null() {
        return;
    }
    let paths = items(&rule["http"]["paths"]);
    if paths.is_empty() {
        errors.required(format!("{path}.http.paths"), "");
    }
    for (index, one) in paths.iter().enumerate() {
        http_path(errors, &format!("{path}.http.paths[{index}]"), one);
    }
}

fn http_path(errors: &mut FieldErrors, path: &str, http: &Value) {
    let (text, text_path) = (string(&http["path"]), format!("{path}.path"));
    match string(&http["pathType"]) {
        "" => errors.required(format!("{path}.pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.invalid(&text_path, &text.into(), "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"]
                .iter()
                .filter(|part| text.contains(**part))
            {
                errors.invalid(
                    &text_path,
                    &text.into(),
                    format!("must not contain '{part}'"),
                );
            }
            for end in ["/..", "/."].iter().filter(|end| text.ends_with(**end)) {
                errors.invalid(&text_path, &text.into(), format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(&text_path, &text.into(), "must be an absolute path");
            }
        }
        _ => {
            let types = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(format!("{path}.pathType"), &http["pathType"], &types);
        }
    }
    backend(errors, &format!("{path}.backend"), &http["backend"]);
}

fn backend(errors: &mut FieldErrors, path: &str, backend: &Value) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_object(), resource.is_object()) {
        (true, true) => errors.invalid(
            path,
            &"".into(),
            "cannot set both resource and service backends",
        ),
        (false, false) => {
            errors.invalid(path, &"".into(), "resource or service backend is required")
        }
        (false, true) => {
            for field in ["kind", "name"] {
                check::required(
                    errors,
                    &format!("{path}.resource.{field}"),
                    &resource[field],
                );
            }
        }
        (true, false) => service_backend(errors, path, service),
    }
}

fn service_backend(errors: &mut FieldErrors, path: &str, service: &Value) {
    let name_path = format!("{path}.service.name");
    if check::required(errors, &name_path, &service["name"]) {
        let messages = name::dns_label_errors(string(&service["name"]));
        check::invalid_all(errors, &name_path, &service["name"], messages);
    }
    let (port_name, number) = (&service["port"]["name"], &service["port"]["number"]);
    let (has_name, has_number) = (!string(port_name).is_empty(), value::number(number) != 0);
    if has_name && has_number {
        errors.invalid(path, &"".into(), "cannot set both port name & port number");
    } else if has_name {
        let messages = name::port_name_errors(string(port_name));
        check::invalid_all(
            errors,
            &format!("{path}.service.port.name"),
            port_name,
            messages,
        );
    } else if has_number {
        check::port_number(errors, &format!("{path}.service.port.number"), number);
    } else {
        errors.required(path, "port name or number is required");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, with};

    fn ingress() -> Value {
        json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "a.example", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}})
    }

    #[test]
    fn ingresses_are_checked() {
        let path = "/spec/rules/0/http/paths/0";
        for (pointer, value, expect) in [
            ("/spec/ingressClassName", json!("nginx"), ""),
            ("/spec/rules/0/host", json!("*.example"), ""),
            (
                "/spec/rules",
                json!([]),
                "spec: Invalid value: []: either `defaultBackend` or `rules` must be specified",
            ),
            (
                "/spec/rules/0/host",
                json!("1.2.3.4"),
                "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            ),
            (
                "/spec/rules/0/http/paths/0/pathType",
                Value::Null,
                "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
            ),
            (
                "/spec/rules/0/http/paths/0/path",
                json!("x"),
                "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path",
            ),
            (
                "/spec/rules/0/http/paths/0/path",
                json!("/a//b"),
                "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
            ),
            (
                "/spec/rules/0/http/paths/0/backend",
                json!({}),
                "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
            ),
            (
                "/spec/rules/0/http/paths/0/backend/service/port",
                json!({}),
                "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            ),
        ] {
            let found = create_errors(&Ingress, with(&ingress(), pointer, value.clone()));
            assert_eq!(found, expect, "{pointer} = {value} ({path})");
        }
    }

    #[test]
    fn rows_show_hosts_and_addresses() {
        let mut object = created(&Ingress, ingress());
        object["status"]["loadBalancer"]["ingress"] = json!([{"ip": "1.2.3.4"}]);
        object["spec"]["tls"] = json!([{}]);
        assert_eq!(
            json!(Ingress.row(&object, 0)),
            json!([
                "i",
                "<none>",
                "a.example",
                "1.2.3.4",
                "80, 443",
                "<unknown>"
            ])
        );
        let many: Vec<_> = "abcde"
            .chars()
            .map(|host| json!({"host": host.to_string()}))
            .collect();
        assert_eq!(hosts(&json!(many)), "a,b,c + 2 more...");
    }
}
