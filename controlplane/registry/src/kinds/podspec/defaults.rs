//! The defaults of pod specs.
//!
//! A Pod gets more of them than a template ([`pod`] against [`template`]): what is only filled in
//! on the Pod can change in a later version without touching every Deployment.
//!
//! Source: `pkg/apis/core/v1/defaults.go` and `zz_generated.defaults.go` at v1.37.

use coracle_api::scheduling::pod_requests_of_json;
use serde_json::{Value, json};

use super::volume_defaults::volume;
use crate::{fill, value::string};

/// The three lists of containers in a pod spec.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Fills in the spec of a Pod.
pub fn pod(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        fill::each(spec, list, requests_from_limits);
    }
    requests_of_the_pod(spec);
    fill::value(spec, "enableServiceLinks", true);
    if spec["hostNetwork"] == true {
        for list in ["initContainers", "containers"] {
            fill::each(spec, list, |container| {
                fill::each(container, "ports", |port| {
                    let number = port["containerPort"].as_i64().unwrap_or(0);
                    fill::number(port, "hostPort", number);
                });
            });
        }
    }
    pod_spec(spec);
}

/// Fills in a PodTemplateSpec.
pub fn template(template: &mut Value) {
    fill::object(template, "metadata");
    fill::object(template, "spec");
    fill::within(template, "spec", pod_spec);
}

fn pod_spec(spec: &mut Value) {
    fill::text(spec, "dnsPolicy", "ClusterFirst");
    fill::text(spec, "restartPolicy", "Always");
    fill::object(spec, "securityContext");
    fill::value(spec, "terminationGracePeriodSeconds", 30);
    fill::text(spec, "schedulerName", "default-scheduler");
    // The old name of the field is kept in step with the new one.
    let account = match string(&spec["serviceAccountName"]) {
        "" => string(&spec["serviceAccount"]),
        name => name,
    }
    .to_owned();
    if !account.is_empty() {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    for list in CONTAINER_LISTS {
        fill::each(spec, list, container);
    }
    fill::each(spec, "volumes", volume);
}

fn container(container: &mut Value) {
    let policy = if image_tag_is_latest(string(&container["image"])) {
        "Always"
    } else {
        "IfNotPresent"
    };
    fill::text(container, "imagePullPolicy", policy);
    fill::text(container, "terminationMessagePath", "/dev/termination-log");
    fill::text(container, "terminationMessagePolicy", "File");
    fill::object(container, "resources");
    fill::each(container, "ports", |port| {
        fill::text(port, "protocol", "TCP")
    });
    fill::each(container, "env", |env| {
        fill::within(env, "valueFrom", |from| {
            fill::within(from, "fieldRef", |field| {
                fill::text(field, "apiVersion", "v1")
            });
            fill::within(from, "fileKeyRef", |file| {
                fill::value(file, "optional", false)
            });
        });
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        fill::within(container, name, probe);
    }
    fill::within(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            fill::within(lifecycle, hook, |hook| {
                fill::within(hook, "httpGet", http_get)
            });
        }
    });
}

fn probe(probe: &mut Value) {
    fill::number(probe, "timeoutSeconds", 1);
    fill::number(probe, "periodSeconds", 10);
    fill::number(probe, "successThreshold", 1);
    fill::number(probe, "failureThreshold", 3);
    fill::within(probe, "httpGet", http_get);
    fill::within(probe, "grpc", |grpc| fill::value(grpc, "service", ""));
}

fn http_get(action: &mut Value) {
    fill::text(action, "path", "/");
    fill::text(action, "scheme", "HTTP");
}

/// A limit without a request is the request too.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
        return;
    };
    fill::object(&mut container["resources"], "requests");
    for (name, limit) in limits {
        fill::value(&mut container["resources"]["requests"], &name, limit);
    }
}

/// A pod that limits its containers together asks for what they ask for, and for the limit where
/// none of them asks.
fn requests_of_the_pod(spec: &mut Value) {
    let Some(limits) = spec["resources"]["limits"]
        .as_object()
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    let containers =
        json!({"initContainers": spec["initContainers"], "containers": spec["containers"]});
    let asked = pod_requests_of_json(&containers);
    for name in ["cpu", "memory"] {
        let amount = asked
            .get(name)
            .map(|amount| json!(amount.to_string()))
            .or_else(|| limits.get(name).cloned());
        if let Some(amount) = amount {
            fill::object(&mut spec["resources"], "requests");
            fill::value(&mut spec["resources"]["requests"], name, amount);
        }
    }
}

/// Whether an image reference means the tag `latest`, said or unsaid. A digest without a tag does
/// not.
#[must_use]
pub fn image_tag_is_latest(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_with_limits_of_its_own_asks_for_something() {
        let limits = json!({"cpu": "2", "memory": "1Gi"});
        let asks =
            json!([{"name": "a", "resources": {"requests": {"cpu": "300m"}}}, {"name": "b"}]);
        for (spec, expected) in [
            (
                json!({"resources": {"limits": limits}, "containers": [{"name": "a"}]}),
                limits.clone(),
            ),
            (
                json!({"resources": {"limits": limits}, "containers": asks}),
                json!({"cpu": "300m", "memory": "1Gi"}),
            ),
            (
                json!({"resources": {"limits": limits, "requests": {"cpu": "1"}}, "containers": asks}),
                json!({"cpu": "1", "memory": "1Gi"}),
            ),
            (json!({"resources": {}, "containers": asks}), Value::Null),
        ] {
            let mut filled = spec.clone();
            pod(&mut filled);
            assert_eq!(filled["resources"]["requests"], expected, "{spec}");
        }
    }
}
