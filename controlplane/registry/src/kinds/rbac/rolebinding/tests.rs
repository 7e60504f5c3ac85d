use serde_json::json;

use super::*;
use crate::{
    kinds::rbac::{clusterrole::ClusterRole, clusterrolebinding::ClusterRoleBinding, role::Role},
    testing::{create_errors, created, update_errors, with},
};

fn binding() -> Value {
    json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "robot", "namespace": "ops"}]})
}

#[test]
fn bindings_get_their_api_group() {
    let binding = created(&RoleBinding, binding());
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(
        binding["subjects"][0]["apiGroup"],
        "rbac.authorization.k8s.io"
    );
    assert!(binding["subjects"][1]["apiGroup"].is_null());
}

#[test]
fn bindings_are_checked() {
    assert_eq!(create_errors(&RoleBinding, binding()), "");
    assert_eq!(
        create_errors(&ClusterRoleBinding, binding()),
        "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""
    );
    assert_eq!(
        create_errors(
            &RoleBinding,
            with(
                &binding(),
                "/subjects",
                json!([{"kind": "Robot", "name": "x"}])
            )
        ),
        "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"Group\", \"ServiceAccount\", \"User\""
    );
    let old = created(&RoleBinding, binding());
    assert_eq!(
        update_errors(
            &RoleBinding,
            with(&old, "/roleRef/name", json!("other")),
            &old
        ),
        "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"other\"}: cannot change roleRef"
    );
}

#[test]
fn roles_are_checked() {
    let rules = |rule: Value| json!({"rules": [rule]});
    for (rule, expect) in [
        (
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
            "",
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods"]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            json!({"verbs": ["get"], "resources": ["pods"]}),
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            json!({"verbs": ["get"], "apiGroups": [""]}),
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ),
    ] {
        assert_eq!(create_errors(&Role, rules(rule)), expect);
    }
    assert_eq!(
        create_errors(
            &ClusterRole,
            rules(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}))
        ),
        ""
    );
    assert!(Role.name_error("system:a").is_none());
    assert!(Role.name_error("a/b").is_some());
}

#[test]
fn rows_name_role_and_subjects() {
    assert_eq!(
        json!(RoleBinding.row(&binding(), 0)),
        json!(["b", "Role/r", "<unknown>", "alice", "", "ops/robot"])
    );
}
