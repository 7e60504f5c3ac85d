//! Brings the roles and bindings of [`bootstrap_policy`] into the cluster and keeps at least what
//! they give.
//!
//! What somebody added stays, what somebody took away comes back at the next start, unless the
//! object says `rbac.authorization.kubernetes.io/autoupdate: "false"`.
//!
//! Source: `pkg/registry/rbac/rest/storage_rbac.go` and `pkg/registry/rbac/reconciliation` at
//! v1.37.

use coracle_api::{meta, status::Status};
use coracle_auth::authz::{
    bootstrap_policy, escalation,
    rule::{Pool, Rule},
};
use coracle_registry::{
    part::Part,
    resource::Resource,
    store::{WriteOptions, update::UpdateTarget},
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use crate::{error::ApiServerError, state::State};

const GROUP: &str = "rbac.authorization.k8s.io";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Written at once: the store commits them together.
const WRITES: usize = 64;

/// Makes and repairs all of them.
///
/// # Errors
/// [`ApiServerError::Bootstrap`] names the object.
pub(super) async fn ensure(server: &State) -> Result<(), ApiServerError> {
    let policy = bootstrap_policy::read();
    for objects in [policy.roles, policy.bindings] {
        let writes = objects
            .into_iter()
            .map(|object| ensure_object(server, object));
        futures::stream::iter(writes)
            .buffer_unordered(WRITES)
            .try_collect::<()>()
            .await?;
    }
    Ok(())
}

async fn ensure_object(server: &State, wanted: Value) -> Result<(), ApiServerError> {
    let plural = match wanted["kind"].as_str().unwrap_or_default() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        "ClusterRoleBinding" => "clusterrolebindings",
        _ => "rolebindings",
    };
    let fail = |status: Status| ApiServerError::Bootstrap {
        what: format!("{plural} {:?}", meta::name(&wanted)),
        message: status.message,
    };
    let Some(resource) = server.registry.get(GROUP, "v1", plural) else {
        return Ok(());
    };
    reconcile(server, resource, &wanted).await.map_err(fail)
}

async fn reconcile(server: &State, resource: &Resource, wanted: &Value) -> Result<(), Status> {
    let (namespace, name) = (meta::namespace(wanted), meta::name(wanted));
    let Some(current) = server
        .store
        .current(resource, &resource.key(namespace, name))
        .await?
    else {
        return create(server, resource, wanted).await;
    };
    if meta::annotation(&current.object, AUTO_UPDATE) == Some("false") {
        return Ok(());
    }
    if wanted.get("roleRef").is_some() && current.object["roleRef"] != wanted["roleRef"] {
        // What a binding refers to cannot be changed.
        match server
            .store
            .delete(resource, namespace, name, &Default::default())
            .await
        {
            Err(status) if status.code != 404 => return Err(status),
            _ => return create(server, resource, wanted).await,
        }
    }
    if completed(&current.object, wanted).is_none() {
        return Ok(());
    }
    let target = UpdateTarget::own(namespace, name, Part::Main);
    let changed = server.store.update(resource, &target, |old| {
        let mut new = completed(old, wanted).unwrap_or_else(|| old.clone());
        meta::remove(&mut new, &["metadata", "resourceVersion"]);
        Ok(new)
    });
    changed.await.map(|_| ())
}

async fn create(server: &State, resource: &Resource, wanted: &Value) -> Result<(), Status> {
    let created = server.store.create(
        resource,
        meta::namespace(wanted),
        wanted.clone(),
        WriteOptions::default(),
    );
    match created.await {
        Err(status) if status.code != 409 => Err(status),
        _ => Ok(()),
    }
}

/// `present` with everything that `wanted` has besides; `None` if it has everything.
fn completed(present: &Value, wanted: &Value) -> Option<Value> {
    let mut new = present.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            if present["metadata"][field][key] != *value {
                new["metadata"][field][key] = value.clone();
            }
        }
    }
    if let Some(aggregation) = wanted.get("aggregationRule") {
        // Its rules are the controller's.
        if present.get("aggregationRule").is_none() {
            new["aggregationRule"] = aggregation.clone();
        }
    } else if wanted.get("rules").is_some() {
        let mut pool = Pool::default();
        let own = Rule::parse_all(present, &mut pool);
        let missing = meta::get_array(wanted, &["rules"]).iter().filter(|rule| {
            !escalation::uncovered(&own, &[Rule::parse(rule, &mut pool)]).is_empty()
        });
        extend(&mut new, "rules", missing);
    }
    let present_subjects = meta::get_array(present, &["subjects"]);
    let missing = meta::get_array(wanted, &["subjects"])
        .iter()
        .filter(|subject| {
            let same = |other: &Value, field: &str| other[field] == subject[field];
            !present_subjects.iter().any(|other| {
                ["kind", "name", "namespace"]
                    .iter()
                    .all(|field| same(other, field))
            })
        });
    extend(&mut new, "subjects", missing);
    (new != *present).then_some(new)
}

fn extend<'a>(object: &mut Value, list: &str, more: impl Iterator<Item = &'a Value>) {
    let more: Vec<Value> = more.cloned().collect();
    if more.is_empty() {
        return;
    }
    match object[list].as_array_mut() {
        Some(present) => present.extend(more),
        None => object[list] = more.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_comes_back_and_what_is_more_stays() {
        let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
        let role = |rules: &[Value]| json!({"kind": "ClusterRole", "metadata": {"name": "r", "labels": {"a": "b"}}, "rules": rules});
        assert_eq!(
            completed(&role(&[rule("get")]), &role(&[rule("get")])),
            None
        );
        assert_eq!(
            completed(&role(&[rule("*")]), &role(&[rule("get")])),
            None,
            "covered"
        );
        assert_eq!(
            completed(&role(&[rule("list")]), &role(&[rule("get")])),
            Some(role(&[rule("list"), rule("get")]))
        );
        let binding = |subjects: Value| json!({"kind": "ClusterRoleBinding", "metadata": {}, "subjects": subjects});
        let (a, b) = (
            json!({"kind": "Group", "name": "a"}),
            json!({"kind": "Group", "name": "b"}),
        );
        assert_eq!(
            completed(&binding(json!([b])), &binding(json!([a]))),
            Some(binding(json!([b, a])))
        );
    }
}
