//! The runtime handler that a pod's RuntimeClass names. Whether the runtime has it, the runtime
//! says.

use std::time::Duration;

use k8s_openapi::api::{core::v1::Pod, node::v1::RuntimeClass};

use crate::{objects::Objects, pod::PodExt, runtime::RuntimeError};

const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// Empty for a pod without a class.
///
/// # Errors
/// [`RuntimeError::InvalidConfig`] with the reason why the handler is not known: running the pod
/// otherwise would drop a wish for isolation.
pub(crate) async fn handler(objects: &Objects, pod: &Pod) -> Result<String, RuntimeError> {
    let Some(name) = pod
        .spec_or_default()
        .runtime_class_name
        .as_deref()
        .filter(|name| !name.is_empty())
    else {
        return Ok(String::new());
    };
    let refused = |why: String| RuntimeError::InvalidConfig {
        message: format!("RuntimeClass {name:?}: {why}"),
    };
    let api: kube::Api<RuntimeClass> = kube::Api::all(objects.client().clone());
    match tokio::time::timeout(FETCH_LIMIT, api.get_opt(name)).await {
        Ok(Ok(Some(class))) => Ok(class.handler),
        Ok(Ok(None)) => Err(refused("not found".to_owned())),
        Ok(Err(error)) => Err(refused(error.to_string())),
        Err(_) => Err(refused("timed out waiting for the API server".to_owned())),
    }
}
