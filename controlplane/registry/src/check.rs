//! Checks that fields of many kinds share: required, one of a few, not negative, immutable, labels,
//! selectors.
//!
//! Each adds what it finds to the errors and goes on. Paths are as upstream writes them:
//! `spec.ports[0].name`.
//!
//! Source: `k8s.io/apimachinery/pkg/{api,apis/meta/v1}/validation` and `pkg/apis/core/validation`
//! at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::value::{items, number, string};

/// Text of a number that may not be negative.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// How much all annotations of an object may hold together.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Adds one error for each of `messages`.
pub fn invalid_all(
    errors: &mut FieldErrors,
    path: &str,
    value: &Value,
    messages: impl IntoIterator<Item = String>,
) {
    for message in messages {
        errors.invalid(path, value, message);
    }
}

/// A text that must not be empty. Says whether it is there.
pub fn required(errors: &mut FieldErrors, path: &str, value: &Value) -> bool {
    let there = !string(value).is_empty();
    if !there {
        errors.required(path, "");
    }
    there
}

/// A text that must be one of `allowed`; absent is an error of its own.
pub fn one_of(errors: &mut FieldErrors, path: &str, value: &Value, allowed: &[&str]) {
    if required(errors, path, value) {
        optional_one_of(errors, path, value, allowed);
    }
}

/// A text that must be one of `allowed` if it is there.
pub fn optional_one_of(errors: &mut FieldErrors, path: &str, value: &Value, allowed: &[&str]) {
    let text = string(value);
    if !text.is_empty() && !allowed.contains(&text) {
        errors.not_supported(path, value, allowed);
    }
}

/// A number that must not be negative, if it is there.
pub fn not_negative(errors: &mut FieldErrors, path: &str, value: &Value) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.invalid(path, value, NOT_NEGATIVE);
    }
}

/// One count of a status cannot be greater than another.
pub fn at_most(errors: &mut FieldErrors, status: &Value, field: &str, most: &str) {
    if number(&status[field]) > number(&status[most]) {
        let what = if most == "replicas" {
            "status.replicas"
        } else {
            most
        };
        errors.invalid(
            format!("status.{field}"),
            &status[field],
            format!("cannot be greater than {what}"),
        );
    }
}

/// A number between two others, if it is there.
pub fn in_range(errors: &mut FieldErrors, path: &str, value: &Value, min: i64, max: i64) {
    if let Some(message) = value
        .as_i64()
        .and_then(|number| name::in_range_error(number, min, max))
    {
        errors.invalid(path, value, message);
    }
}

/// A port number.
pub fn port_number(errors: &mut FieldErrors, path: &str, value: &Value) {
    if let Some(message) = name::port_number_error(value.as_i64().unwrap_or(0)) {
        errors.invalid(path, value, message);
    }
}

/// A port by number or by name.
pub fn port_number_or_name(errors: &mut FieldErrors, path: &str, value: &Value) {
    match value {
        Value::String(text) => invalid_all(errors, path, value, name::port_name_errors(text)),
        Value::Null => port_number(errors, path, &0.into()),
        _ => port_number(errors, path, value),
    }
}

/// A DNS label, such as a container's name.
pub fn dns_label(errors: &mut FieldErrors, path: &str, value: &Value) {
    invalid_all(errors, path, value, name::dns_label_errors(string(value)));
}

/// A DNS subdomain, such as most objects' names.
pub fn dns_subdomain(errors: &mut FieldErrors, path: &str, value: &Value) {
    invalid_all(
        errors,
        path,
        value,
        name::dns_subdomain_errors(string(value)),
    );
}

/// A label key or another name that may have a DNS prefix.
pub fn qualified_name(errors: &mut FieldErrors, path: &str, value: &Value) {
    invalid_all(
        errors,
        path,
        value,
        name::qualified_name_errors(string(value)),
    );
}

/// A finalizer: a qualified name with a domain, or one of the three that have none.
///
/// Source: `pkg/apis/core/validation/validation.go`, `validateKubeFinalizerName` at v1.37.
pub fn finalizer(errors: &mut FieldErrors, path: &str, value: &Value) {
    qualified_name(errors, path, value);
    let name = string(value);
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(
            path,
            value,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

/// A name below a domain, such as `acme.io/foo`.
pub fn domain_prefixed_path(errors: &mut FieldErrors, path: &str, value: &Value) {
    if !required(errors, path, value) {
        return;
    }
    match string(value).split_once('/') {
        Some((domain, name)) if !domain.is_empty() && !name.is_empty() => {
            dns_subdomain(errors, path, &domain.into())
        }
        _ => errors.invalid(
            path,
            value,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
}

/// A field that an update may not change.
pub fn immutable(errors: &mut FieldErrors, path: &str, new: &Value, old: &Value) {
    if new != old {
        errors.immutable(path, new);
    }
}

/// As [`immutable`], of two objects and the path of the field in them, such as `spec.selector`.
pub fn immutable_field(errors: &mut FieldErrors, path: &str, new: &Value, old: &Value) {
    let [new, old] = [new, old].map(|object| {
        let parts = path.split('.');
        parts.fold(object, |value, part| &value[part])
    });
    immutable(errors, path, new, old);
}

/// A map of labels.
pub fn labels(errors: &mut FieldErrors, path: &str, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        qualified_name(errors, path, &key.as_str().into());
        invalid_all(errors, path, value, name::label_value_errors(string(value)));
    }
}

/// A map of annotations.
pub fn annotations(errors: &mut FieldErrors, path: &str, annotations: &Value) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        // Keys may have capitals, other than those of labels.
        let messages = name::qualified_name_errors(&key.to_lowercase());
        invalid_all(errors, path, &key.as_str().into(), messages);
        bytes += key.len() + string(value).len();
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        errors.too_long(path, &Value::Null, ANNOTATIONS_MAX_BYTES);
    }
}

/// A LabelSelector.
pub fn label_selector(errors: &mut FieldErrors, path: &str, selector: &Value) {
    labels(
        errors,
        &format!("{path}.matchLabels"),
        &selector["matchLabels"],
    );
    for (index, requirement) in items(&selector["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = items(&requirement["values"]);
        selector_operator(errors, &path, requirement);
        qualified_name(errors, &format!("{path}.key"), &requirement["key"]);
        for (index, value) in values.iter().enumerate() {
            let messages = name::label_value_errors(string(value));
            invalid_all(errors, &format!("{path}.values[{index}]"), value, messages);
        }
    }
}

fn selector_operator(errors: &mut FieldErrors, path: &str, requirement: &Value) {
    let any = !items(&requirement["values"]).is_empty();
    match string(&requirement["operator"]) {
        "In" | "NotIn" if !any => {
            errors.required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if any => errors.forbidden(
            format!("{path}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.invalid(
            format!("{path}.operator"),
            &requirement["operator"],
            "not a valid selector operator",
        ),
    }
}

/// Whether a LabelSelector selects everything.
#[must_use]
pub fn selector_is_empty(selector: &Value) -> bool {
    super::value::len(&selector["matchLabels"]) + super::value::len(&selector["matchExpressions"])
        == 0
}

/// A path inside a volume: relative, and never upwards.
pub fn descending_path(errors: &mut FieldErrors, path: &str, value: &Value) {
    if string(value).starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    no_backsteps(errors, path, value);
}

/// A path without `..`.
pub fn no_backsteps(errors: &mut FieldErrors, path: &str, value: &Value) {
    if string(value).split('/').any(|part| part == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// An IP address, if it is there. One of IPv4 in the clothes of IPv6 is what some take for the one
/// and some for the other.
///
/// Source: `StrictIPCIDRValidation` of `k8s.io/apimachinery/pkg/util/validation/ip.go` at v1.37.
pub fn ip(errors: &mut FieldErrors, path: &str, value: &Value) {
    match string(value).parse::<std::net::IpAddr>() {
        Err(_) => errors.invalid(
            path,
            value,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        Ok(ip) if ip.to_canonical() != ip => {
            errors.invalid(path, value, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
    }
}

/// A range of addresses: the range, or an error.
pub fn cidr(errors: &mut FieldErrors, path: &str, value: &Value) -> Option<ipnet::IpNet> {
    let net = string(value).parse().ok();
    if net.is_none() {
        errors.invalid(
            path,
            value,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }
    net
}

/// A range of addresses that all software reads in the same way; also one that is refused, if it
/// can be read at all.
///
/// Source: `StrictIPCIDRValidation`, `parseCIDR` of
/// `k8s.io/apimachinery/pkg/util/validation/ip.go` at v1.37.
pub fn strict_cidr(errors: &mut FieldErrors, path: &str, value: &Value) -> Option<ipnet::IpNet> {
    let text = string(value);
    let plain = without_leading_zeros(text);
    let Ok(net) = plain.parse::<ipnet::IpNet>() else {
        return cidr(errors, path, value);
    };
    let address = net.addr();
    if plain != text {
        let message = "must not have leading 0s in IP or prefix length";
        errors.invalid(path, value, message);
    } else if address.to_canonical() != address {
        let message = "must not have an IPv4-mapped IPv6 address";
        errors.invalid(path, value, message);
    } else if address != net.network() {
        let message = "must not have bits set beyond the prefix length";
        errors.invalid(path, value, message);
    }
    Some(net)
}

/// A range with its decimal numbers as they are usually written: there is software to which `010`
/// is eight.
fn without_leading_zeros(cidr: &str) -> String {
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let Some((address, prefix)) = cidr.split_once('/') else {
        return cidr.to_owned();
    };
    let address = match address.contains(':') {
        true => address.to_owned(),
        false => address.split('.').map(plain).collect::<Vec<_>>().join("."),
    };
    format!("{address}/{}", plain(prefix))
}

/// Why no traffic can be sent to an address, if so: unspecified, loopback, link-local.
#[must_use]
pub fn special_ip_error(ip: std::net::IpAddr) -> Option<String> {
    use std::net::IpAddr;
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let is_link_local_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] == 0xff02,
    };
    if ip.is_unspecified() {
        Some(format!("may not be unspecified ({ip})"))
    } else if ip.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned())
    } else if is_link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned())
    } else if is_link_local_multicast {
        Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned())
    } else {
        None
    }
}

/// A number that must not be negative, or a percentage.
pub fn count_or_percent(errors: &mut FieldErrors, path: &str, value: &Value) {
    match value {
        Value::String(text) => invalid_all(errors, path, value, name::percent_errors(text)),
        _ => not_negative(errors, path, value),
    }
}

/// A percentage of at most 100.
pub fn at_most_100_percent(errors: &mut FieldErrors, path: &str, value: &Value) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}

/// `25` of `25%`.
#[must_use]
pub fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// The number of a count or a percentage, whichever it is.
#[must_use]
pub fn count_or_percent_number(value: &Value) -> i64 {
    percent(value).or_else(|| value.as_i64()).unwrap_or(0)
}
