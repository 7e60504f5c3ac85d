//! What metrics tell of policies.

use super::*;

/// The lines of `/metrics` about policies that say how often.
fn counted(server: &ApiServer) -> Vec<String> {
    let text = server.metrics().text();
    let lines = text.lines().filter(|line| {
        line.contains("_admission_policy_check_total{")
            || line.contains("_check_duration_seconds_count{")
    });
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn what_policies_do_is_counted() {
    let Cluster {
        server,
        admin,
        keeping: _keeping,
    } = cluster().await;
    let spec = json!({"failurePolicy": "Ignore", "validations": [
        {"expression": "object.data.a != 'no'"}, {"expression": "object.data.a != 'bad' || object.none"}]});
    let actions = json!({"validationActions": ["Warn", "Audit"]});
    validating(&admin, "configmaps", spec, actions).await;
    let spec = json!({"failurePolicy": "Ignore", "mutations": [
        apply("Object{data: {'b': object.data.a == 'bad' ? object.data.none : 'c'}}")]});
    mutating(&admin, "m", "configmaps", spec, json!({})).await;
    let probe = configmap("probe", json!({"a": "yes"}));
    until(&admin, CONFIGMAPS, &probe, |answer| {
        answer.body["data"]["b"] == "c"
    })
    .await;
    let tried = configmap("probe", json!({"a": "no"}));
    until(&admin, CONFIGMAPS, &tried, |answer| {
        !answer.warnings.is_empty()
    })
    .await;
    made(&admin, CONFIGMAPS, configmap("bad", json!({"a": "bad"}))).await;
    let lines = counted(&server);
    let validating = r#"apiserver_validating_admission_policy_check"#;
    let mutating = r#"apiserver_mutating_admission_policy_check"#;
    for expect in [
        format!(
            r#"{validating}_total{{policy="p",policy_binding="b",error_type="invalid_error",enforcement_action="warn"}} 1"#
        ),
        format!(
            r#"{validating}_total{{policy="p",policy_binding="b",error_type="invalid_error",enforcement_action="audit"}} 1"#
        ),
        format!(
            r#"{validating}_total{{policy="p",policy_binding="b",error_type="invalid_error",enforcement_action="allow"}} 1"#
        ),
        format!(
            r#"{validating}_duration_seconds_count{{policy="p",policy_binding="b",error_type="invalid_error",enforcement_action="allow"}} 1"#
        ),
        format!(
            r#"{mutating}_total{{policy="m",policy_binding="m-b",error_type="invalid_error"}} 1"#
        ),
    ] {
        assert!(lines.contains(&expect), "no {expect} in {lines:#?}");
    }
    let works =
        format!(r#"{mutating}_total{{policy="m",policy_binding="m-b",error_type="no_error"}} "#);
    assert!(
        lines.iter().any(|line| line.starts_with(&works)),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn match_conditions_of_policies_are_counted() {
    let Cluster {
        server,
        admin,
        keeping: _keeping,
    } = cluster().await;
    let conditions = json!([
        {"name": "readable", "expression": "object.data.a != 'bad' || object.none"},
        {"name": "wanted", "expression": "object.data.a != 'out'"}]);
    let spec = json!({"failurePolicy": "Ignore", "matchConditions": conditions,
        "validations": [{"expression": "object.data.a != 'no'"}]});
    validating(&admin, "configmaps", spec, json!({})).await;
    let mutations = [apply("Object{data: {'b': 'c'}}")];
    let spec =
        json!({"failurePolicy": "Ignore", "matchConditions": conditions, "mutations": mutations});
    mutating(&admin, "m", "configmaps", spec, json!({})).await;
    refused(&admin, CONFIGMAPS, &configmap("no", json!({"a": "no"}))).await;
    let changed = |answer: &Answer| answer.body["data"]["b"] == "c";
    let probe = configmap("probe", json!({"a": "yes"}));
    until(&admin, CONFIGMAPS, &probe, changed).await;
    for name in ["bad", "out"] {
        made(&admin, CONFIGMAPS, configmap(name, json!({"a": name}))).await;
    }
    let text = server.metrics().text();
    for name in ["p", "m"] {
        for counted in ["evaluation_errors_total", "exclusions_total"] {
            let labels =
                format!(r#"{{name="{name}",kind="policy",type="validate",operation="CREATE"}}"#);
            let line = format!("apiserver_admission_match_condition_{counted}{labels} 1");
            assert!(text.lines().any(|found| found == line), "no {line}\n{text}");
            let times =
                format!("apiserver_admission_match_condition_evaluation_seconds_count{labels} ");
            assert!(text.lines().any(|found| found.starts_with(&times)));
        }
    }
}
