//! ServiceCIDR: a range that addresses of Services come from.
//!
//! Source: `pkg/registry/networking/servicecidr/strategy.go`, `pkg/apis/networking/validation` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of ServiceCIDRs.
pub struct ServiceCidr;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    scope: Scope::Cluster,
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "CIDRs",
        "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
    ),
    AGE,
];

impl BuiltIn for ServiceCidr {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ServiceCidr {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let cidrs = &object["spec"]["cidrs"];
        match value::len(cidrs) {
            0 => {
                errors.required("spec.cidrs", "at least one CIDR required");
                return errors;
            }
            count if count > 2 => {
                errors.invalid("spec", &object["spec"], "may only hold up to 2 values");
                return errors;
            }
            _ => {}
        }
        let mut families = Vec::new();
        for (index, cidr) in items(cidrs).iter().enumerate() {
            let path = format!("spec.cidrs[{index}]");
            let Some(net) = check::cidr(&mut errors, &path, cidr) else {
                continue;
            };
            if net != net.trunc() {
                errors.invalid(
                    &path,
                    cidr,
                    "must not have bits set beyond the prefix length",
                );
            }
            families.push(net.addr().is_ipv4());
        }
        if families.len() == 2 && families[0] == families[1] {
            let message = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96";
            errors.invalid("spec", &object["spec"], message);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let (new, old) = (&new["spec"]["cidrs"], &old["spec"]["cidrs"]);
        // One family may be joined by the other.
        let is_joined = value::len(old) == 1 && value::len(new) == 2 && new[0] == old[0];
        if !is_joined {
            check::immutable(&mut errors, "spec.cidrs", new, old);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let cidrs = items(&object["spec"]["cidrs"])
            .iter()
            .map(string)
            .collect::<Vec<_>>()
            .join(",");
        vec![
            cells::name(object),
            cidrs.into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn ranges_are_checked() {
        let of = |cidrs: Value| json!({"metadata": {"name": "r"}, "spec": {"cidrs": cidrs}});
        for (cidrs, expect) in [
            (json!(["10.0.0.0/16", "2001:db8::/96"]), ""),
            (
                json!([]),
                "spec.cidrs: Required value: at least one CIDR required",
            ),
            (
                json!(["x"]),
                "spec.cidrs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (
                json!(["10.0.0.0/16", "10.1.0.0/16"]),
                "spec: Invalid value: {\"cidrs\":[\"10.0.0.0/16\",\"10.1.0.0/16\"]}: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96",
            ),
        ] {
            assert_eq!(create_errors(&ServiceCidr, of(cidrs)), expect);
        }
        let old = created(&ServiceCidr, of(json!(["10.0.0.0/16"])));
        assert_eq!(
            update_errors(
                &ServiceCidr,
                with(&old, "/spec/cidrs", json!(["10.0.0.0/16", "2001:db8::/96"])),
                &old
            ),
            ""
        );
        assert_eq!(
            update_errors(
                &ServiceCidr,
                with(&old, "/spec/cidrs", json!(["10.1.0.0/16"])),
                &old
            ),
            "spec.cidrs: Invalid value: [\"10.1.0.0/16\"]: field is immutable"
        );
        assert_eq!(
            json!(ServiceCidr.row(&old, 0)),
            json!(["r", "10.0.0.0/16", "<unknown>"])
        );
    }
}
