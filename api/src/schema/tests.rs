use super::*;

#[test]
fn kinds_and_names_resolve() {
    let pod = table().by_gvk(&Gvk::new("", "v1", "Pod")).expect("Pod");
    assert_eq!(pod.name(), "io.k8s.api.core.v1.Pod");
    assert_eq!(table().by_name(pod.name()), Some(pod));
    assert_eq!(pod.gvk(), Some(Gvk::new("", "v1", "Pod")));
}

#[test]
fn lists_and_options_are_kinds_too() {
    let list = table()
        .by_gvk(&Gvk::new("apps", "v1", "DeploymentList"))
        .expect("DeploymentList");
    let items = list.field("items").expect("items");
    assert_eq!(
        items.kind,
        FieldKind::List(Element::Object(
            table()
                .by_name("io.k8s.api.apps.v1.Deployment")
                .expect("it")
        ))
    );
    for group in ["", "apps", "policy", "meta.k8s.io"] {
        let options = table()
            .by_gvk(&Gvk::new(group, "v1", "DeleteOptions"))
            .expect("DeleteOptions");
        assert_eq!(options.short_name(), "DeleteOptions");
    }
    assert_eq!(table().by_gvk(&Gvk::new("apps", "v1", "Pod")), None);
    assert_eq!(table().by_name("io.k8s.api.core.v1.Nothing"), None);
}

#[test]
fn fields_of_embedded_messages_know_their_way() {
    let volume = table()
        .by_name("io.k8s.api.core.v1.Volume")
        .expect("Volume");
    let host_path = volume.field("hostPath").expect("hostPath");
    assert_eq!((host_path.via, host_path.tag), ([2, 0], 1));
    assert_eq!(volume.field_by_tag([2, 0], 1), Some(host_path));
    assert!(volume.embeds([2, 0]) && !volume.embeds([3, 0]));
}

#[test]
fn markers_come_from_the_go_types() {
    let container = table()
        .by_name("io.k8s.api.core.v1.Container")
        .expect("Container");
    let ports = container.field("ports").expect("ports");
    assert_eq!(
        ports.list_map_keys().collect::<Vec<_>>(),
        ["containerPort", "protocol"]
    );
    assert_eq!(
        (ports.list_type, ports.patch_merge_key),
        (Some(ListType::Map), Some("containerPort"))
    );
    assert!(ports.has_patch_strategy("merge"));
    let strategy = table()
        .by_name("io.k8s.api.apps.v1.DeploymentSpec")
        .and_then(|t| t.field("strategy"));
    assert!(
        strategy
            .is_some_and(|s| s.has_patch_strategy("retainKeys") && !s.has_patch_strategy("merge"))
    );
    let protocol = ports
        .object_type()
        .and_then(|t| t.field("protocol"))
        .expect("protocol");
    assert_eq!(protocol.default, Some("\"TCP\""));
}

#[test]
fn schemas_refer_to_each_other_completely() {
    let pod = table().by_name("io.k8s.api.core.v1.Pod").expect("Pod");
    let all = closure(&[pod]);
    let schema = openapi_v3_schema(pod, "#/components/schemas/");
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
    let names: Vec<&str> = all.iter().map(|t| t.name()).collect();
    assert!(names.contains(&"io.k8s.apimachinery.pkg.api.resource.Quantity"));
    for ty in &all {
        let text = openapi_v3_schema(*ty, "#/components/schemas/").to_string();
        for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("a name");
            assert!(names.contains(&name), "{name}");
        }
    }
}
