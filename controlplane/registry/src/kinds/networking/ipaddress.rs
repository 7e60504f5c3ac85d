//! IPAddress: an address of a Service, and whose it is.
//!
//! Source: `pkg/registry/networking/ipaddress/strategy.go`, `pkg/apis/networking/validation` at
//! v1.37.

use std::net::IpAddr;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, NAME, NONE, text},
    check, fill,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::string,
};

/// The strategy of IPAddresses.
pub struct IpAddress;

static INFO: ResourceInfo = ResourceInfo {
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "ParentRef",
        "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.",
    ),
];

impl BuiltIn for IpAddress {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for IpAddress {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let parent = &object["spec"]["parentRef"];
        if !parent.is_object() {
            errors.required("spec.parentRef", "");
            return errors;
        }
        if !string(&parent["group"]).is_empty() {
            check::dns_subdomain(&mut errors, "spec.parentRef.group", &parent["group"]);
        }
        for field in ["resource", "name"] {
            check::required(
                &mut errors,
                &format!("spec.parentRef.{field}"),
                &parent[field],
            );
        }
        for field in ["resource", "name", "namespace"] {
            let messages = coracle_api::name::path_segment_errors(string(&parent[field]));
            if !string(&parent[field]).is_empty() {
                check::invalid_all(
                    &mut errors,
                    &format!("spec.parentRef.{field}"),
                    &parent[field],
                    messages,
                );
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (&new["spec"]["parentRef"], &old["spec"]["parentRef"]);
        check::immutable(&mut errors, "spec.parentRef", new, old);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        match name.parse::<IpAddr>() {
            Ok(ip) if ip.to_string() == name => None,
            Ok(ip) => Some(format!("must be in canonical form (\"{ip}\")")),
            Err(_) => {
                Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned())
            }
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        let parent = &object["spec"]["parentRef"];
        let shown = if parent.is_object() {
            let mut shown = string(&parent["resource"]).to_lowercase();
            for (separator, field) in [('.', "group"), ('/', "namespace"), ('/', "name")] {
                if !string(&parent[field]).is_empty() {
                    shown.push(separator);
                    shown.push_str(string(&parent[field]));
                }
            }
            shown
        } else {
            NONE.to_owned()
        };
        vec![cells::name(object), shown.into()]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn addresses_are_checked() {
        let address = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {
            "resource": "services", "namespace": "default", "name": "kubernetes"}}});
        assert_eq!(create_errors(&IpAddress, address.clone()), "");
        assert_eq!(
            create_errors(&IpAddress, json!({})),
            "spec.parentRef: Required value"
        );
        assert_eq!(
            create_errors(
                &IpAddress,
                with(&address, "/spec/parentRef/name", json!(""))
            ),
            "spec.parentRef.name: Required value"
        );
        let old = created(&IpAddress, address);
        assert!(
            update_errors(
                &IpAddress,
                with(&old, "/spec/parentRef/name", json!("x")),
                &old
            )
            .ends_with("field is immutable")
        );
        assert_eq!(
            json!(IpAddress.row(&old, 0)),
            json!(["10.0.0.1", "services/default/kubernetes"])
        );
        assert_eq!(IpAddress.name_error("2001:db8::1"), None);
        assert!(IpAddress.name_error("2001:DB8::1").is_some());
        assert!(IpAddress.name_error("a").is_some());
    }
}
