//! How long the walks along a schema take: `cargo run --release -p coracle-api --example
//! schema_bench`. Each figure is the best of several rounds, in microseconds a call.

use std::{hint::black_box, time::Instant};

use coracle_api::{
    decode::{ContentType, FieldValidation, decode, decode_along, decode_value},
    patch::apply::{self, Writer},
    resource::Gvk,
    schema::{Schema, Structural, table},
};
use serde_json::{Value, json};

const ROUNDS: usize = 30;
const CALLS: u32 = 500;

fn measured<T>(what: &str, mut call: impl FnMut() -> T) {
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        start.elapsed() / CALLS
    });
    let best = rounds.min().unwrap_or_default();
    let micros = best.as_secs_f64() * 1e6;
    #[allow(clippy::print_stdout, reason = "its one output")]
    {
        println!("{what:<44}{micros:>9.2} µs");
    }
}

fn container(name: &str) -> Value {
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": 5, "periodSeconds": 10, "timeoutSeconds": 1,
    });
    json!({
        "name": name, "image": "registry.example.org/team/app:1.27.3",
        "imagePullPolicy": "IfNotPresent", "args": ["--listen=:8080", "--log=json"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef":
            {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"},
            "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "livenessProbe": probe, "readinessProbe": probe,
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true},
    })
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-5d4f8c7b9-abcde", "namespace": "default",
            "labels": {"app": "web", "tier": "front", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"example.org/checksum": "0123456789abcdef"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": "web-5d4f8c7b9", "uid": "u", "controller": true}]},
        "spec": {
            "containers": [container("app"), container("sidecar")],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300}],
            "restartPolicy": "Always", "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        },
    })
}

/// A schema that describes of a pod what the pod above has.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let properties = map
                .iter()
                .map(|(name, value)| (name.clone(), schema_of(value)));
            json!({"type": "object", "properties": properties.collect::<serde_json::Map<_, _>>()})
        }
        Value::Array(list) => {
            let item = list.first().map_or(json!({"type": "string"}), schema_of);
            json!({"type": "array", "items": item})
        }
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "integer"}),
        _ => json!({"type": "string"}),
    }
}

fn main() {
    let pod = pod();
    let text = pod.to_string();
    let gvk = Gvk::new("", "v1", "Pod");
    let ty = table().by_gvk(&gvk).expect("a pod is built in");
    let custom = Gvk::new("example.org", "v1", "Widget");
    let mut widget = pod.clone();
    widget["apiVersion"] = "example.org/v1".into();
    widget["kind"] = "Widget".into();
    let widget_text = widget.to_string();
    let schema = Structural::read(&schema_of(&json!({"spec": pod["spec"]}))).expect("a schema");
    let (built_in, schema) = (Schema::BuiltIn(ty), Schema::Structural(schema));
    let strict = FieldValidation::Strict;
    let writer = Writer {
        manager: "bench",
        api_version: "v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
    };

    measured("Pod, JSON to object", || {
        decode(text.as_bytes(), ContentType::Json, &gvk, strict).expect("a pod")
    });
    measured("Pod, YAML to object", || {
        decode(text.as_bytes(), ContentType::Yaml, &gvk, strict).expect("a pod")
    });
    measured("Pod, value to object", || {
        decode_value(&pod, ty, strict).expect("a pod")
    });
    measured("Pod, server-side apply", || {
        apply::apply(&built_in, None, &pod, writer, false).expect("no conflict")
    });
    measured("custom object like it, JSON to object", || {
        decode_along(
            &schema,
            widget_text.as_bytes(),
            ContentType::Json,
            &custom,
            strict,
        )
        .expect("a widget")
    });
    measured("custom object like it, server-side apply", || {
        apply::apply(&schema, None, &widget, writer, false).expect("no conflict")
    });
}
