//! DaemonSet: one pod a node.
//!
//! Source: `pkg/registry/apps/daemonset/strategy.go`, `pkg/apis/apps/validation` at v1.37.

use coracle_api::{selector::LabelSelector, status::FieldErrors};
use serde_json::Value;

use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, integer, text, wide},
    check, fill,
    kinds::{podspec, workload},
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{number, string},
};

/// The strategy of DaemonSets.
pub struct DaemonSet;

static INFO: ResourceInfo = ResourceInfo {
    kind: "DaemonSet",
    plural: "daemonsets",
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    integer(
        "Current",
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    integer(
        "Ready",
        "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod running with a Ready Condition.",
    ),
    integer(
        "Up-to-date",
        "The total number of nodes that are running updated daemon pod",
    ),
    integer(
        "Available",
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)",
    ),
    text(
        "Node Selector",
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

/// Counts of the status that are always there.
const COUNTS: [&str; 4] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
];

impl BuiltIn for DaemonSet {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for DaemonSet {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        let steps = [("maxUnavailable", 1), ("maxSurge", 0)];
        workload::default_rolling_update(spec, "updateStrategy", &steps);
        fill::value(spec, "revisionHistoryLimit", 10);
        workload::default_template(spec);
        fill::object(object, "status");
        for field in COUNTS {
            fill::value(&mut object["status"], field, 0);
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        COUNTS.iter().map(|field| (*field, 0)).collect()
    }

    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::create(self, object);
        set_template_generation(object, 1);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::update(self, new, old);
        let before = template_generation(old);
        let changed = new["spec"]["template"] != old["spec"]["template"];
        set_template_generation(new, before + i64::from(changed));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check_spec(&mut errors, &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.selector", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let more = [
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        let counts = [&COUNTS[..], &more].concat();
        workload::counts(&mut errors, &new["status"], &counts, &[]);
        errors
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        podspec::warnings::template("spec.template", &object["spec"]["template"])
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [containers, images] = cells::containers_and_images(&spec["template"]);
        vec![
            cells::name(object),
            number(&status["desiredNumberScheduled"]).into(),
            number(&status["currentNumberScheduled"]).into(),
            number(&status["numberReady"]).into(),
            number(&status["updatedNumberScheduled"]).into(),
            number(&status["numberAvailable"]).into(),
            cells::labels(&spec["template"]["spec"]["nodeSelector"]).into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&spec["selector"]).into(),
        ]
    }
}

/// A field of older versions, which this one shows as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    let count = string(&object["metadata"]["annotations"][TEMPLATE_GENERATION]);
    count.parse().unwrap_or(0)
}

/// Counts templates; a client cannot set it.
fn set_template_generation(object: &mut Value, count: i64) {
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = count.to_string().into();
}

fn check_spec(errors: &mut FieldErrors, spec: &Value) {
    let selector = &spec["selector"];
    check::label_selector(errors, "spec.selector", selector);
    let labels = &spec["template"]["metadata"]["labels"];
    let matches = LabelSelector::from_object(selector)
        .is_ok_and(|selector| selector.matches(|key| labels[key].as_str()));
    if !check::selector_is_empty(selector) && !matches {
        let message = "`selector` does not match template `labels`";
        errors.invalid("spec.template.metadata.labels", labels, message);
    }
    if check::selector_is_empty(selector) {
        errors.invalid(
            "spec.selector",
            selector,
            "empty selector is invalid for daemonset",
        );
    }
    podspec::validate::template(errors, "spec.template", &spec["template"]);
    workload::runs_forever(errors, &spec["template"], "DaemonSet");
    check::not_negative(errors, "spec.minReadySeconds", &spec["minReadySeconds"]);
    update_strategy(errors, &spec["updateStrategy"]);
    check::not_negative(
        errors,
        "spec.revisionHistoryLimit",
        &spec["revisionHistoryLimit"],
    );
}

fn update_strategy(errors: &mut FieldErrors, strategy: &Value) {
    const PATH: &str = "spec.updateStrategy.rollingUpdate";
    let rolling = &strategy["rollingUpdate"];
    match string(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => errors.required(PATH, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (unavailable_path, surge_path) =
                (format!("{PATH}.maxUnavailable"), format!("{PATH}.maxSurge"));
            for (path, value) in [(&unavailable_path, unavailable), (&surge_path, surge)] {
                check::count_or_percent(errors, path, value);
                check::at_most_100_percent(errors, path, value);
            }
            let (has_unavailable, has_surge) = (
                check::count_or_percent_number(unavailable) != 0,
                check::count_or_percent_number(surge) != 0,
            );
            if has_unavailable && has_surge {
                errors.invalid(
                    surge_path,
                    surge,
                    "may not be set when maxUnavailable is non-zero",
                );
            } else if !has_unavailable && !has_surge {
                errors.required(unavailable_path, "cannot be 0 when maxSurge is 0");
            }
        }
        _ => errors.not_supported(
            "spec.updateStrategy",
            strategy,
            &["RollingUpdate", "OnDelete"],
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    fn daemon_set() -> Value {
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
    }

    #[test]
    fn defaults_are_upstreams() {
        let object = created(&DaemonSet, daemon_set());
        assert_eq!(
            object["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
        );
        assert_eq!(object["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(object["status"]["numberReady"], 0);
        assert_eq!(create_errors(&DaemonSet, daemon_set()), "");
    }

    #[test]
    fn templates_are_counted_and_by_the_server_alone() {
        let count = |object: &Value| template_generation(object);
        let with_count = with(
            &daemon_set(),
            "/metadata/annotations",
            json!({TEMPLATE_GENERATION: "7"}),
        );
        let old = created(&DaemonSet, with_count);
        assert_eq!(count(&old), 1);
        let mut new = with(&old, "/spec/minReadySeconds", json!(1));
        new["metadata"]["annotations"] = Value::Null;
        DaemonSet.prepare_for_update(&mut new, &old);
        assert_eq!(
            (count(&new), &new["metadata"]["generation"]),
            (1, &json!(2))
        );
        let mut newer = with(&new, "/spec/template/spec/containers/0/image", json!("i:2"));
        DaemonSet.prepare_for_update(&mut newer, &new);
        assert_eq!(count(&newer), 2);
    }

    #[test]
    fn daemon_sets_are_checked() {
        let rolling = "/spec/updateStrategy";
        for (pointer, value, expect) in [
            (
                "/spec/selector",
                json!({}),
                "spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
            ),
            (
                "/spec/selector",
                json!({"matchLabels": {"a": "b"}}),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match template `labels`",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (
                rolling,
                json!({"rollingUpdate": {"maxUnavailable": 0}}),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ),
            (
                rolling,
                json!({"rollingUpdate": {"maxSurge": 1}}),
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            ),
        ] {
            assert_eq!(
                create_errors(&DaemonSet, with(&daemon_set(), pointer, value.clone())),
                expect,
                "{value}"
            );
        }
        let old = created(&DaemonSet, daemon_set());
        let mut new = with(&old, "/spec/selector/matchLabels", json!({"b": "c"}));
        new["spec"]["template"]["metadata"]["labels"] = json!({"b": "c"});
        assert_eq!(
            update_errors(&DaemonSet, new, &old),
            "spec.selector: Invalid value: {\"matchLabels\":{\"b\":\"c\"}}: field is immutable"
        );
    }

    #[test]
    fn rows_count_nodes() {
        let mut object = created(&DaemonSet, daemon_set());
        object["status"]["desiredNumberScheduled"] = json!(3);
        assert_eq!(
            json!(DaemonSet.row(&object, 0)),
            json!([
                "d",
                3,
                0,
                0,
                0,
                0,
                "<none>",
                "<unknown>",
                "c",
                "i:1",
                "app=d"
            ])
        );
    }
}
