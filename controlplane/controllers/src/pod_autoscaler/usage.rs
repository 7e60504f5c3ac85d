//! What the pods of a workload use, asked of `metrics.k8s.io`.
//!
//! Source: `pkg/controller/podautoscaler/metrics/client.go` at v1.37.

use std::{collections::BTreeMap, time::Duration};

use coracle_api::quantity;
use coracle_client::errors::message_of;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use kube::{
    Client,
    api::{ListParams, ObjectMeta, Request},
};
use serde::Deserialize;

use super::replicas::{Sample, Samples};

/// For all nodes that have pods of it, of which each may take some seconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// What one pod uses.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PodMetrics {
    metadata: ObjectMeta,
    timestamp: Time,
    window: kube::core::Duration,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
struct PodMetricsList {
    items: Vec<PodMetrics>,
}

/// Asks for all pods that `selector` selects.
///
/// # Errors
/// The text for the user, as upstream says it.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> Result<Vec<PodMetrics>, String> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let failed = |why: &str| format!("unable to fetch metrics from resource metrics API: {why}");
    let request = Request::new(path).list(&ListParams::default().labels(selector));
    let request = request.map_err(|error| failed(&error.to_string()))?;
    let asked = client.request::<PodMetricsList>(request);
    let list = match tokio::time::timeout(DEADLINE, asked).await {
        Ok(Ok(list)) => list,
        Ok(Err(error)) => return Err(failed(&message_of(&error))),
        Err(_) => return Err(failed("no answer in time")),
    };
    if list.items.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    Ok(list.items)
}

/// What each pod, or one container of each, uses of `resource`. A pod of which that is not known in
/// full is left out.
pub(super) fn samples(metrics: &[PodMetrics], resource: &str, container: Option<&str>) -> Samples {
    let sample = |pod: &PodMetrics| {
        let value = match container {
            Some(name) => pod
                .containers
                .iter()
                .find(|container| container.name == name)?
                .used(resource)?,
            None if pod.containers.is_empty() => return None,
            None => pod
                .containers
                .iter()
                .map(|container| container.used(resource))
                .try_fold(0_i64, |sum, used| Some(sum.saturating_add(used?)))?,
        };
        let sample = Sample {
            at: pod.timestamp.0,
            window: pod.window.into(),
            value,
        };
        Some((pod.metadata.name.clone()?, sample))
    };
    metrics.iter().filter_map(sample).collect()
}

impl ContainerMetrics {
    /// In thousandths.
    fn used(&self, resource: &str) -> Option<i64> {
        let amount = quantity::Quantity::parse(&self.usage.get(resource)?.0).ok()?;
        Some(amount.milli_value())
    }
}
