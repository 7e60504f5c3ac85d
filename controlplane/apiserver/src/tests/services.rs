use serde_json::{Value, json};

use super::raw::admin;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    if object["spec"]["ports"].is_null() {
        object["spec"]["ports"] = json!([{"port": 80}]);
    }
    object
}

#[tokio::test]
async fn every_service_gets_an_address_of_its_own() {
    let raw = admin().await;
    let mut seen = std::collections::HashSet::new();
    for index in 0..20 {
        let (code, made) = raw
            .post(SERVICES, service(&format!("s{index}"), json!({})))
            .await;
        assert_eq!(code, 201, "{made}");
        let spec = &made["spec"];
        assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]));
        assert_eq!(
            (&spec["ipFamilies"], &spec["ipFamilyPolicy"]),
            (&json!(["IPv4"]), &json!("SingleStack"))
        );
        assert!(spec["clusterIP"].as_str().unwrap().starts_with("10.96."));
        assert!(seen.insert(spec["clusterIP"].as_str().unwrap().to_owned()));
    }
}

#[tokio::test]
async fn chosen_address_is_honoured_once() {
    let raw = admin().await;
    let wanted = json!({"clusterIP": "10.96.0.77"});
    let (code, made) = raw.post(SERVICES, service("a", wanted.clone())).await;
    assert_eq!(
        (code, &made["spec"]["clusterIP"]),
        (201, &json!("10.96.0.77"))
    );
    let (code, taken) = raw.post(SERVICES, service("b", wanted.clone())).await;
    assert_eq!(code, 422);
    assert!(
        taken["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated"),
        "{taken}"
    );
    for (path, why) in [
        (
            SERVICES.to_owned(),
            "the provided network does not match the current range",
        ),
        // By this clients find out the range.
        (
            format!("{SERVICES}?dryRun=All"),
            "the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16",
        ),
    ] {
        let wanted = json!({"clusterIP": "192.0.2.1"});
        let (code, outside) = raw.post(&path, service("b", wanted)).await;
        assert_eq!(code, 422);
        assert_eq!(
            outside["message"],
            format!(
                "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: {why}"
            )
        );
    }
    raw.delete(&format!("{SERVICES}/a"), json!({})).await;
    assert_eq!(raw.post(SERVICES, service("b", wanted)).await.0, 201);
}

#[tokio::test]
async fn node_ports_come_and_go_with_the_type() {
    let raw = admin().await;
    let (_, made) = raw
        .post(SERVICES, service("a", json!({"type": "NodePort"})))
        .await;
    let port = made["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&port));
    let fixed = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let (code, taken) = raw.post(SERVICES, service("b", fixed.clone())).await;
    assert_eq!(code, 422);
    assert!(
        taken["message"]
            .as_str()
            .unwrap()
            .contains("provided port is already allocated"),
        "{taken}"
    );
    let path = format!("{SERVICES}/a");
    let (code, changed) = raw
        .merge(&path, json!({"spec": {"type": "ClusterIP"}}))
        .await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    assert_eq!(
        changed["spec"]["ports"][0]["nodePort"],
        Value::Null,
        "{changed}"
    );
    assert_eq!(raw.post(SERVICES, service("b", fixed)).await.0, 201);
}

#[tokio::test]
async fn the_port_for_health_checks_comes_and_goes_with_the_policy() {
    let raw = admin().await;
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let (code, made) = raw.post(SERVICES, service("a", spec.clone())).await;
    assert_eq!(code, 201, "{made}");
    let port = made["spec"]["healthCheckNodePort"].as_i64().unwrap();
    let mut same = spec;
    same["healthCheckNodePort"] = port.into();
    let (code, taken) = raw.post(SERVICES, service("b", same.clone())).await;
    assert_eq!((code, &taken["reason"]), (500, &json!("InternalError")));
    assert_eq!(
        taken["message"],
        format!(
            "Internal error occurred: failed to allocate requested HealthCheck NodePort {port}: provided port is already allocated"
        )
    );
    let path = format!("{SERVICES}/a");
    let other = json!({"spec": {"healthCheckNodePort": 32767 - (port - 30000)}});
    let (code, refused) = raw.merge(&path, other).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            422,
            &json!(
                "Service \"a\" is invalid: spec.healthCheckNodePort: Forbidden: field is immutable"
            )
        )
    );
    let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let (code, changed) = raw.merge(&path, cluster).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["spec"]["healthCheckNodePort"], Value::Null);
    assert_eq!(raw.post(SERVICES, service("b", same)).await.0, 201);
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    let (code, again) = raw.merge(&path, local).await;
    assert_eq!(code, 200, "{again}");
    let drawn = &again["spec"]["healthCheckNodePort"];
    assert!(drawn.is_i64() && *drawn != port, "{again}");
}

#[tokio::test]
async fn headless_and_external_services_have_no_address() {
    let raw = admin().await;
    let (code, headless) = raw
        .post(
            SERVICES,
            service("a", json!({"clusterIP": "None", "selector": {"a": "b"}})),
        )
        .await;
    assert_eq!(
        (
            code,
            &headless["spec"]["clusterIP"],
            &headless["spec"]["clusterIPs"]
        ),
        (201, &json!("None"), &json!(["None"]))
    );
    let external = json!({"type": "ExternalName", "externalName": "example.com"});
    let (code, external) = raw.post(SERVICES, service("b", external)).await;
    assert_eq!(code, 201);
    assert_eq!(external["spec"]["clusterIP"], Value::Null, "{external}");
}

#[tokio::test]
async fn refused_service_keeps_nothing() {
    let raw = admin().await;
    let wanted = json!({"clusterIP": "10.96.0.78"});
    raw.post(SERVICES, service("taken", json!({}))).await;
    assert_eq!(
        raw.post(SERVICES, service("taken", wanted.clone())).await.0,
        409
    );
    assert_eq!(raw.post(SERVICES, service("free", wanted)).await.0, 201);
}

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

#[tokio::test]
async fn families_that_the_cluster_lacks_are_refused() {
    let raw = admin().await;
    for (spec, expect) in [
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (
            json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}),
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ),
    ] {
        let (code, refused) = raw.post(SERVICES, service("a", spec.clone())).await;
        assert_eq!(code, 422, "{spec}: {refused}");
        assert!(
            refused["message"].as_str().unwrap().contains(expect),
            "{refused}"
        );
    }
    let (code, made) = raw
        .post(
            SERVICES,
            service("a", json!({"ipFamilyPolicy": "PreferDualStack"})),
        )
        .await;
    assert_eq!((code, &made["spec"]["ipFamilies"]), (201, &json!(["IPv4"])));
}

#[tokio::test]
async fn names_may_begin_with_a_digit() {
    let raw = admin().await;
    assert_eq!(raw.post(SERVICES, service("1a", json!({}))).await.0, 201);
    assert_eq!(raw.post(SERVICES, service("1.a", json!({}))).await.0, 422);
}

#[tokio::test]
async fn every_address_has_an_object_that_comes_and_goes_with_it() {
    let raw = admin().await;
    let (_, made) = raw.post(SERVICES, service("a", json!({}))).await;
    let path = format!(
        "{ADDRESSES}/{}",
        made["spec"]["clusterIP"].as_str().unwrap()
    );
    let (code, address) = raw.get(&path).await;
    assert_eq!(code, 200, "{address}");
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    assert_eq!(address["spec"]["parentRef"], parent);
    assert_eq!(
        address["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"],
        "ipallocator.k8s.io"
    );
    let external = json!({"spec": {"type": "ExternalName", "externalName": "x.y"}});
    assert_eq!(raw.merge(&format!("{SERVICES}/a"), external).await.0, 200);
    assert_eq!(
        raw.get(&path).await.0,
        404,
        "an external name has no address"
    );
    let (code, back) = raw
        .merge(
            &format!("{SERVICES}/a"),
            json!({"spec": {"type": "ClusterIP"}}),
        )
        .await;
    let path = format!(
        "{ADDRESSES}/{}",
        back["spec"]["clusterIP"].as_str().unwrap()
    );
    assert_eq!((code, raw.get(&path).await.0), (200, 200), "{back}");
    raw.delete(&format!("{SERVICES}/a"), json!({})).await;
    assert_eq!(raw.get(&path).await.0, 404);
}

#[tokio::test]
async fn an_address_that_somebody_else_has_is_not_given_out() {
    let raw = admin().await;
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.96.0.79"},
        "spec": {"parentRef": {"group": "gateway.networking.k8s.io", "resource": "gateways", "namespace": "x", "name": "g"}}});
    assert_eq!(raw.post(ADDRESSES, object).await.0, 201);
    let (code, taken) = raw
        .post(SERVICES, service("a", json!({"clusterIP": "10.96.0.79"})))
        .await;
    assert_eq!(code, 422, "{taken}");
    assert!(
        taken["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated"),
        "{taken}"
    );
}

#[tokio::test]
async fn the_range_of_addresses_is_an_object() {
    let raw = admin().await;
    let (code, range) = raw
        .get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
        .await;
    assert_eq!(
        (code, &range["spec"]["cidrs"]),
        (200, &json!(["10.96.0.0/16"]))
    );
    assert_eq!(
        (
            &range["status"]["conditions"][0]["type"],
            &range["status"]["conditions"][0]["status"]
        ),
        (&json!("Ready"), &json!("True"))
    );
    assert_eq!(raw.get(&format!("{ADDRESSES}/10.96.0.1")).await.0, 200);
}
