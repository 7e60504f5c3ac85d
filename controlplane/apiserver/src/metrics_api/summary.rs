//! A node's `/stats/summary`, in the words of `metrics.k8s.io`.

use coracle_api::{
    meta,
    status::{Reason, Status},
};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use crate::{
    state::State,
    subresource::stream::{
        location::{self, Target},
        node,
    },
};

/// Some 600 bytes a pod, 500 pods at most: far below.
const LIMIT: usize = 8 * 1024 * 1024;
/// Rates are over seconds; which, the node does not say.
const WINDOW: &str = "10s";

pub(super) struct Summary(Value);

impl Summary {
    /// Asks the agent of a node, given as stored.
    pub(super) async fn fetch(server: &State, node: &[u8]) -> Result<Self, Status> {
        let node: Value = serde_json::from_slice(node).map_err(Status::internal)?;
        let target = Target {
            agent: location::agent_on(server, &node)?,
            path_and_query: "/stats/summary".to_owned(),
        };
        let response = node::get(server, &target).await?;
        let (status, body) = (
            response.status(),
            Limited::new(response.into_body(), LIMIT).collect().await,
        );
        if !status.is_success() {
            return Err(Status::new(
                502,
                Reason::InternalError,
                format!("the node answered {status}"),
            ));
        }
        let body = body.map_err(Status::internal)?.to_bytes();
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(Status::internal)
    }

    /// With the time of the measurement.
    pub(super) fn timed(&self, mut item: Value) -> Value {
        item["timestamp"] = self.0["node"]["cpu"]["time"].clone();
        item["window"] = WINDOW.into();
        item
    }

    /// Of the whole node.
    pub(super) fn node(&self) -> Value {
        json!({"usage": usage(&self.0["node"])})
    }

    /// Of a pod's containers; `None` while the node has measured none.
    pub(super) fn pod(&self, uid: &str) -> Option<Value> {
        let pod = meta::get_array(&self.0, &["pods"])
            .iter()
            .find(|pod| pod["podRef"]["uid"] == uid)?;
        let containers = meta::get_array(pod, &["containers"]);
        let named =
            |container: &Value| json!({"name": container["name"], "usage": usage(container)});
        (!containers.is_empty())
            .then(|| json!({"containers": containers.iter().map(named).collect::<Vec<_>>()}))
    }
}

/// Rounded up: what is used at all is not nothing.
fn usage(of: &Value) -> Value {
    let cpu = meta::get_i64(of, &["cpu", "usageNanoCores"]).unwrap_or(0);
    let memory = meta::get_i64(of, &["memory", "workingSetBytes"])
        .unwrap_or(0)
        .max(0);
    json!({"cpu": format!("{cpu}n"), "memory": format!("{}Ki", memory.div_euclid(1024) + i64::from(memory % 1024 > 0))})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_become_metrics() {
        let container = json!({"name": "c", "cpu": {"usageNanoCores": 5000}, "memory": {"workingSetBytes": 2049}});
        let summary = Summary(json!({
            "node": {"cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": 7}, "memory": {"workingSetBytes": 1024}},
            "pods": [{"podRef": {"uid": "u"}, "containers": [container]}, {"podRef": {"uid": "idle"}, "containers": []}],
        }));
        let usage = |cpu, memory| json!({"cpu": cpu, "memory": memory});
        assert_eq!(summary.node(), json!({"usage": usage("7n", "1Ki")}));
        let expect = json!({"containers": [{"name": "c", "usage": usage("5000n", "3Ki")}]});
        assert_eq!(summary.pod("u"), Some(expect));
        assert_eq!((summary.pod("idle"), summary.pod("x")), (None, None));
        assert_eq!(
            summary.timed(json!({}))["timestamp"],
            "2026-01-01T00:00:00Z"
        );
    }
}
