//! Policies as an operator makes them for its users: typed, and by server-side apply.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
    },
    core::v1::ConfigMap,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{api, code, config_map, made, namespace, until};

const V1: &str = "admissionregistration.k8s.io/v1";

/// ConfigMaps of our namespace with a label that says so.
fn constraints(prefix: &str) -> Value {
    json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace()}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps"]}],
        "matchPolicy": "Equivalent", "objectSelector": {"matchLabels": {"of": prefix}}})
}

fn of(prefix: &str, name: &str, data: Value) -> Result<ConfigMap> {
    let mut object = config_map(name, data);
    object["metadata"]["labels"] = json!({"of": prefix});
    made(object)
}

/// A validating policy with its binding: what it says, its status, and that it goes.
pub(crate) async fn validating(client: Client) -> Result<()> {
    let name = format!("rust-{}", namespace());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let maps: Api<ConfigMap> = api(&client);
    let post = PostParams::default();
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": constraints("valid"),
        "variables": [{"name": "size", "expression": "has(object.data) ? size(object.data) : 0"}],
        "validations": [{"expression": "variables.size <= 1", "messageExpression": "'too many: ' + string(variables.size)",
            "reason": "RequestEntityTooLarge"}]}});
    let created = policies.create(&post, &made(policy)?).await?;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    bindings.create(&post, &made(binding)?).await?;
    until("the policy is seen", || async {
        let status = policies.get_status(&name).await?.status;
        let seen = status.and_then(|status| status.observed_generation);
        Ok(seen == created.metadata.generation)
    })
    .await?;
    until("it refuses", || async {
        let tried = maps
            .create(&post, &of("valid", "many", json!({"a": "1", "b": "2"}))?)
            .await;
        let Err(kube::Error::Api(status)) = tried else {
            maps.delete("many", &DeleteParams::default()).await?;
            return Ok(false);
        };
        ensure!(status.code == 413, "{status:?}");
        ensure!(
            status.message.contains("denied request: too many: 2"),
            "{status:?}"
        );
        Ok(true)
    })
    .await?;
    maps.create(&post, &of("valid", "few", json!({"a": "1"}))?)
        .await?;
    let more = Patch::Merge(json!({"data": {"b": "2"}}));
    let patched = maps.patch("few", &PatchParams::default(), &more).await;
    ensure!(code(patched) == 413, "an update is one of its operations");
    bindings.delete(&name, &DeleteParams::default()).await?;
    policies.delete(&name, &DeleteParams::default()).await?;
    until("it has gone", || async {
        let tried = maps.patch("few", &PatchParams::default(), &more).await;
        Ok(tried.is_ok())
    })
    .await
}

/// A mutating policy with its binding, both applied.
pub(crate) async fn mutating(client: Client) -> Result<()> {
    let name = format!("rust-{}", namespace());
    let policies: Api<MutatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<MutatingAdmissionPolicyBinding> = Api::all(client.clone());
    let maps: Api<ConfigMap> = api(&client);
    let apply = PatchParams::apply("kube-rs");
    let expression = "Object{metadata: Object.metadata{labels: {'made-by': request.userInfo.username.split(':')[0]}}}";
    let policy = json!({"apiVersion": V1, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": constraints("mutated"), "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]}});
    policies.patch(&name, &apply, &Patch::Apply(policy)).await?;
    let binding = json!({"apiVersion": V1, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name}});
    let bound = bindings
        .patch(&name, &apply, &Patch::Apply(binding))
        .await?;
    let managers = bound.managed_fields();
    let manager = managers.first().context("nobody owns a field")?;
    ensure!(manager.manager.as_deref() == Some("kube-rs"), "{manager:?}");
    let dry_run = PostParams {
        dry_run: true,
        field_manager: None,
    };
    until("it labels", || async {
        let tried = maps
            .create(&dry_run, &of("mutated", "m", json!({}))?)
            .await?;
        Ok(tried.labels().contains_key("made-by"))
    })
    .await?;
    bindings.delete(&name, &DeleteParams::default()).await?;
    policies.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
