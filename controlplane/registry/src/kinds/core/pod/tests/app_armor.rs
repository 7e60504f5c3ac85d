//! An annotation that names a container's AppArmor profile becomes the field that does.

use serde_json::{Value, json};

use super::{Pod, pod};
use crate::{
    kinds::core::podtemplate::PodTemplate,
    strategy::Strategy as _,
    testing::{create_errors, created, update_errors, with},
};

const KEY: &str = "container.apparmor.security.beta.kubernetes.io/nginx";
const AT: &str = "metadata.annotations[container.apparmor.security.beta.kubernetes.io/nginx]";
const FIELD: &str = "/spec/containers/0/securityContext";

fn annotated(pod: &Value, annotation: &str) -> Value {
    with(pod, "/metadata/annotations", json!({KEY: annotation}))
}

fn of_pod(pod: &Value, profile: Value) -> Value {
    with(
        pod,
        "/spec/securityContext",
        json!({"appArmorProfile": profile}),
    )
}

#[test]
fn the_annotation_of_a_new_pod_becomes_the_field() {
    for (annotation, field) in [
        ("unconfined", json!({"type": "Unconfined"})),
        ("runtime/default", json!({"type": "RuntimeDefault"})),
        (
            "localhost/web",
            json!({"type": "Localhost", "localhostProfile": "web"}),
        ),
    ] {
        let pod = annotated(&pod(), annotation);
        let warning =
            format!(r#"{AT}: deprecated since v1.30; use the \"appArmorProfile\" field instead"#);
        assert_eq!(Pod.warnings_on_create(&pod), [warning]);
        let made = created(&Pod, pod);
        let context = &made["spec"]["containers"][0]["securityContext"];
        assert_eq!(context, &json!({"appArmorProfile": field}), "{annotation}");
        assert_eq!(made["metadata"]["annotations"][KEY], annotation, "it stays");
        assert_eq!(create_errors(&Pod, made), "");
    }
}

#[test]
fn what_cannot_be_a_field_is_told_and_left() {
    for annotation in ["", "localhost/", "localhost/ web"] {
        let pod = annotated(&pod(), annotation);
        assert_eq!(Pod.warnings_on_create(&pod).len(), 1, "{annotation:?}");
        let made = created(&Pod, pod.clone());
        assert_eq!(
            made["spec"]["containers"][0].get("securityContext"),
            None,
            "{annotation:?}"
        );
        assert_eq!(create_errors(&Pod, pod), "");
    }
    for (key, annotation, expect) in [
        (
            KEY,
            "web",
            format!("{AT}: Invalid value: \"web\": invalid AppArmor profile name: \"web\""),
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/no",
            "unconfined",
            format!(
                "{}: Invalid value: \"no\": container not found",
                AT.replace("/nginx", "/no")
            ),
        ),
    ] {
        let annotations = json!({key: annotation});
        let pod = with(&pod(), "/metadata/annotations", annotations.clone());
        assert_eq!(create_errors(&Pod, pod.clone()), expect);
        let template = json!({"metadata": {"name": "t"}, "template": {
            "metadata": {"annotations": annotations}, "spec": pod["spec"]}});
        assert_eq!(
            create_errors(&PodTemplate, template),
            expect.replace("metadata.annotations", "template.annotations")
        );
    }
}

#[test]
fn fields_go_before_annotations() {
    let default = json!({"type": "RuntimeDefault"});
    let same = annotated(&of_pod(&pod(), default.clone()), "runtime/default");
    assert_eq!(Pod.warnings_on_create(&same), [""; 0]);
    let made = created(&Pod, same.clone());
    assert_eq!(made["spec"]["containers"][0].get("securityContext"), None);
    assert_eq!(create_errors(&Pod, same), "");

    let other = created(
        &Pod,
        annotated(&of_pod(&pod(), default.clone()), "unconfined"),
    );
    assert_eq!(
        other["spec"]["containers"][0]["securityContext"]["appArmorProfile"]["type"],
        "Unconfined"
    );
    assert_eq!(other["spec"]["securityContext"]["appArmorProfile"], default);
    assert_eq!(create_errors(&Pod, other), "");

    let own = with(&pod(), FIELD, json!({"appArmorProfile": default}));
    let own = annotated(&own, "localhost/web");
    assert_eq!(Pod.warnings_on_create(&own), [""; 0]);
    assert_eq!(
        create_errors(&Pod, own),
        "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field \
         must match"
    );
    let local = json!({"type": "Localhost", "localhostProfile": "a"});
    let own = with(&pod(), FIELD, json!({"appArmorProfile": local}));
    assert_eq!(
        create_errors(&Pod, annotated(&own, "localhost/b")),
        "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in \
         annotation and field must match"
    );
}

#[test]
fn pods_of_windows_have_no_profiles() {
    let pod = with(
        &annotated(&pod(), "unconfined"),
        "/spec/os",
        json!({"name": "windows"}),
    );
    assert_eq!(Pod.warnings_on_create(&pod), [""; 0]);
    let made = created(&Pod, pod);
    assert_eq!(made["spec"]["containers"][0].get("securityContext"), None);
}

#[test]
fn an_update_leaves_the_annotations_alone() {
    let (without, old) = (
        created(&Pod, pod()),
        created(&Pod, annotated(&pod(), "unconfined")),
    );
    let removed = with(&old, "/metadata/annotations", json!({}));
    let changed = annotated(&old, "runtime/default");
    let added = annotated(&without, "unconfined");
    let may_not = |what| format!("{AT}: Forbidden: may not {what} AppArmor annotations");
    assert_eq!(update_errors(&Pod, old.clone(), &old), "");
    for (new, old, expect) in [
        (removed, &old, may_not("remove or update")),
        (changed, &old, may_not("remove or update")),
        (added, &without, may_not("add")),
    ] {
        assert_eq!(update_errors(&Pod, new.clone(), old), expect);
        assert!(
            Pod.validate_status_update(&new, old)
                .to_string()
                .contains(&expect)
        );
    }
}

#[test]
fn names_of_local_profiles_are_checked() {
    let path = "spec.containers[0].securityContext.appArmorProfile.localhostProfile";
    let long = "a".repeat(4096);
    for (name, expect) in [
        ("web", String::new()),
        (
            " web",
            format!("{path}: Invalid value: \" web\": must not be padded with whitespace"),
        ),
        (
            "",
            format!("{path}: Required value: must be set when AppArmor type is Localhost"),
        ),
        (
            long.as_str(),
            format!("{path}: Too long: may not be more than 4095 bytes"),
        ),
    ] {
        let profile = json!({"type": "Localhost", "localhostProfile": name});
        let pod = with(&pod(), FIELD, json!({"appArmorProfile": profile}));
        assert_eq!(create_errors(&Pod, pod), expect);
    }
}
