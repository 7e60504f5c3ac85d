//! What metrics tell of webhooks and match conditions.

use bytes::Bytes;
use serde_json::json;

use super::{
    CONFIG_MAPS, MUTATING, VALIDATING, cluster, config_map, configure, says,
    server::{Hook, Reply},
};

#[tokio::test]
async fn what_is_called_is_counted() {
    let (server, admin) = cluster().await;
    let hook = Hook::start(|request| match request["name"].as_str().unwrap() {
        "no" => says(json!({"allowed": false, "status": {"code": 403}})),
        "broken" => Reply::Raw(500, Bytes::new()),
        _ => says(json!({"allowed": true})),
    })
    .await;
    let conditions = json!([{"name": "named", "expression": "object.metadata.name != 'out'"},
        {"name": "readable", "expression": "object.metadata.name != 'bad' || object.none"}]);
    let changes = json!({"matchConditions": conditions});
    let open = json!({"matchConditions": conditions, "failurePolicy": "Ignore"});
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", changes)],
    )
    .await;
    configure(&server, &admin, MUTATING, "c", &[hook.webhook("m", open)]).await;
    for (name, code) in [
        ("yes", 201),
        ("out", 201),
        ("bad", 403),
        ("broken", 500),
        ("no", 400),
    ] {
        let code = if name == "no" { 403 } else { code };
        assert_eq!(
            admin.post(CONFIG_MAPS, config_map(name)).await.0,
            code,
            "{name}"
        );
    }
    let text = server.metrics().text();
    let prefix = "apiserver_admission_";
    for counted in [
        r#"webhook_request_total{name="v.example.org",type="validating",operation="CREATE",code="200",rejected="false"} 1"#,
        r#"webhook_request_total{name="v.example.org",type="validating",operation="CREATE",code="500",rejected="true"} 1"#,
        r#"webhook_rejection_count{name="v.example.org",type="validating",operation="CREATE",error_type="calling_webhook_error",rejection_code="500"} 1"#,
        r#"webhook_rejection_count{name="m.example.org",type="admit",operation="CREATE",error_type="no_error",rejection_code="403"} 1"#,
        r#"webhook_fail_open_count{name="m.example.org",type="admit"} 1"#,
        r#"webhook_admission_duration_seconds_count{name="m.example.org",type="admit",operation="CREATE",rejected="false"} 2"#,
        r#"match_condition_exclusions_total{name="v.example.org",kind="webhook",type="validate",operation="CREATE"} 1"#,
        r#"match_condition_evaluation_errors_total{name="v.example.org",kind="webhook",type="validate",operation="CREATE"} 1"#,
        r#"match_condition_evaluation_seconds_count{name="v.example.org",kind="webhook",type="validate",operation="CREATE"} 4"#,
    ] {
        let line = format!("{prefix}{counted}");
        let found: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with(prefix))
            .collect();
        assert!(found.contains(&&*line), "no {line} in {found:#?}");
    }
}
