//! Who has the annotation of mirror pods is forgiven much, so that nobody takes it.

use serde_json::{Value, json};

use super::{Pod, pod};
use crate::{
    kinds::{core::podtemplate::PodTemplate, podspec},
    strategy::Strategy as _,
    testing::{create_errors, created, update_errors, with},
};

const AT: &str = "metadata.annotations[kubernetes.io/config.mirror]";
const UNBOUND: &str = "must set spec.nodeName if mirror pod annotation is set";

fn annotated(pod: &Value, annotations: Value) -> Value {
    with(pod, "/metadata/annotations", annotations)
}

fn mirror(pod: &Value, hash: &str) -> Value {
    annotated(pod, json!({"kubernetes.io/config.mirror": hash}))
}

#[test]
fn a_mirror_is_of_what_runs_on_a_node_already() {
    let unbound = mirror(&pod(), "x");
    assert_eq!(
        create_errors(&Pod, unbound.clone()),
        format!("{AT}: Invalid value: \"x\": {UNBOUND}")
    );
    assert_eq!(
        create_errors(&Pod, with(&unbound, "/spec/nodeName", json!("n1"))),
        ""
    );
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": unbound["spec"], "metadata": {
        "annotations": unbound["metadata"]["annotations"]}}});
    let expect = format!(
        "template.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": {UNBOUND}"
    );
    assert_eq!(create_errors(&PodTemplate, template), expect);
    let mut errors = coracle_api::status::FieldErrors::new();
    let template = json!({"metadata": unbound["metadata"], "spec": {}});
    podspec::validate::selected_metadata(&mut errors, "template", &template, &json!({}));
    assert_eq!(errors.to_string(), expect, "of a StatefulSet");
}

#[test]
fn nobody_makes_a_pod_a_mirror_or_a_mirror_a_pod() {
    let bound = created(&Pod, with(&pod(), "/spec/nodeName", json!("n1")));
    let is = mirror(&bound, "x");
    let added = format!("{AT}: Forbidden: may not add mirror pod annotation");
    let changed = format!("{AT}: Forbidden: may not remove or update mirror pod annotation");
    let status_errors = |new: &Value, old: &Value| Pod.validate_status_update(new, old).to_string();
    for (new, old, expect) in [
        (&is, &bound, added.as_str()),
        (&bound, &is, &changed),
        (&mirror(&bound, "y"), &is, &changed),
        (&mirror(&bound, ""), &bound, &added),
    ] {
        assert_eq!(update_errors(&Pod, new.clone(), old), expect);
        assert_eq!(status_errors(new, old), expect, "with its status");
    }
    let more = annotated(&is, json!({"kubernetes.io/config.mirror": "x", "a": "b"}));
    assert_eq!(update_errors(&Pod, more.clone(), &is), "");
    assert_eq!(Pod.validate_status_update(&more, &is).len(), 0);
    let unbound = created(&Pod, pod());
    let both = format!("[{AT}: Invalid value: \"x\": {UNBOUND}, {added}]");
    assert_eq!(update_errors(&Pod, mirror(&unbound, "x"), &unbound), both);
}
