//! StatefulSet: pods with names, places and volumes of their own.
//!
//! Source: `pkg/registry/apps/statefulset/strategy.go`, `pkg/apis/apps/validation` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, text},
    check, fill,
    kinds::{core::persistentvolumeclaim as claims, podspec, workload},
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{number, string},
};

/// The strategy of StatefulSets.
pub struct StatefulSet;

static INFO: ResourceInfo = ResourceInfo {
    kind: "StatefulSet",
    plural: "statefulsets",
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Ready", "Number of the pod with ready state"),
    AGE,
    CONTAINERS,
    IMAGES,
];

const MAY_CHANGE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

impl BuiltIn for StatefulSet {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::text(spec, "podManagementPolicy", "OrderedReady");
        let steps = [("partition", 0), ("maxUnavailable", 1)];
        workload::default_rolling_update(spec, "updateStrategy", &steps);
        fill::object(spec, "persistentVolumeClaimRetentionPolicy");
        fill::within(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
            fill::text(policy, "whenDeleted", "Retain");
            fill::text(policy, "whenScaled", "Retain");
        });
        fill::value(spec, "replicas", 1);
        fill::value(spec, "revisionHistoryLimit", 10);
        workload::default_template(spec);
        fill::each(spec, "volumeClaimTemplates", |claim| {
            // As upstream stores them: claims that are yet to be made have a kind and a phase, too.
            fill::text(claim, "apiVersion", "v1");
            fill::text(claim, "kind", "PersistentVolumeClaim");
            fill::object(claim, "metadata");
            claims::default(claim);
            fill::object(claim, "status");
            fill::within(claim, "status", |status| {
                fill::text(status, "phase", "Pending")
            });
        });
        fill::object(object, "status");
        fill::value(&mut object["status"], "replicas", 0);
        fill::value(&mut object["status"], "availableReplicas", 0);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"replicas": 0, "availableReplicas": 0})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check_spec(&mut errors, &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let mut masked = new["spec"].clone();
        let changeable = [
            "replicas",
            "template",
            "updateStrategy",
            "minReadySeconds",
            "ordinals",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
        ];
        for field in changeable {
            lifecycle::keep(&mut masked, &old["spec"], field);
        }
        if masked != old["spec"] {
            errors.forbidden("spec", MAY_CHANGE);
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let counts = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ];
        let at_most = [
            ("readyReplicas", "replicas"),
            ("currentReplicas", "replicas"),
            ("updatedReplicas", "replicas"),
            ("availableReplicas", "replicas"),
            ("availableReplicas", "readyReplicas"),
        ];
        workload::counts(&mut errors, &new["status"], &counts, &at_most);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        // Pods are named after it.
        name::dns_label_error(name)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let mut warnings = podspec::warnings::template("spec.template", &spec["template"]);
        if number(&spec["revisionHistoryLimit"]) < 0 {
            warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
        }
        warnings
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let [containers, images] = cells::containers_and_images(&object["spec"]["template"]);
        vec![
            cells::name(object),
            workload::ready_cell(object),
            cells::age(object, now_secs),
            containers,
            images,
        ]
    }
}

fn check_spec(errors: &mut FieldErrors, spec: &Value) {
    match string(&spec["podManagementPolicy"]) {
        "" => errors.required("spec.podManagementPolicy", ""),
        "OrderedReady" | "Parallel" => {}
        _ => {
            let message = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(
                "spec.podManagementPolicy",
                &spec["podManagementPolicy"],
                message,
            );
        }
    }
    update_strategy(errors, &spec["updateStrategy"]);
    for field in ["whenDeleted", "whenScaled"] {
        let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][field];
        check::optional_one_of(errors, &path, policy, &["Delete", "Retain"]);
    }
    check::not_negative(errors, "spec.replicas", &spec["replicas"]);
    check::not_negative(errors, "spec.minReadySeconds", &spec["minReadySeconds"]);
    check::not_negative(errors, "spec.ordinals.start", &spec["ordinals"]["start"]);
    let selector = &spec["selector"];
    workload::selector(errors, selector, "statefulset");
    let service = &spec["serviceName"];
    if !string(service).is_empty() {
        check::dns_subdomain(errors, "spec.serviceName", service);
    }
    // As upstream: neither the pods' spec nor the claims' are looked into; what is wrong shows when
    // pods are made.
    podspec::validate::selected_metadata(errors, "spec.template", &spec["template"], selector);
    workload::runs_forever(errors, &spec["template"], "StatefulSet");
}

fn update_strategy(errors: &mut FieldErrors, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    match string(&strategy["type"]) {
        "" => errors.required("spec.updateStrategy", ""),
        "OnDelete" if !rolling.is_null() => errors.invalid(
            "spec.updateStrategy.rollingUpdate",
            rolling,
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = "spec.updateStrategy.rollingUpdate";
            check::not_negative(errors, &format!("{path}.partition"), &rolling["partition"]);
            let unavailable = &rolling["maxUnavailable"];
            if !unavailable.is_null() {
                let path = format!("{path}.maxUnavailable");
                check::count_or_percent(errors, &path, unavailable);
                if check::count_or_percent_number(unavailable) == 0 {
                    errors.invalid(&path, unavailable, "cannot be 0");
                }
                check::at_most_100_percent(errors, &path, unavailable);
            }
        }
        _ => errors.invalid(
            "spec.updateStrategy",
            strategy,
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    fn stateful_set() -> Value {
        json!({"metadata": {"name": "db"}, "spec": {
            "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
                {"name": "c", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
        }})
    }

    #[test]
    fn defaults_are_upstreams() {
        let object = created(&StatefulSet, stateful_set());
        let spec = &object["spec"];
        assert_eq!(
            spec["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}})
        );
        assert_eq!(
            spec["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
        assert_eq!(
            spec["volumeClaimTemplates"][0]["kind"],
            "PersistentVolumeClaim"
        );
        assert_eq!(
            spec["volumeClaimTemplates"][0]["spec"]["volumeMode"],
            "Filesystem"
        );
        assert_eq!(
            spec["volumeClaimTemplates"][0]["status"]["phase"],
            "Pending"
        );
        assert_eq!(create_errors(&StatefulSet, stateful_set()), "");
    }

    #[test]
    fn stateful_sets_are_checked() {
        for (pointer, value, expect) in [
            (
                "/spec/podManagementPolicy",
                json!("x"),
                "spec.podManagementPolicy: Invalid value: \"x\": must be 'OrderedReady' or 'Parallel'",
            ),
            (
                "/spec/updateStrategy",
                json!({"type": "x"}),
                "spec.updateStrategy: Invalid value: {\"type\":\"x\"}: must be 'RollingUpdate' or 'OnDelete'",
            ),
            (
                "/spec/replicas",
                json!(-1),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "/spec/selector",
                json!({}),
                "spec.selector: Invalid value: {}: empty selector is invalid for statefulset",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
        ] {
            let object = with(&stateful_set(), pointer, value.clone());
            assert_eq!(
                create_errors(&StatefulSet, object),
                expect,
                "{pointer} = {value}"
            );
        }
    }

    #[test]
    fn only_some_fields_can_change() {
        let old = created(&StatefulSet, stateful_set());
        assert_eq!(
            update_errors(&StatefulSet, with(&old, "/spec/replicas", json!(3)), &old),
            ""
        );
        let errors = update_errors(
            &StatefulSet,
            with(&old, "/spec/serviceName", json!("x")),
            &old,
        );
        assert_eq!(errors, format!("spec: Forbidden: {MAY_CHANGE}"));
    }

    #[test]
    fn rows_show_readiness() {
        let mut object = created(&StatefulSet, stateful_set());
        object["status"] = json!({"readyReplicas": 1});
        assert_eq!(
            json!(StatefulSet.row(&object, 0)),
            json!(["db", "1/1", "<unknown>", "c", "i:1"])
        );
    }
}
