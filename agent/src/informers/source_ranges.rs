//! Who may come in at the addresses of a load balancer. Pure.
//!
//! For kube-proxy the field counts alone, and whoever is the load balancer reads the annotation.
//! Here the proxy is both.
//!
//! Source: `GetLoadBalancerSourceRanges` in
//! `staging/src/k8s.io/cloud-provider/service/helpers/helper.go` at v1.37.

use coracle_api::load_balancer::SOURCE_RANGES;
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::Service;

/// The field's, or, where it names none, the annotation's. `None`: everybody.
///
/// A list that names nobody of this address family lets nobody in, and so does one that cannot be
/// read: it was written to keep others out.
pub(super) fn of(service: &Service) -> Option<Vec<IpNet>> {
    let spec = service.spec.as_ref();
    let listed = spec.and_then(|spec| spec.load_balancer_source_ranges.as_deref());
    let listed = listed.unwrap_or_default();
    if !listed.is_empty() {
        return Some(parse(listed.iter().map(String::as_str)));
    }
    let annotations = service.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(SOURCE_RANGES))?.trim();
    (!text.is_empty()).then(|| parse(text.split(',')))
}

fn parse<'a>(ranges: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    let parsed: Result<Vec<IpNet>, _> = ranges.map(|range| range.trim().parse()).collect();
    let of_family = |range: IpNet| match range {
        IpNet::V4(range) => Some(IpNet::from(Ipv4Net::trunc(&range))),
        IpNet::V6(_) => None,
    };
    let parsed = parsed.unwrap_or_default().into_iter();
    let mut ranges: Vec<IpNet> = parsed.filter_map(of_family).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(field: Value, annotation: Option<&str>, expect: Option<&[&str]>) {
        let mut service = json!({"metadata": {}, "spec": {"loadBalancerSourceRanges": field}});
        if let Some(text) = annotation {
            service["metadata"]["annotations"] = json!({SOURCE_RANGES: text});
        }
        let ranges = of(&serde_json::from_value(service).unwrap());
        let said = ranges.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expect = expect.map(|all| all.iter().map(|&one| one.to_owned()).collect());
        assert_eq!(said, expect, "{field} {annotation:?}");
    }

    #[test]
    fn the_annotation_counts_where_the_field_names_nobody() {
        check(Value::Null, None, None);
        for empty in [Value::Null, json!([])] {
            let listed = Some(" 10.0.0.9/8,192.0.2.0/24 ");
            check(empty.clone(), listed, Some(&["10.0.0.0/8", "192.0.2.0/24"]));
            check(empty, Some("  "), None);
        }
        let field = json!(["198.51.100.0/24"]);
        check(field, Some("0.0.0.0/0"), Some(&["198.51.100.0/24"]));
        // Nobody of this family.
        check(Value::Null, Some("2001:db8::/32"), Some(&[]));
    }

    #[test]
    fn a_list_that_cannot_be_read_lets_nobody_in() {
        for wrong in ["0.0.0.0/0,all", "10.0.0.0/8,", "10.0.0.1"] {
            check(Value::Null, Some(wrong), Some(&[]));
        }
        check(json!(["0.0.0.0/0", "all"]), None, Some(&[]));
    }
}
