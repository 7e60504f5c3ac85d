//! What NetworkPolicies cost a pod that starts, where a hundred of them select it.

use hyper::Method;
use serde_json::{Value, json};

use crate::{client::Target, cluster::Bench, pods, report::Row};

const POLICIES: usize = 100;
const PAIRS: usize = 100;
const PATH: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
/// The group of the pods that they select.
const SELECTED: &str = "guarded";

impl Bench {
    pub(crate) fn policies(&mut self) -> anyhow::Result<()> {
        let found = self.within("policies")?;
        let ms = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        self.rows.push(Row::at_most(
            format!("pod create to Ready, p50 of pairs, {POLICIES} policies select it: more"),
            ms("longer_ms"),
            "ms",
            1.0,
        ));
        Ok(())
    }
}

pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    for n in 0..POLICIES {
        connection
            .json(Method::POST, PATH, Some(&policy(n)))
            .await?;
    }
    let mut longer = pods::longer(&target, SELECTED, PAIRS).await?;
    connection.json(Method::DELETE, PATH, None).await?;
    longer.sort_by(f64::total_cmp);
    Ok(json!({"longer_ms": longer[longer.len() / 2]}))
}

fn policy(n: usize) -> Value {
    let app = format!("app-{n}");
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": format!("policy-{n}")},
        "spec": {
            "podSelector": {"matchLabels": {"group": SELECTED}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"app": app}}}],
                "ports": [{"port": 8000 + n}],
            }],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": app}}}]}],
        },
    })
}
