//! What the kernel keeps from a pod's processes.

use serde_json::{Value, json};

use super::{
    super::{container, good, pod},
    baseline, restricted,
};

#[test]
fn profiles_of_app_armor() {
    let check = baseline("appArmorProfile", "forbidden AppArmor profile");
    let several = baseline("appArmorProfile", "forbidden AppArmor profiles");
    let named = |kind: &str| json!({"appArmorProfile": {"type": kind}});
    check.spec(json!({"securityContext": named("RuntimeDefault"), "containers": [container("c", named("Localhost"))]}), "");
    let not = "must not set AppArmor profile type to";
    check.spec(
        json!({"securityContext": named("Unconfined")}),
        &format!("pod {not} \"Unconfined\""),
    );
    check.context(
        named("Unconfined"),
        &format!("container \"c\" {not} \"Unconfined\""),
    );
    check.spec(
        json!({"securityContext": named("Unconfined"), "containers": [container("c", named("Unconfined"))]}),
        &format!("pod and container \"c\" {not} \"Unconfined\""),
    );
    let annotated = |annotations: Value, spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    const KEY: &str = "container.apparmor.security.beta.kubernetes.io";
    let good = json!({format!("{KEY}/a"): "", format!("{KEY}/b"): "runtime/default", format!("{KEY}/c"): "localhost/x", "d": "unconfined"});
    check.whole(&annotated(good, json!({})), "");
    check.whole(
        &annotated(json!({format!("{KEY}/c"): "unconfined"}), json!({})),
        &format!("annotation {not} \"{KEY}/c=\"unconfined\"\""),
    );
    several.whole(
        &annotated(
            json!({format!("{KEY}/c"): "unconfined", format!("{KEY}/b"): "x\"y"}),
            json!({"containers": [container("c", named("Unconfined"))]}),
        ),
        &format!("container \"c\" and annotations {not} \"Unconfined\", \"{KEY}/b=\"x\\\"y\"\", \"{KEY}/c=\"unconfined\"\""),
    );
}

#[test]
fn annotations_for_seccomp() {
    let check = baseline("seccompProfile_baseline", "seccompProfile").at(&[0, 18]);
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF: &str = "container.seccomp.security.alpha.kubernetes.io";
    let annotated = |annotations: Value| {
        let mut pod = pod(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}));
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    check.whole(&annotated(Value::Null), "");
    check.whole(&annotated(json!({POD: "runtime/default", format!("{OF}/c"): "docker/default", format!("{OF}/i"): "localhost/x"})), "");
    check.whole(
        &annotated(json!({format!("{OF}/nobody"): "unconfined"})),
        "",
    );
    check.whole(
        &annotated(json!({POD: "unconfined"})),
        &format!("forbidden annotation {POD}=\"unconfined\""),
    );
    check.whole(
        &annotated(json!({POD: "unconfined", format!("{OF}/c"): ""})),
        &format!("forbidden annotations {OF}/c=\"\", {POD}=\"unconfined\""),
    );
    let mut unconfined = annotated(json!({POD: "unconfined"}));
    unconfined["spec"]["securityContext"] = json!({});
    check.at(&[19, 37]).whole(&unconfined, "");
}

#[test]
fn profiles_of_seccomp_that_are_set() {
    let check = baseline("seccompProfile_baseline", "seccompProfile").at(&[19, 37]);
    let named = |kind: &str| json!({"seccompProfile": {"type": kind}});
    check.spec(json!({"securityContext": {}}), "");
    check.spec(json!({"securityContext": named("RuntimeDefault"), "containers": [container("c", named("Localhost"))]}), "");
    let not = "must not set securityContext.seccompProfile.type to";
    check.spec(
        json!({"securityContext": named("Unconfined")}),
        &format!("pod {not} \"Unconfined\""),
    );
    check.spec(
        json!({"securityContext": named("Unconfined"), "containers": [container("c", named("Other"))]}),
        &format!("pod and container \"c\" {not} \"Other\", \"Unconfined\""),
    );
}

#[test]
fn profiles_of_seccomp_that_must_be_set() {
    let check = restricted(
        "seccompProfile_restricted",
        "seccompProfile",
        &[19, 24, 25, 37],
    );
    let named = |kind: &str| json!({"seccompProfile": {"type": kind}});
    check.spec(json!({}), "");
    check.spec(
        json!({"securityContext": {}, "initContainers": [], "containers": [container("c", named("Localhost"))]}),
        "",
    );
    let not = "must not set securityContext.seccompProfile.type to";
    check.spec(
        json!({"securityContext": named("Unconfined")}),
        &format!("pod {not} \"Unconfined\""),
    );
    check.context(
        named("Unconfined"),
        &format!("container \"c\" {not} \"Unconfined\""),
    );
    let must =
        "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    check.spec(
        json!({"securityContext": {}, "initContainers": [], "containers": [container("a", named("RuntimeDefault")), good("b")]}),
        &format!("pod or container \"b\" {must}"),
    );
    let silent = json!({"securityContext": {}, "os": {"name": "windows"}});
    check.at(&[25, 37]).spec(silent.clone(), "");
    check
        .at(&[19, 24])
        .spec(silent, &format!("pod or containers \"i\", \"c\" {must}"));
}

#[test]
fn mounts_of_proc() {
    let check = baseline("procMount", "procMount");
    let strict = restricted("procMount_restricted", "procMount", &[35, 37]);
    let mount = |kind: &str| json!({"procMount": kind});
    for check in [check, strict] {
        check.context(mount("Default"), "");
        let not = "must not set securityContext.procMount to";
        check.context(
            mount("Unmasked"),
            &format!("container \"c\" {not} \"Unmasked\""),
        );
        check.spec(
            json!({"initContainers": [container("i", mount("Unmasked"))], "containers": [container("c", mount("Other"))]}),
            &format!("containers \"i\", \"c\" {not} \"Other\", \"Unmasked\""),
        );
    }
    let own = json!({"hostUsers": false, "containers": [container("c", mount("Unmasked"))]});
    let refused = "container \"c\" must not set securityContext.procMount to \"Unmasked\"";
    check.at(&[35, 37]).spec(own.clone(), "");
    check.at(&[0, 34]).spec(own.clone(), refused);
    strict.spec(own, refused);
}

#[test]
fn labels_of_selinux() {
    let check = baseline("seLinuxOptions", "seLinuxOptions");
    let labelled = |options: Value| json!({"seLinuxOptions": options});
    let kind = |kind: &str| labelled(json!({"type": kind, "level": "s0:c1"}));
    check.spec(
        json!({"securityContext": kind("container_t"), "containers": [container("a", kind("container_init_t")),
            container("b", kind("container_kvm_t")), container("c", kind(""))]}),
        "",
    );
    let engine = || json!({"securityContext": kind("container_engine_t")});
    check.at(&[31, 37]).spec(engine(), "");
    let set = "set forbidden securityContext.seLinuxOptions:";
    check
        .at(&[0, 30])
        .spec(engine(), &format!("pod {set} type \"container_engine_t\""));
    check.context(
        labelled(json!({"user": "u"})),
        &format!("container \"c\" {set} user may not be set"),
    );
    check.context(
        labelled(json!({"role": "r"})),
        &format!("container \"c\" {set} role may not be set"),
    );
    check.spec(
        json!({"securityContext": labelled(json!({"type": "foo", "user": "u", "role": "r"})),
            "containers": [container("a", kind("bar")), container("b", labelled(json!({"role": "r"})))]}),
        &format!("pod and containers \"a\", \"b\" {set} types \"bar\", \"foo\"; user may not be set; role may not be set"),
    );
}
