//! Accounts whose pods refer to the Secrets that the account lists, and to no others, if its
//! annotation says so.
//!
//! What a projected volume takes is not looked at, as upstream: the annotation is deprecated, and
//! who confines pods gives them a namespace.
//!
//! Source: `limitSecretReferences` in `plugin/pkg/admission/serviceaccount/admission.go` at v1.37.

use coracle_api::{meta, status::quote};
use coracle_registry::value::{items, string};
use serde_json::Value;

const ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";
/// What Go's `ParseBool` takes for true.
const TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];

/// Whether pods of the account are confined at all.
pub(super) fn are_enforced(account: &Value) -> bool {
    meta::annotation(account, ANNOTATION).is_some_and(|value| TRUE.contains(&value))
}

/// Checks a new pod.
///
/// # Errors
/// Which Secret the account does not list.
pub(super) fn check(account: &Value, spec: &Value) -> Result<(), String> {
    for volume in items(&spec["volumes"])
        .iter()
        .filter(|volume| volume["secret"].is_object())
    {
        let secret = string(&volume["secret"]["secretName"]);
        listed(account, secret, || {
            format!("volume with secret.secretName={}", quote(secret))
        })?;
    }
    containers(account, &spec["initContainers"], "init container")?;
    containers(account, &spec["containers"], "container")?;
    let lent = items(&account["imagePullSecrets"]);
    for (index, secret) in items(&spec["imagePullSecrets"]).iter().enumerate() {
        if !lent.iter().any(|one| one["name"] == secret["name"]) {
            let (name, account) = (quote(string(&secret["name"])), meta::name(account));
            return Err(format!(
                "imagePullSecrets[{index}].name={name} is not allowed because service account {account} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Checks what is put into a running pod.
///
/// # Errors
/// As [`check`].
pub(super) fn check_ephemeral(account: &Value, spec: &Value) -> Result<(), String> {
    containers(account, &spec["ephemeralContainers"], "ephemeral container")
}

fn containers(account: &Value, containers: &Value, kind: &str) -> Result<(), String> {
    for container in items(containers) {
        let name = string(&container["name"]);
        for variable in items(&container["env"]) {
            let from = &variable["valueFrom"]["secretKeyRef"];
            let (secret, variable) = (string(&from["name"]), string(&variable["name"]));
            let what = || {
                format!(
                    "{kind} {name} with envVar {variable} referencing secret.secretName={}",
                    quote(secret)
                )
            };
            if from.is_object() {
                listed(account, secret, what)?;
            }
        }
        for from in items(&container["envFrom"])
            .iter()
            .filter(|from| from["secretRef"].is_object())
        {
            let secret = string(&from["secretRef"]["name"]);
            let what = || {
                format!(
                    "{kind} {name} with envFrom referencing secret.secretName={}",
                    quote(secret)
                )
            };
            listed(account, secret, what)?;
        }
    }
    Ok(())
}

fn listed(account: &Value, secret: &str, what: impl FnOnce() -> String) -> Result<(), String> {
    if items(&account["secrets"])
        .iter()
        .any(|one| one["name"] == secret)
    {
        return Ok(());
    }
    let (what, account) = (what(), meta::name(account));
    Err(format!(
        "{what} is not allowed because service account {account} does not reference that secret"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_refer_to_what_their_account_lists() {
        let account = json!({"metadata": {"name": "robot"}, "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}]});
        let container = |secret: &str| json!([{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret}}}]}]);
        let all =
            |secret: &str| json!([{"name": "c", "envFrom": [{"secretRef": {"name": secret}}]}]);
        let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
        let own = json!({"volumes": volume("own"), "containers": container("own"), "initContainers": all("own"),
            "imagePullSecrets": [{"name": "pull"}]});
        assert_eq!(check(&account, &own), Ok(()));
        let why = "is not allowed because service account robot does not reference that";
        for (spec, expect) in [
            (
                json!({"volumes": volume("x")}),
                "volume with secret.secretName=\"x\"",
            ),
            (
                json!({"containers": container("x")}),
                "container c with envVar E referencing secret.secretName=\"x\"",
            ),
            (
                json!({"containers": all("x")}),
                "container c with envFrom referencing secret.secretName=\"x\"",
            ),
            (
                json!({"initContainers": all("x")}),
                "init container c with envFrom referencing secret.secretName=\"x\"",
            ),
        ] {
            assert_eq!(
                check(&account, &spec).unwrap_err(),
                format!("{expect} {why} secret")
            );
        }
        let pull = json!({"imagePullSecrets": [{"name": "own"}]});
        let expect = format!("imagePullSecrets[0].name=\"own\" {why} imagePullSecret");
        assert_eq!(check(&account, &pull).unwrap_err(), expect);
        let debugger = json!({"ephemeralContainers": container("x"), "containers": container("y")});
        let expect = format!(
            "ephemeral container c with envVar E referencing secret.secretName=\"x\" {why} secret"
        );
        assert_eq!(check_ephemeral(&account, &debugger).unwrap_err(), expect);
    }

    #[test]
    fn accounts_confine_their_pods_if_they_say_so() {
        let says =
            |value: &str| are_enforced(&json!({"metadata": {"annotations": {ANNOTATION: value}}}));
        assert!(says("true") && says("1"));
        assert!(!says("false") && !says("yes") && !are_enforced(&json!({})));
    }
}
