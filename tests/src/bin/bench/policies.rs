//! What NetworkPolicies cost a pod that starts, where a hundred of them select it.

use hyper::Method;
use serde_json::{Value, json};

use crate::{
    client::Target,
    cluster::Bench,
    pods,
    report::{Row, percentile},
};

const POLICIES: usize = 100;
/// With and without them in turns, as a machine gets faster and slower.
const ROUNDS: usize = 4;
const PODS: usize = 20;
const PATH: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";

impl Bench {
    pub(crate) fn policies(&mut self) -> anyhow::Result<()> {
        let found = self.within("policies")?;
        let ms = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        let (without, with) = (ms("without_ms"), ms("with_ms"));
        self.rows.push(Row::at_most(
            format!("pod create to Ready, p50, {POLICIES} policies select it: more"),
            with - without,
            "ms",
            1.0,
        ));
        Ok(())
    }
}

pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    pods::serial(&target, "warm", PODS).await?;
    for round in 0..ROUNDS {
        let (starts, _) = pods::serial(&target, &format!("free-{round}"), PODS).await?;
        without.extend(starts);
        for n in 0..POLICIES {
            connection
                .json(Method::POST, PATH, Some(&policy(n)))
                .await?;
        }
        let (starts, _) = pods::serial(&target, &format!("guarded-{round}"), PODS).await?;
        with.extend(starts);
        connection.json(Method::DELETE, PATH, None).await?;
    }
    Ok(json!({
        "without_ms": percentile(&mut without, 50),
        "with_ms": percentile(&mut with, 50),
    }))
}

fn policy(n: usize) -> Value {
    let app = format!("app-{n}");
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": format!("policy-{n}")},
        "spec": {
            "podSelector": {"matchLabels": {"app": "bench"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"app": app}}}],
                "ports": [{"port": 8000 + n}],
            }],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": app}}}]}],
        },
    })
}
