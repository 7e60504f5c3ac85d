//! Labels of a new pod that become part of its selectors.

use serde_json::{Value, json};

use super::{Pod, pod};
use crate::testing::{create_errors, created, update_errors};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn term(more: Value) -> Value {
    let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}});
    for (field, value) in more.as_object().unwrap() {
        term[field] = value.clone();
    }
    term
}

fn of(spec: Value) -> Value {
    let mut pod = pod();
    pod["metadata"]["labels"] = json!({"app": "web", "hash": "1", "tenant": "t"});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn affinity(kind: &str, more: Value) -> Value {
    of(json!({"affinity": {kind: {REQUIRED: [term(more)]}}}))
}

#[test]
fn labels_become_part_of_the_selectors_that_name_their_keys() {
    let keys = json!({"matchLabelKeys": ["hash", "absent"], "mismatchLabelKeys": ["tenant"]});
    let merged = json!([
        {"key": "hash", "operator": "In", "values": ["1"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t"]},
    ]);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pod = created(&Pod, affinity(kind, keys.clone()));
        let selector = &pod["spec"]["affinity"][kind][REQUIRED][0]["labelSelector"];
        assert_eq!(selector["matchExpressions"], merged, "{kind}");
        assert_eq!(selector["matchLabels"], json!({"app": "web"}));
    }
    let weighted = json!({"weight": 1, "podAffinityTerm": term(keys.clone())});
    let pod = of(json!({"affinity": {"podAffinity": {PREFERRED: [weighted]}}}));
    let pod = created(&Pod, pod);
    let term_of = &pod["spec"]["affinity"]["podAffinity"][PREFERRED][0]["podAffinityTerm"];
    assert_eq!(term_of["labelSelector"]["matchExpressions"], merged);
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "matchLabelKeys": ["hash"]});
    let pod = of(json!({"topologySpreadConstraints": [spread]}));
    let stored = created(&Pod, pod.clone());
    let selector = &stored["spec"]["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(selector["matchExpressions"].as_array().unwrap().len(), 2);
    assert_eq!(selector["matchExpressions"][1], merged[0]);
    assert_eq!(create_errors(&Pod, pod), "");
    assert_eq!(update_errors(&Pod, stored.clone(), &stored), "");
}

#[test]
fn keys_of_labels_are_checked() {
    let at = format!("spec.affinity.podAffinity.{REQUIRED}[0]");
    for (more, expected) in [
        (json!({"matchLabelKeys": ["hash"]}), String::new()),
        (
            json!({"matchLabelKeys": ["hash"], "labelSelector": null}),
            format!(
                "{at}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"
            ),
        ),
        (
            json!({"matchLabelKeys": ["app"]}),
            format!(
                "{at}[0]: Invalid value: \"app\": exists in both matchLabelKeys and labelSelector"
            ),
        ),
        (
            json!({"matchLabelKeys": ["absent"], "mismatchLabelKeys": ["absent"]}),
            format!(
                "{at}.matchLabelKeys[0]: Invalid value: \"absent\": exists in both matchLabelKeys and mismatchLabelKeys"
            ),
        ),
    ] {
        let errors = create_errors(&Pod, affinity("podAffinity", more.clone()));
        assert_eq!(errors, expected, "{more}");
    }
    let bad = affinity("podAffinity", json!({"mismatchLabelKeys": ["a b"]}));
    let errors = create_errors(&Pod, bad);
    let start =
        format!("{at}.mismatchLabelKeys[0]: Invalid value: \"a b\": name part must consist of");
    assert!(errors.starts_with(&start), "{errors}");
}
