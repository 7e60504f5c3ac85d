//! The ServiceAccount of a new pod: it has to exist, gives the pod its token and its image pull
//! secrets, and may confine it to Secrets that it lists.
//!
//! A pod waits a moment for the account `default`: its controller makes it soon after the
//! namespace.
//!
//! Source: `plugin/pkg/admission/serviceaccount/admission.go` at v1.37.

mod mountable_secrets;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_api::{meta::is_mirror, name as names, status::Status};
use coracle_auth::authz::node::References;
use coracle_registry::{
    api_resource::ApiResource,
    fill as fields,
    resource::{Registry, Resource},
    store::{Store, cache_status},
    value::{items, string},
    watch_cache::{KeyScope, Selection},
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
    pod::{push, spec_mut},
};

const DEFAULT: &str = "default";
/// How long a pod waits for the account `default`. Upstream asks ten times, 100 to 200 ms apart.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Where a pod finds its service account's token.
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
/// An hour and some, so that a token with the longest life of an hour is told apart from the
/// default.
const TOKEN_EXPIRATION_SECS: i64 = 3607;

pub(crate) struct ServiceAccount {
    store: Store,
    registry: Arc<Registry>,
}

impl ServiceAccount {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// The pod's account.
    async fn account_of(&self, attributes: &Attributes<'_>) -> Result<Value, Status> {
        let Some(accounts) = self.registry.core("serviceaccounts") else {
            return Ok(Value::Null);
        };
        let (namespace, name) = (attributes.namespace, name(&attributes.object()["spec"]));
        let key = accounts.key(namespace, name);
        let mut account = self.store.current(accounts, &key).await?;
        if account.is_none() && name == DEFAULT {
            self.wait_for(accounts, &key).await?;
            account = self.store.current(accounts, &key).await?;
        }
        account.map(|account| account.object).ok_or_else(|| {
            attributes.forbidden(format_args!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            ))
        })
    }

    /// Waits until the cache shows an object at `key`, or as long as a pod waits.
    async fn wait_for(&self, resource: &Resource, key: &str) -> Result<(), Status> {
        let deadline = Instant::now() + PATIENCE;
        let selection = Selection::of(KeyScope::Key(key.to_owned()));
        let (_, mut watcher) = resource.cache.snapshot_and_watch(selection);
        while resource.cache.get(key).is_none() {
            match timeout_at(deadline, watcher.next()).await {
                Ok(news) => drop(news.map_err(cache_status)?),
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let is_new = attributes.operation == Operation::Create && attributes.is_core("pods");
        if !is_new || is_mirror(attributes.object()) {
            return Ok(());
        }
        let account = self.account_of(attributes).await?;
        if let Some(spec) = spec_mut(attributes) {
            fill(spec, &account);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (pod, spec) = (attributes.object(), &attributes.object()["spec"]);
        let checked = match (attributes.operation, attributes.subresource) {
            (Operation::Create, "") if is_mirror(pod) => check_mirror(pod).map_err(str::to_owned),
            (Operation::Create, "") => match self.account_of(attributes).await? {
                account if mountable_secrets::are_enforced(&account) => {
                    mountable_secrets::check(&account, spec)
                }
                _ => Ok(()),
            },
            (Operation::Update, "ephemeralcontainers") => {
                match self.account_of(attributes).await? {
                    account if mountable_secrets::are_enforced(&account) => {
                        mountable_secrets::check_ephemeral(&account, spec)
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        };
        checked.map_err(|why| attributes.forbidden(why))
    }
}

/// What a mirror pod refers to its node may read: it does not choose that itself.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !string(&pod["spec"]["serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if !References::of(pod).secrets.is_empty() {
        return Err("a mirror pod may not reference secrets");
    }
    let mut sources = items(&pod["spec"]["volumes"])
        .iter()
        .flat_map(|volume| items(&volume["projected"]["sources"]));
    if sources.any(|source| source["serviceAccountToken"].is_object()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The account that a pod names, by the field or by its old alias.
fn name(spec: &Value) -> &str {
    let named = ["serviceAccountName", "serviceAccount"].map(|field| string(&spec[field]));
    named
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or(DEFAULT)
}

/// Names the account, mounts its token unless one of the two declines, and lends its image pull
/// secrets.
fn fill(spec: &mut Value, account: &Value) {
    fields::text(spec, "serviceAccountName", DEFAULT);
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    let [own, accounts] =
        [&*spec, account].map(|object| object["automountServiceAccountToken"].as_bool());
    if own.or(accounts).unwrap_or(true) {
        mount_token(spec);
    }
    let secrets: Vec<Value> = items(&account["imagePullSecrets"])
        .iter()
        .map(|secret| json!({"name": secret["name"]}))
        .collect();
    if items(&spec["imagePullSecrets"]).is_empty() && !secrets.is_empty() {
        spec["imagePullSecrets"] = secrets.into();
    }
}

fn mount_token(spec: &mut Value) {
    let existing = items(&spec["volumes"])
        .iter()
        .map(|volume| string(&volume["name"]));
    let volume_name = existing
        .into_iter()
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map_or_else(|| names::generate(TOKEN_VOLUME_PREFIX), str::to_owned);
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        fields::each(spec, list, |container| {
            let has = items(&container["volumeMounts"])
                .iter()
                .any(|mount| mount["mountPath"] == TOKEN_MOUNT_PATH);
            if !has {
                is_used = true;
                push(
                    container,
                    "volumeMounts",
                    json!({"name": volume_name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH}),
                );
            }
        });
    }
    let has_volume = items(&spec["volumes"])
        .iter()
        .any(|volume| volume["name"] == volume_name.as_str());
    if is_used && !has_volume {
        push(spec, "volumes", token_volume(&volume_name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mut spec: Value, account: Value) -> Value {
        fill(&mut spec, &account);
        spec
    }

    #[test]
    fn a_mirror_pod_may_not_ask_for_an_account_or_a_secret() {
        let mut pod =
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {}});
        assert_eq!(check_mirror(&pod), Ok(()));
        let token = json!({"serviceAccountToken": {"path": "token"}});
        pod["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [token]}}]);
        let why = "a mirror pod may not use ServiceAccountToken volume projections";
        assert_eq!(check_mirror(&pod).unwrap_err(), why);
        pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
        assert_eq!(
            check_mirror(&pod).unwrap_err(),
            "a mirror pod may not reference secrets"
        );
        pod["spec"]["serviceAccountName"] = "robot".into();
        assert_eq!(
            check_mirror(&pod).unwrap_err(),
            "a mirror pod may not reference service accounts"
        );
    }

    #[test]
    fn every_container_gets_the_token() {
        let spec = filled(
            json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [
                {"name": "own", "mountPath": TOKEN_MOUNT_PATH}]}]}),
            json!({}),
        );
        assert_eq!(spec["serviceAccountName"], "default");
        assert_eq!(spec["serviceAccount"], "default");
        let volume = &spec["volumes"][0];
        assert!(string(&volume["name"]).starts_with("kube-api-access-"));
        assert_eq!(
            volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
            3607
        );
        assert_eq!(
            spec["containers"][0]["volumeMounts"][0]["name"],
            volume["name"]
        );
        assert_eq!(items(&spec["containers"][1]["volumeMounts"]).len(), 1);
    }

    #[test]
    fn pod_or_account_may_decline_the_token_and_the_pod_decides() {
        for (own, accounts, is_mounted) in [
            (json!(null), json!(null), true),
            (json!(null), json!(false), false),
            (json!(true), json!(false), true),
            (json!(false), json!(true), false),
        ] {
            let field = "automountServiceAccountToken";
            let spec = filled(
                json!({"containers": [{"name": "a"}], field: own}),
                json!({field: accounts}),
            );
            assert_eq!(spec["volumes"].is_array(), is_mounted, "{own} {accounts}");
        }
    }

    #[test]
    fn account_lends_its_pull_secrets_to_pods_without() {
        let account = json!({"imagePullSecrets": [{"name": "a"}]});
        assert_eq!(
            filled(json!({}), account.clone())["imagePullSecrets"],
            json!([{"name": "a"}])
        );
        let own = json!([{"name": "b"}]);
        assert_eq!(
            filled(json!({"imagePullSecrets": own}), account)["imagePullSecrets"],
            own
        );
    }
}
