//! What a pod may require of its place and this scheduler does not know how to see to. Such a pod waits: placed as if it had
//! not asked, two members of a quorum would share a node, or a database would start without its disk.

use k8s_openapi::api::core::v1::PodSpec;

/// The requirements of a pod that cannot be met yet, in words that follow "does not support".
pub(super) fn unsupported(spec: &PodSpec) -> Vec<&'static str> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let near = near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let apart = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    let volumes = || spec.volumes.iter().flatten();
    let table = [
        (near.is_some_and(|terms| !terms.is_empty()), "required pod affinity"),
        (apart.is_some_and(|terms| !terms.is_empty()), "required pod anti-affinity"),
        (
            spec.topology_spread_constraints.iter().flatten().any(|c| c.when_unsatisfiable == "DoNotSchedule"),
            "topology spread constraints with whenUnsatisfiable: DoNotSchedule",
        ),
        (spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()), "resource claims"),
        (volumes().any(|volume| volume.persistent_volume_claim.is_some()), "persistent volume claims"),
        (volumes().any(|volume| volume.ephemeral.is_some()), "ephemeral volume claims"),
    ];
    table.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::framework::testing::pod_with;

    #[test]
    fn only_what_is_required_holds_a_pod_back() {
        let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let preferred =
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]});
        let none = json!({"requiredDuringSchedulingIgnoredDuringExecution": []});
        let spread = |how: &str| json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": how}]);
        let cases: [(Value, &[&str]); 9] = [
            (json!({}), &[]),
            (json!({"affinity": {"podAffinity": preferred, "podAntiAffinity": none}}), &[]),
            (json!({"affinity": {"podAntiAffinity": required}}), &["required pod anti-affinity"]),
            (json!({"affinity": {"podAffinity": required}}), &["required pod affinity"]),
            (json!({"topologySpreadConstraints": spread("ScheduleAnyway")}), &[]),
            (
                json!({"topologySpreadConstraints": spread("DoNotSchedule"), "resourceClaims": [{"name": "gpu"}]}),
                &["topology spread constraints with whenUnsatisfiable: DoNotSchedule", "resource claims"],
            ),
            (json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/x"}}]}), &[]),
            (
                json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
                &["persistent volume claims"],
            ),
            (json!({"volumes": [{"name": "v", "ephemeral": {}}]}), &["ephemeral volume claims"]),
        ];
        for (mut spec, expected) in cases {
            spec["containers"] = json!([]);
            assert_eq!(pod_with("p", spec.clone()).unsupported, expected, "{spec}");
        }
    }
}
