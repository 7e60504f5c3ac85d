//! The downward API: fields of the pod and resources of its containers as text (pure).

use std::net::IpAddr;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};

use crate::{pod::PodExt, quantity};

/// What a node lends where a container has no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allocatable {
    pub(crate) cpu_millis: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_bytes: i64,
}

/// Where the values come from.
pub(crate) struct FieldInput<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) node_ip: IpAddr,
    pub(crate) pod_ips: &'a [IpAddr],
    pub(crate) allocatable: Allocatable,
}

/// A reference that leads nowhere.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FieldError {
    #[error("unsupported fieldPath: {path}")]
    Path { path: String },
    #[error("unsupported container resource: {resource}")]
    Resource { resource: String },
    #[error("container {name} not found")]
    Container { name: String },
}

/// The value of a `fieldPath`.
pub(crate) fn pod_field(path: &str, input: &FieldInput<'_>) -> Result<String, FieldError> {
    let pod = input.pod;
    let spec = pod.spec_or_default();
    if let Some((map, key)) = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"))
    {
        let map = match map {
            "metadata.labels" => pod.metadata.labels.as_ref(),
            "metadata.annotations" => pod.metadata.annotations.as_ref(),
            _ => {
                return Err(FieldError::Path {
                    path: path.to_owned(),
                });
            }
        };
        return Ok(map
            .and_then(|map| map.get(key))
            .cloned()
            .unwrap_or_default());
    }
    let join = |ips: &[IpAddr]| {
        ips.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let own: &[IpAddr] = if pod.host_network() {
        std::slice::from_ref(&input.node_ip)
    } else {
        input.pod_ips
    };
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().0,
        "metadata.labels" => format_map(pod.metadata.labels.as_ref()),
        "metadata.annotations" => format_map(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => input.node_ip.to_string(),
        "status.podIP" => own.first().map(ToString::to_string).unwrap_or_default(),
        "status.podIPs" => join(own),
        _ => {
            return Err(FieldError::Path {
                path: path.to_owned(),
            });
        }
    })
}

/// `key="escaped value"` lines, sorted.
fn format_map(map: Option<&std::collections::BTreeMap<String, String>>) -> String {
    map.into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The value of a `resourceFieldRef`, divided and rounded up.
pub(crate) fn resource_field(
    container: &str,
    resource: &str,
    divisor: Option<&Quantity>,
    input: &FieldInput<'_>,
) -> Result<String, FieldError> {
    let spec = input
        .pod
        .container(container)
        .ok_or_else(|| FieldError::Container {
            name: container.to_owned(),
        })?;
    let unsupported = || FieldError::Resource {
        resource: resource.to_owned(),
    };
    let (kind, name) = resource.split_once('.').ok_or_else(unsupported)?;
    let resources = spec.resources.as_ref();
    let limits = resources
        .and_then(|r| r.limits.as_ref())
        .and_then(|map| map.get(name));
    let requests = resources
        .and_then(|r| r.requests.as_ref())
        .and_then(|map| map.get(name));
    let quantity = match kind {
        "limits" => limits,
        "requests" => requests.or(limits),
        _ => return Err(unsupported()),
    };
    // As upstream: a limit of zero is none, and without one there is all that the node has.
    let nonzero = quantity
        .map(|q| q.0.as_str())
        .filter(|text| quantity::milli(text) != 0);
    let divisor_millis = divisor
        .map(|d| quantity::milli(&d.0))
        .filter(|&d| d > 0)
        .unwrap_or(1000);
    let is_limit = kind == "limits";
    let value = match name {
        "cpu" => {
            let millis = nonzero.map_or(
                if is_limit {
                    input.allocatable.cpu_millis
                } else {
                    0
                },
                quantity::milli,
            );
            divide_up(millis, divisor_millis)
        }
        "memory" | "ephemeral-storage" => {
            let all = if name == "memory" {
                input.allocatable.memory_bytes
            } else {
                input.allocatable.ephemeral_bytes
            };
            let bytes = nonzero.map_or(if is_limit { all } else { 0 }, quantity::value);
            divide_up(bytes, (divisor_millis / 1000).max(1))
        }
        _ if name.starts_with("hugepages-") => divide_up(
            nonzero.map_or(0, quantity::value),
            (divisor_millis / 1000).max(1),
        ),
        _ => return Err(unsupported()),
    };
    Ok(value.to_string())
}

fn divide_up(value: i64, by: i64) -> i64 {
    value / by + i64::from(value % by != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"b": "x\"y", "a": "1"}, "annotations": {"k": "v"}},
            "spec": {"nodeName": "n1", "serviceAccountName": "sa", "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}}]}
        }))
        .expect("pod")
    }

    fn check<T: std::fmt::Debug + PartialEq>(ask: impl Fn(&FieldInput<'_>) -> T, expected: &T) {
        let pod = pod();
        let ips = [
            "10.0.0.5".parse().expect("address"),
            "fd00::5".parse().expect("address"),
        ];
        let allocatable = Allocatable {
            cpu_millis: 2000,
            memory_bytes: 1 << 30,
            ephemeral_bytes: 1 << 40,
        };
        let input = FieldInput {
            pod: &pod,
            node_ip: "192.0.2.1".parse().expect("address"),
            pod_ips: &ips,
            allocatable,
        };
        assert_eq!(ask(&input), *expected);
    }

    #[test]
    fn fields_of_the_pod_are_found() {
        let cases = [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u-1"),
            ("metadata.labels['a']", "1"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['k']", "v"),
            ("metadata.labels", "a=\"1\"\nb=\"x\\\"y\""),
            ("spec.nodeName", "n1"),
            ("spec.serviceAccountName", "sa"),
            ("status.hostIP", "192.0.2.1"),
            ("status.podIP", "10.0.0.5"),
            ("status.podIPs", "10.0.0.5,fd00::5"),
        ];
        for (path, expected) in cases {
            check(|input| pod_field(path, input), &Ok(expected.to_owned()));
        }
        check(
            |input| pod_field("spec.x", input),
            &Err(FieldError::Path {
                path: "spec.x".to_owned(),
            }),
        );
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let cases = [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("1m"), "1500"),
            ("requests.cpu", Some("1m"), "1500"),
            ("limits.memory", Some("1Mi"), "1024"),
            ("requests.memory", Some("1Mi"), "64"),
            ("requests.memory", None, "67108864"),
            ("limits.ephemeral-storage", Some("1Gi"), "1024"),
        ];
        for (resource, divisor, expected) in cases {
            let divisor = divisor.map(|d: &str| Quantity(d.to_owned()));
            check(
                |input| resource_field("c", resource, divisor.as_ref(), input),
                &Ok(expected.to_owned()),
            );
        }
    }
}
