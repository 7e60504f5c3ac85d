//! What upstream's built-in mutating admission plugins add to new pods: account and token, priority, tolerations,
//! what the runtime class says.
//!
//! What they depend on is looked up first, so that adding is pure. It happens after the creator of the pod came to own
//! its fields: nobody owns what is added.
//!
//! Source: `plugin/pkg/admission/{serviceaccount,priority,defaulttolerationseconds,runtimeclass}` at v1.37.

use coracle_api::{meta, status::Status};
use coracle_registry::{
    cells::{items, string},
    fill,
    resource::Resource,
};
use serde_json::{Value, json};

use super::{priority, runtime_class, service_account};
use crate::{admission::node_restriction::names_secrets, state::State};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long a pod stays on a node that is gone.
const TOLERATION_SECS: i64 = 300;

/// The objects that a new pod depends on.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// The ServiceAccount.
    pub(super) account: Value,
    /// The PriorityClass, named or global.
    pub(super) class: Value,
    /// The RuntimeClass, if one is named.
    pub(super) runtime: Value,
}

impl Surroundings {
    /// Those of `object`; `None` if it is no pod.
    ///
    /// # Errors
    /// 403 for an account or a class that does not exist, and for a mirror pod that refers to what it may not.
    pub(crate) async fn of(
        server: &State,
        resource: &Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<Option<Self>, Status> {
        if !resource.is_core("pods") {
            return Ok(None);
        }
        let account = if is_mirror(object) {
            check_mirror(object).map_err(|why| refuse(resource, object, &why))?;
            Value::Null
        } else {
            let name = service_account::name(&object["spec"]);
            let account = service_account::look_up(server, namespace, name).await?;
            account.map_err(|why| refuse(resource, object, &why))?
        };
        let class = priority::look_up(server, string(&object["spec"]["priorityClassName"])).await?;
        let class = class.map_err(|why| refuse(resource, object, &why))?;
        let runtime = runtime_class::look_up(server, string(&object["spec"]["runtimeClassName"])).await?;
        let runtime = runtime.map_err(|why| refuse(resource, object, &why))?;
        Ok(Some(Self { account, class, runtime }))
    }

    /// Adds everything, in upstream's order.
    ///
    /// # Errors
    /// 403 for a priority that is not the class's.
    pub(crate) fn admit(&self, resource: &Resource, pod: &mut Value) -> Result<(), Status> {
        self.add(pod).map_err(|why| refuse(resource, pod, &why))
    }

    pub(crate) fn add(&self, pod: &mut Value) -> Result<(), String> {
        let is_mirror = is_mirror(pod);
        let Some(spec) = pod.get_mut("spec") else { return Ok(()) };
        // A mirror of a static pod is what the node says it is.
        if !is_mirror {
            service_account::fill(spec, &self.account);
        }
        priority::fill(spec, &self.class)?;
        tolerations(spec);
        runtime_class::fill(spec, &self.runtime)
    }
}

fn is_mirror(pod: &Value) -> bool {
    meta::annotation(pod, MIRROR).is_some()
}

fn check_mirror(pod: &Value) -> Result<(), String> {
    if !string(&pod["spec"]["serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if names_secrets(pod) {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    Ok(())
}

fn refuse(resource: &Resource, pod: &Value, why: &str) -> Status {
    let name = match meta::name(pod) {
        "" => meta::generate_name(pod),
        name => name,
    };
    Status::forbidden(&resource.group_resource, name, why)
}

/// Lets the pod stay for a while on a node that is not ready or not reachable, unless it says itself for how long.
fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(&spec["tolerations"]).iter().any(|toleration| {
            let (own_key, effect) = (string(&toleration["key"]), string(&toleration["effect"]));
            (own_key == key || own_key.is_empty()) && matches!(effect, "NoExecute" | "")
        });
        if !tolerated {
            let toleration =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECS});
            push(spec, "tolerations", toleration);
        }
    }
}

/// Appends to a list that may be absent.
pub(super) fn push(object: &mut Value, list: &str, item: Value) {
    fill::value(object, list, Vec::<Value>::new());
    if let Some(list) = object[list].as_array_mut() {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
        Surroundings::default().add(&mut pod).unwrap();
        pod["spec"].take()
    }

    #[test]
    fn a_mirror_pod_gets_no_account_and_may_not_ask_for_one() {
        let mut pod = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {}});
        Surroundings::default().add(&mut pod).unwrap();
        assert!(pod["spec"]["serviceAccountName"].is_null());
        assert_eq!(check_mirror(&pod), Ok(()));
        pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
        assert_eq!(check_mirror(&pod).unwrap_err(), "a mirror pod may not reference secrets");
        pod["spec"]["serviceAccountName"] = "robot".into();
        assert_eq!(check_mirror(&pod).unwrap_err(), "a mirror pod may not reference service accounts");
    }

    #[test]
    fn own_tolerations_win() {
        let spec = admitted(json!({"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}));
        assert_eq!(items(&spec["tolerations"]).len(), 2);
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 5);
        assert_eq!(spec["tolerations"][1]["key"], "node.kubernetes.io/unreachable");
        let spec = admitted(json!({"tolerations": [{"operator": "Exists"}]}));
        assert_eq!(items(&spec["tolerations"]).len(), 1);
    }
}
