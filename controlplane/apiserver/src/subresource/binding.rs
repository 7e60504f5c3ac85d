//! `pods/binding`, and `bindings` with the pod's name in the body: puts a pod on a node, once.
//!
//! Source: `pkg/registry/core/pod/storage/storage.go`, `assignPod` at v1.37.

use coracle_admission::{Operation, Request};
use coracle_api::{
    meta,
    resource::{GroupResource, Gvk},
    status::{FieldErrors, Status},
};
use coracle_registry::{object_meta::match_namespace_of_request, part::Part};
use serde_json::{Value, json};

use super::success;
use crate::{endpoints::Call, reply::Reply};

/// Binds the pod of the URL.
pub(crate) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    let decoded = call.decode(&gvk())?;
    let mut binding = decoded.object;
    match_namespace_of_request(&call.info.namespace, &mut binding)?;
    // What is made is the Binding; the pod that changes by it is not shown to admission, as
    // upstream's is not.
    let request = call.admission_request(Operation::Create, call.write_options()?);
    let mutated = call
        .server
        .mutated(request.about(&mut binding, None))
        .await?;
    let name = call.info.name.as_ref();
    if !matches!(meta::name(&binding), own if own.is_empty() || own == name) {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let told = bind(call, &request, &mut binding).await?;
    let warnings = [decoded.warnings, mutated.warnings, told].concat();
    Ok(success().with_warnings(warnings))
}

/// Binds the pod that `call` names as `binding` says, which comes from the first half of admission.
/// The answer is what the second half tells the client.
pub(crate) async fn bind(
    call: &Call<'_>,
    request: &Request<'_>,
    binding: &mut Value,
) -> Result<Vec<String>, Status> {
    let name = call.info.name.as_ref();
    check(binding).map_err(|errors| Status::invalid(&gvk(), name, errors))?;
    let validated = call.server.validated(request.about(binding, None)).await?;
    let manager = call.field_manager();
    let target = call.update_target(Part::Internal, request.options, &manager);
    let bind = |pod: &Value| {
        // The resource of upstream's answer, which the scheduler's log shows.
        let subject = GroupResource::new("", "pods/binding");
        let conflict = |why: String| Status::conflict(&subject, name, why);
        assign(pod, binding).map_err(conflict)
    };
    call.server
        .store
        .update(call.resource, &target, bind)
        .await?;
    Ok(validated.warnings)
}

/// Of a Binding.
pub(crate) fn gvk() -> Gvk {
    Gvk::new("", "v1", "Binding")
}

fn check(binding: &Value) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    let kind = meta::get_str(binding, &["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        errors.not_supported("target.kind", &json!(kind), &["Node", "<empty>"]);
    }
    if meta::get_str(binding, &["target", "name"]).is_empty() {
        errors.required("target.name", "");
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// The pod on its node, or why it cannot go there.
fn assign(pod: &Value, binding: &Value) -> Result<Value, String> {
    let name = meta::name(pod);
    if meta::is_terminating(pod) {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let present = meta::get_str(pod, &["spec", "nodeName"]);
    if !present.is_empty() {
        return Err(format!(
            "pod {name} is already assigned to node {present:?}"
        ));
    }
    if !meta::get_array(pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    for field in ["uid", "resourceVersion"] {
        // Preconditions of the binding, if it has any.
        match meta::text(binding, field) {
            "" if field == "resourceVersion" => {
                drop(meta::remove(&mut bound, &["metadata", field]))
            }
            "" => {}
            wanted => meta::set_text(&mut bound, field, wanted),
        }
    }
    meta::set(
        &mut bound,
        &["spec", "nodeName"],
        meta::get_str(binding, &["target", "name"]),
    );
    for (key, value) in meta::annotations(binding).into_iter().flatten() {
        meta::set_annotation(&mut bound, key, value.as_str().unwrap_or_default());
    }
    for (key, value) in meta::labels(binding).into_iter().flatten() {
        meta::set(&mut bound, &["metadata", "labels", key], value.clone());
    }
    // It was about where the pod would go.
    drop(meta::remove(&mut bound, &["status", "nominatedNodeName"]));
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::now(),
        "observedGeneration": meta::generation(pod),
    });
    let conditions = meta::get_array(pod, &["status", "conditions"]);
    let mut conditions: Vec<Value> = conditions
        .iter()
        .filter(|one| one["type"] != "PodScheduled")
        .cloned()
        .collect();
    conditions.push(condition);
    meta::set(&mut bound, &["status", "conditions"], conditions);
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_bindings_labels_and_is_nominated_no_more() {
        let binding = json!({"target": {"name": "n1"},
            "metadata": {"labels": {"zone": "a", "new": "1"}, "annotations": {"by": "x"}}});
        let pod = json!({"metadata": {"name": "p", "labels": {"zone": "b", "app": "web"}}, "spec": {},
            "status": {"nominatedNodeName": "n0", "phase": "Pending"}});
        let bound = assign(&pod, &binding).unwrap();
        let labels = json!({"zone": "a", "new": "1", "app": "web"});
        assert_eq!(bound["metadata"]["labels"], labels);
        assert_eq!(bound["metadata"]["annotations"], json!({"by": "x"}));
        assert_eq!(bound["status"]["phase"], "Pending");
        assert!(bound["status"].get("nominatedNodeName").is_none());
    }

    #[test]
    fn a_pod_is_bound_once() {
        let binding = json!({"target": {"kind": "Node", "name": "n1"}});
        let pod = json!({"metadata": {"name": "p", "resourceVersion": "3"}, "spec": {}});
        let bound = assign(&pod, &binding).unwrap();
        assert_eq!(bound["spec"]["nodeName"], "n1");
        assert_eq!(bound["status"]["conditions"][0]["status"], "True");
        assert_eq!(
            assign(&bound, &binding).unwrap_err(),
            "pod p is already assigned to node \"n1\""
        );
    }
}
