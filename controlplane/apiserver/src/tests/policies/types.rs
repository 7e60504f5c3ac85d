//! Whether a policy fits the kinds that it is about, as its status tells.

use super::*;

async fn warnings(rule: &str, spec: Value) -> Value {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    validating(&admin, rule, spec, json!({})).await;
    let path = format!("{ADMISSION}/validatingadmissionpolicies/p");
    let asking = async {
        loop {
            let (_, policy) = admin.get(&path).await;
            if policy["status"]["observedGeneration"] == 1 {
                return policy["status"]["typeChecking"]["expressionWarnings"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking)
        .await
        .expect("it is told")
}

#[tokio::test]
async fn expressions_that_do_not_fit_their_kinds_are_told() {
    let spec = json!({"validations": [
        {"expression": "object.replicas > 1", "messageExpression": "string(object.spec.nothing)"},
        {"expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('a') && size(c.resources.limits) > 0)"}]});
    assert_eq!(
        warnings("apps/deployments", spec).await,
        json!([
            {"fieldRef": "spec.validations[0].expression", "warning": "apps/v1, Kind=Deployment: ERROR: <input>:1:7: \
                undefined field 'replicas'\n | object.replicas > 1\n | ......^\n"},
            {"fieldRef": "spec.validations[0].messageExpression", "warning": "apps/v1, Kind=Deployment: ERROR: \
                <input>:1:19: undefined field 'nothing'\n | string(object.spec.nothing)\n | ..................^\n"},
        ])
    );
}

#[tokio::test]
async fn expressions_that_fit_are_not() {
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "limits", "expression": "object.spec.containers.map(c, c.resources.limits)"}],
        "validations": [{"expression": "variables.limits.all(l, size(l) > 0) && object.spec.hostNetwork != true \
            && params.data.size() > 0 && object.metadata.labels['a'] == 'b'"}]});
    assert_eq!(warnings("pods", spec).await, Value::Null);
}

#[tokio::test]
async fn parameters_of_a_kind_that_nobody_knows_are_told() {
    let spec = json!({"paramKind": {"apiVersion": "example.org/v1", "kind": "Nothing"},
        "validations": [{"expression": "object.spec.hostNetwork != true"}, {"expression": "params.a == 1"}]});
    assert_eq!(
        warnings("pods", spec).await,
        json!([{"fieldRef": "spec.validations[1].expression", "warning": "/v1, Kind=Pod: ERROR: <input>:1:1: \
            undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^\n"}])
    );
}
