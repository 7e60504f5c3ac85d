//! Who `coracle scheduler` is in a measurement: a ServiceAccount with the roles that
//! `docs/scheduler.md` gives to one, not the administrator.

use std::path::Path;

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::Target;

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const NAME: &str = "bench-scheduler";
const ROLES: [&str; 2] = ["system:kube-scheduler", "system:volume-scheduler"];
/// Longer than a measurement.
const TOKEN_SECS: u64 = 3600;

/// Makes the account, and writes the kubeconfig for it to `to`: the administrator's with another
/// user.
pub(crate) async fn of_scheduler(admin: &str, target: &Target, to: &Path) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    connection.post(ACCOUNTS, &account).await?;
    for role in ROLES {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{NAME}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"}]});
        connection.post(BINDINGS, &binding).await?;
    }
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECS}});
    let path = format!("{ACCOUNTS}/{NAME}/token");
    let answer = connection.json(Method::POST, &path, Some(&asked)).await?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    let text = std::fs::read_to_string(admin).with_context(|| format!("read {admin}"))?;
    let mut config: Value = serde_yaml::from_str(&text).context("parse the kubeconfig")?;
    config["users"][0]["user"] = json!({"token": token});
    std::fs::write(to, config.to_string()).with_context(|| format!("write {}", to.display()))
}
