//! What holds of new pods alone.

use serde_json::{Value, json};

use super::{Pod, pod};
use crate::{
    strategy::Strategy,
    testing::{create_errors, created, with},
};

#[test]
fn a_new_pod_has_not_what_only_others_give_it() {
    let debugger = json!([{"name": "debug", "image": "busybox"}]);
    let debugged = with(&pod(), "/spec/ephemeralContainers", debugger);
    let expected = "spec.ephemeralContainers: Forbidden: cannot be set on create";
    assert_eq!(create_errors(&Pod, debugged.clone()), expected);
    let errors = Pod.validate(&created(&Pod, debugged));
    assert!(errors.is_empty(), "a pod may have them later: {errors}");

    let gated = with(
        &pod(),
        "/spec/schedulingGates",
        json!([{"name": "example.org/queue"}]),
    );
    assert_eq!(create_errors(&Pod, gated.clone()), "");
    assert_eq!(
        create_errors(&Pod, with(&gated, "/spec/nodeName", json!("n"))),
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    );
}

#[test]
fn seccomp_annotations_say_what_the_fields_say() {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/nginx";
    let check = |key: &str, text: &str, profile: Value, expected: &str| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({key: text});
        let holder = if key == POD {
            &mut pod["spec"]
        } else {
            &mut pod["spec"]["containers"][0]
        };
        holder["securityContext"] = json!({"seccompProfile": profile});
        let errors = create_errors(&Pod, pod);
        assert_eq!(errors, expected, "{key}: {text}, {profile}");
    };
    let localhost = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
    let default = json!({"type": "RuntimeDefault"});
    for (key, at) in [(POD, "spec"), (CONTAINER, "spec.containers[0]")] {
        let wrong_type = format!(
            "{at}.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
        );
        check(key, "unconfined", json!({"type": "Unconfined"}), "");
        check(key, "runtime/default", default.clone(), "");
        check(key, "docker/default", default.clone(), "");
        check(key, "localhost/a", localhost("a"), "");
        check(key, "unconfined", default.clone(), &wrong_type);
        check(key, "runtime/default", localhost("a"), &wrong_type);
        let wrong_profile = format!(
            "{at}.securityContext.seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"
        );
        check(key, "localhost/b", localhost("a"), &wrong_profile);
    }
}
