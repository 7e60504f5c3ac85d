//! DefaultIngressClass, PodTopologyLabels, PodResizeValidator, NodeDeclaredFeatureValidator.

use super::*;

const NODES: &str = "/api/v1/nodes";
const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";

async fn node(raw: &Raw, name: &str, labels: Value, status: Value) {
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    made(raw, NODES, node).await;
    let path = format!("{NODES}/{name}/status");
    let (code, answer) = raw.merge(&path, json!({"status": status})).await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn an_ingress_without_a_class_is_of_the_default_one() {
    let raw = admin().await;
    let ingress = |name: &str, metadata: Value, spec: Value| {
        let mut object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec});
        object["metadata"]["name"] = name.into();
        object["spec"]["defaultBackend"] =
            json!({"service": {"name": "s", "port": {"number": 80}}});
        object
    };
    let class = async |name: &str, is_default: &str| {
        let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": name, "annotations": {"ingressclass.kubernetes.io/is-default-class": is_default}},
            "spec": {"controller": "example.com/ingress"}});
        made(&raw, CLASSES, class).await;
    };
    let of = |ingress: Value| ingress["spec"]["ingressClassName"].clone();
    class("other", "false").await;
    let none = made(&raw, INGRESSES, ingress("none", json!({}), json!({}))).await;
    assert_eq!(of(none), Value::Null);
    class("usual", "true").await;
    let unsaid = made(&raw, INGRESSES, ingress("unsaid", json!({}), json!({}))).await;
    assert_eq!(of(unsaid), "usual");
    let own = json!({"ingressClassName": "other"});
    let own = made(&raw, INGRESSES, ingress("own", json!({}), own)).await;
    assert_eq!(of(own), "other");
    let old = json!({"annotations": {"kubernetes.io/ingress.class": "other"}});
    let old = made(&raw, INGRESSES, ingress("old", old, json!({}))).await;
    assert_eq!(of(old), Value::Null);
}

#[tokio::test]
async fn a_pod_gets_zone_and_region_of_its_node() {
    let raw = admin().await;
    let (zone, region) = (
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    );
    node(
        &raw,
        "n",
        json!({zone: "z", region: "r", "topology.kubernetes.io/rack": "k"}),
        json!({}),
    )
    .await;
    let labels = |pod: &Value| pod["metadata"]["labels"].clone();
    let mut waiting = pod("bound");
    waiting["metadata"]["labels"] = json!({zone: "own", "app": "a"});
    let waiting = made(&raw, PODS, waiting).await;
    assert_eq!(labels(&waiting), json!({zone: "own", "app": "a"}));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
        "target": {"kind": "Node", "name": "n"}});
    made(&raw, &format!("{PODS}/bound/binding"), binding).await;
    let (_, bound) = raw.get(&format!("{PODS}/bound")).await;
    assert_eq!(labels(&bound), json!({zone: "z", region: "r", "app": "a"}));
    let placed = made(&raw, PODS, pod_with("placed", json!({"nodeName": "n"}))).await;
    assert_eq!(
        labels(&placed),
        json!({zone: "z", region: "r", "app": "placed"})
    );
    let lost = made(&raw, PODS, pod_with("lost", json!({"nodeName": "none"}))).await;
    assert_eq!(labels(&lost), json!({"app": "lost"}));
}

#[tokio::test]
async fn a_pod_is_resized_as_its_node_can() {
    let raw = admin().await;
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "1Gi"});
    let resources = |cpu: &str| json!({"requests": amounts(cpu), "limits": amounts(cpu)});
    let placed = |name: &str, node: &str| {
        let container = json!({"name": "c", "image": "i", "resources": resources("1")});
        pod_with(name, json!({"nodeName": node, "containers": [container]}))
    };
    let resized = async |name: &str, cpu: &str| {
        let containers = json!([{"name": "c", "resources": resources(cpu)}]);
        let patch = json!({"spec": {"containers": containers}}).to_string();
        let path = format!("{PODS}/{name}/resize");
        let kind = "application/strategic-merge-patch+json";
        let (code, answer) = raw.send("PATCH", &path, kind, patch).await;
        (
            code,
            answer["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let features = json!(["GuaranteedQoSPodCPUResize"]);
    let able = json!({"allocatable": {"cpu": "2", "memory": "2Gi"}, "declaredFeatures": features});
    node(
        &raw,
        "able",
        json!({"kubernetes.io/os": "linux"}),
        able.clone(),
    )
    .await;
    node(&raw, "other", json!({"kubernetes.io/os": "windows"}), able).await;
    let plain = json!({"allocatable": {"cpu": "2", "memory": "2Gi"}});
    node(&raw, "old", json!({"kubernetes.io/os": "linux"}), plain).await;
    for node in ["able", "other", "old", "none"] {
        made(&raw, PODS, placed(&format!("on-{node}"), node)).await;
    }
    let refusal = |name: &str, why: &str| (403, format!("pods \"{name}\" is forbidden: {why}"));
    assert_eq!(resized("on-able", "2").await.0, 200);
    let why =
        "Node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000";
    assert_eq!(resized("on-able", "3").await, refusal("on-able", why));
    let why = "pod resize is only supported on linux nodes, node \"other\" is \"windows\"";
    assert_eq!(resized("on-other", "2").await, refusal("on-other", why));
    let why = "pod update requires features GuaranteedQoSPodCPUResize which are not available on node \"old\"";
    assert_eq!(resized("on-old", "2").await, refusal("on-old", why));
    let why = "node \"none\" not found";
    assert_eq!(resized("on-none", "2").await, refusal("on-none", why));
    // What changes nothing of it asks nothing of the node.
    assert_eq!(resized("on-none", "1").await.0, 200);
    let (_, pod) = raw.get(&format!("{PODS}/on-none")).await;
    assert_eq!(pod["metadata"]["generation"], 1);
}
