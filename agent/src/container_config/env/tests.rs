use coracle_netfilter::service::Protocol;
use serde_json::{Value, json};

use super::*;

fn service(namespace: &str, name: &str, ports: &[(&str, u16, &str)]) -> ServiceEntry {
    let ports = ports.iter().map(|&(name, port, protocol)| Port {
        name: name.to_owned(),
        port,
        protocol: Protocol::parse(Some(protocol)).expect("known"),
        node_port: None,
    });
    ServiceEntry {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        cluster_ip: "10.96.0.1".to_owned(),
        ports: ports.collect(),
    }
}

fn made(
    spec: Value,
    container: Value,
    services: &[ServiceEntry],
) -> Result<Vec<(String, String)>, EnvError> {
    let mut spec = spec;
    spec["containers"] = json!([container]);
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}),
    )
    .expect("pod");
    let map: ConfigMap =
        serde_json::from_value(json!({"data": {"a": "1", "b": "2"}})).expect("map");
    let secret: Secret =
        serde_json::from_value(json!({"data": {"s": "c2VjcmV0"}})).expect("secret");
    let fields = fields::FieldInput {
        pod: &pod,
        node_ip: "192.0.2.1".parse().expect("address"),
        pod_ips: &["10.0.0.2".parse().expect("address")],
        allocatable: fields::Allocatable::default(),
    };
    let input = EnvInput {
        pod: &pod,
        fields: &fields,
        config_maps: &HashMap::from([("cm".to_owned(), Arc::new(map))]),
        secrets: &HashMap::from([("sec".to_owned(), Arc::new(secret))]),
        files: &HashMap::from([(
            ("v".to_owned(), "f".to_owned(), "K".to_owned()),
            "filed".to_owned(),
        )]),
        services,
    };
    make(&pod.containers()[0], &input)
}

fn check(container: Value, expected: &[(&str, &str)]) {
    let got = made(json!({}), container.clone(), &[]).expect("environment");
    let expected: Vec<(String, String)> = expected
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(got, expected, "{container}");
}

#[test]
fn later_values_refer_to_earlier_ones() {
    check(
        json!({"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)"}, {"name": "C", "value": "$(B)"}, {"name": "A", "value": "2"}]}),
        &[("A", "2"), ("B", "1-$(C)"), ("C", "1-$(C)")],
    );
}

#[test]
fn sources_are_looked_up() {
    check(
        json!({"name": "c",
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "sec"}}, {"configMapRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "s"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "none", "optional": true}}},
                {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
        &[
            ("P_a", "1"),
            ("P_b", "2"),
            ("s", "secret"),
            ("K", "1"),
            ("S", "secret"),
            ("F", "10.0.0.2"),
        ],
    );
}

#[test]
fn missing_sources_are_named() {
    let cases = [
        (
            json!({"configMapKeyRef": {"name": "none", "key": "a"}}),
            "configmap \"none\" not found",
        ),
        (
            json!({"configMapKeyRef": {"name": "cm", "key": "z"}}),
            "couldn't find key z in ConfigMap ns/cm",
        ),
        (
            json!({"secretKeyRef": {"name": "none", "key": "a"}}),
            "secret \"none\" not found",
        ),
        (
            json!({"secretKeyRef": {"name": "sec", "key": "z"}}),
            "couldn't find key z in Secret ns/sec",
        ),
        (
            json!({"fieldRef": {"fieldPath": "spec.x"}}),
            "unsupported fieldPath: spec.x",
        ),
    ];
    for (source, expected) in cases {
        let error = made(
            json!({}),
            json!({"name": "c", "env": [{"name": "A", "valueFrom": source}]}),
            &[],
        )
        .expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn services_become_variables() {
    let services = [service("ns", "my-web", &[("http", 80, "TCP")])];
    let got = made(json!({}), json!({"name": "c", "env": [{"name": "U", "value": "$(MY_WEB_SERVICE_HOST)"}, {"name": "MY_WEB_PORT", "value": "mine"}]}), &services)
        .expect("environment");
    let get = |name: &str| {
        got.iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    };
    let cases = [
        ("U", Some("10.96.0.1")),
        ("MY_WEB_PORT", Some("mine")),
        ("MY_WEB_SERVICE_HOST", Some("10.96.0.1")),
        ("MY_WEB_SERVICE_PORT", Some("80")),
        ("MY_WEB_SERVICE_PORT_HTTP", Some("80")),
        ("MY_WEB_PORT_80_TCP", Some("tcp://10.96.0.1:80")),
        ("MY_WEB_PORT_80_TCP_PROTO", Some("tcp")),
        ("MY_WEB_PORT_80_TCP_PORT", Some("80")),
        ("MY_WEB_PORT_80_TCP_ADDR", Some("10.96.0.1")),
    ];
    for (name, expected) in cases {
        assert_eq!(get(name), expected, "{name}");
    }
}

#[test]
fn without_service_links_only_the_api_is_told() {
    let services = [
        service("ns", "web", &[("", 80, "TCP")]),
        service("default", "kubernetes", &[("https", 443, "TCP")]),
    ];
    let got = made(
        json!({"enableServiceLinks": false}),
        json!({"name": "c"}),
        &services,
    )
    .expect("environment");
    let has = |name: &str| got.iter().any(|(found, _)| found == name);
    assert!(has("KUBERNETES_SERVICE_HOST") && !has("WEB_SERVICE_HOST"));
}

#[test]
fn values_come_out_of_files() {
    let from = |key: &str, optional: bool| {
        let file = json!({"volumeName": "v", "path": "f", "key": key, "optional": optional});
        json!({"name": "c", "env": [{"name": "A", "valueFrom": {"fileKeyRef": file}}, {"name": "B", "value": "$(A)"}]})
    };
    check(from("K", false), &[("A", "filed"), ("B", "filed")]);
    check(from("none", true), &[("B", "$(A)")]);
    let error = made(json!({}), from("none", false), &[])
        .expect_err("required")
        .to_string();
    assert_eq!(
        error,
        "environment variable key \"none\" not found in file \"f\" of volume \"v\""
    );
}
