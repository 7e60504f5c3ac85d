use serde_json::json;

use super::{check, pod};
use crate::{
    kinds::{
        apps::{deployment::Deployment, replicaset::ReplicaSet},
        batch::{cronjob::CronJob, job::Job},
        core::{pod::Pod, replicationcontroller::ReplicationController},
    },
    strategy::Strategy,
    testing::{create_errors, with},
};

#[test]
fn volumes_and_mounts_are_checked() {
    let v = "/spec/volumes";
    check(
        v,
        json!([{"name": "a"}, {"name": "a"}]),
        "spec.volumes[1].name: Duplicate value: \"a\"",
    );
    check(
        v,
        json!([{"emptyDir": {}}]),
        "spec.volumes[0].name: Required value",
    );
    check(
        v,
        json!([{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    );
    check(
        v,
        json!([{"name": "a", "hostPath": {"path": "/../x"}}]),
        "spec.volumes[0].hostPath.path: Invalid value: \"/../x\": must not contain '..'",
    );
    check(
        v,
        json!([{"name": "a", "secret": {}}]),
        "spec.volumes[0].secret.secretName: Required value",
    );
    check(
        v,
        json!([{"name": "a", "configMap": {"name": "c", "defaultMode": 4096}}]),
        "spec.volumes[0].configMap.defaultMode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both inclusive",
    );
    check(
        v,
        json!([{"name": "a", "configMap": {"name": "c", "items": [{"key": "k"}]}}]),
        "spec.volumes[0].configMap.items[0].path: Required value",
    );
    let base = with(&pod(), v, json!([{"name": "a", "emptyDir": {}}]));
    for (mounts, expect) in [
        (
            json!([{"name": "a", "mountPath": ""}]),
            "spec.containers[0].volumeMounts[0].mountPath: Required value",
        ),
        (
            json!([{"name": "a", "mountPath": "/x"}, {"name": "a", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/x\": must be unique",
        ),
        (
            json!([{"name": "a", "mountPath": "/x", "subPath": "/y"}]),
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"/y\": must be a relative path",
        ),
        (
            json!([{"name": "a", "mountPath": "/x", "mountPropagation": "Bidirectional"}]),
            "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
        ),
    ] {
        assert_eq!(
            create_errors(&Pod, with(&base, "/spec/containers/0/volumeMounts", mounts)),
            expect
        );
    }
}

#[test]
fn volumes_of_drivers_and_of_own_claims_are_checked() {
    let csi = |source: serde_json::Value| json!([{"name": "a", "csi": source}]);
    let v = "/spec/volumes";
    check(v, csi(json!({"driver": "csi.Example.com"})), "");
    check(
        v,
        csi(json!({})),
        "spec.volumes[0].csi.driver: Required value",
    );
    check(
        v,
        csi(json!({"driver": "a".repeat(64)})),
        "spec.volumes[0].csi.driver: Too long: may not be more than 63 bytes",
    );
    check(
        v,
        csi(json!({"driver": "d", "nodePublishSecretRef": {}})),
        "spec.volumes[0].csi.nodePublishSecretRef.name: Required value",
    );
    let claim = |template: serde_json::Value| json!([{"name": "a", "ephemeral": {"volumeClaimTemplate": template}}]);
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let at = "spec.volumes[0].ephemeral.volumeClaimTemplate";
    check(
        v,
        claim(json!({"metadata": {"labels": {"a": "b"}}, "spec": spec})),
        "",
    );
    check(
        v,
        claim(json!({"metadata": {"name": "mine"}, "spec": spec})),
        &format!("{at}.metadata.name: Forbidden: cannot be set"),
    );
    check(
        v,
        claim(json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}})),
        &format!("{at}.spec.accessModes: Required value: at least 1 access mode is required"),
    );
    check(
        v,
        json!([{"name": "a", "ephemeral": {}}]),
        &format!("{at}: Required value"),
    );
}

#[test]
fn search_domains_are_checked() {
    const NO_DOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
    let searches = |searches: &[&str]| json!({"searches": searches});
    check(
        "/spec/dnsConfig",
        searches(&[".", "example.com.", "_sip._tcp.ex_ample"]),
        "",
    );
    let inject = "a\nnameserver 192.0.2.6";
    let expect = format!("spec.dnsConfig.searches[0]: Invalid value: {inject:?}: {NO_DOMAIN}");
    check("/spec/dnsConfig", searches(&[inject]), &expect);
    let long = "a".repeat(63);
    check("/spec/dnsConfig", searches(&[long.as_str(); 32]), "");
    let longer = format!("{long}.{long}");
    let told = create_errors(
        &Pod,
        with(&pod(), "/spec/dnsConfig", searches(&[longer.as_str(); 17])),
    );
    assert!(
        told.ends_with(
            "must not have more than 2048 characters (including spaces) in the search list"
        ),
        "{told}"
    );
}

#[test]
fn the_pod_itself_is_checked() {
    check(
        "/spec/restartPolicy",
        json!("Maybe"),
        "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
    );
    check(
        "/spec/dnsPolicy",
        json!("X"),
        "spec.dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
    );
    check(
        "/spec/dnsPolicy",
        json!("None"),
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    );
    check(
        "/spec/activeDeadlineSeconds",
        json!(0),
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    );
    check(
        "/spec/nodeSelector",
        json!({"a": "b c"}),
        "spec.nodeSelector: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    );
    check(
        "/spec/tolerations",
        json!([{"operator": "Equal", "key": "", "effect": "NoExecute"}]),
        "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
    );
    check(
        "/spec/affinity",
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
    );
    check(
        "/spec/affinity",
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [".n"]}]}]}}}),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]: Invalid value: \".n\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    );
    check(
        "/spec/topologySpreadConstraints",
        json!([{"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]),
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    );
    check(
        "/spec/securityContext",
        json!({"runAsUser": -1}),
        "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    );
    check(
        "/spec/containers/0/securityContext",
        json!({"seccompProfile": {"type": "Localhost"}}),
        "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
    );
    check("/spec/hostNetwork", json!(true), "");
}

#[test]
fn a_name_that_is_no_host_name_is_warned_of() {
    let warning = |used_in: &str| {
        format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
        )
    };
    let named = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(Pod.warnings_on_create(&named("web")), [""; 0]);
    assert_eq!(
        Pod.warnings_on_create(&named("web.1")),
        [warning("the Pod's hostname")]
    );
    let kinds: [&dyn Strategy; 5] = [
        &Deployment,
        &ReplicaSet,
        &ReplicationController,
        &Job,
        &CronJob,
    ];
    for kind in kinds {
        assert_eq!(kind.warnings_on_create(&named("web")), [""; 0]);
        let told = kind.warnings_on_create(&named("web.1"));
        assert_eq!(told, [warning("Pod names and hostnames")]);
    }
}

#[test]
fn several_errors_are_listed_in_upstreams_order() {
    let mut pod = with(&pod(), "/spec/containers/0/image", json!(""));
    pod["spec"]["restartPolicy"] = json!("No");
    assert_eq!(
        create_errors(&Pod, pod),
        "[spec.containers[0].image: Required value, spec.restartPolicy: Unsupported value: \"No\": supported values: \"Always\", \"OnFailure\", \"Never\"]"
    );
}
