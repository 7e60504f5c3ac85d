//! What answers look like: the order of their members, their end, and the forms besides JSON.

use bytes::Bytes;
use coracle_api::{
    decode::{ContentType, FieldValidation, decode},
    resource::Gvk,
};
use http::Request;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, admin, config_map};

/// Code, content type and body.
async fn get(raw: &Raw, path: &str, headers: &[(&str, &str)]) -> (u16, String, Bytes) {
    let request = headers
        .iter()
        .fold(Request::get(path), |request, (name, value)| {
            request.header(*name, *value)
        });
    let response = raw
        .0
        .send(request.body(kube::client::Body::empty()).unwrap())
        .await
        .unwrap();
    let code = response.status().as_u16();
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    (
        code,
        kind,
        response.into_body().collect_bytes().await.unwrap(),
    )
}

async fn text(raw: &Raw, path: &str) -> String {
    String::from_utf8(get(raw, path, &[]).await.2.to_vec()).unwrap()
}

#[tokio::test]
async fn every_answer_begins_with_its_kind_and_ends_with_its_line() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("a")).await;
    for (path, begin) in [
        (
            format!("{CONFIG_MAPS}/a"),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#,
        ),
        (
            CONFIG_MAPS.to_owned(),
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"#,
        ),
        (
            format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"),
            r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#,
        ),
        (
            format!("{CONFIG_MAPS}/none"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"none\" not found","reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404}"#,
        ),
        (
            "/apis/autoscaling/v1/horizontalpodautoscalers".to_owned(),
            r#"{"kind":"HorizontalPodAutoscalerList","apiVersion":"autoscaling/v1","#,
        ),
    ] {
        let answer = text(&raw, &path).await;
        assert!(answer.starts_with(begin), "{path}: {answer}");
        assert!(
            answer.ends_with("}\n") && !answer.ends_with("\n\n"),
            "{path}: {answer:?}"
        );
    }
    let made = raw
        .response(
            "POST",
            CONFIG_MAPS,
            "application/json",
            config_map("b").to_string(),
        )
        .await;
    let made = made.into_body().collect_bytes().await.unwrap();
    assert!(
        made.starts_with(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#)
            && made.ends_with(b"}\n"),
        "{made:?}"
    );
}

#[tokio::test]
async fn protobuf_is_for_those_who_take_nothing_else() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("a")).await;
    let read = |bytes: &[u8], kind: &str| {
        decode(
            bytes,
            ContentType::Protobuf,
            &Gvk::new("", "v1", kind),
            FieldValidation::Ignore,
        )
        .unwrap()
        .object
    };
    let (_, expect) = raw.get(&format!("{CONFIG_MAPS}/a")).await;
    let (code, kind, body) = get(&raw, &format!("{CONFIG_MAPS}/a"), &[("accept", PROTOBUF)]).await;
    assert_eq!(
        (code, kind.as_str(), read(&body, "ConfigMap")),
        (200, PROTOBUF, expect.clone())
    );
    let (_, kind, body) = get(&raw, CONFIG_MAPS, &[("accept", PROTOBUF)]).await;
    let list = read(&body, "ConfigMapList");
    assert_eq!(
        (kind.as_str(), &list["items"][0]["metadata"]),
        (PROTOBUF, &expect["metadata"])
    );
    let (code, _, body) = get(
        &raw,
        &format!("{CONFIG_MAPS}/none"),
        &[("accept", PROTOBUF)],
    )
    .await;
    assert_eq!(
        (code, &read(&body, "Status")["reason"]),
        (404, &json!("NotFound"))
    );
    let (_, kind, body) = get(
        &raw,
        &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"),
        &[("accept", PROTOBUF)],
    )
    .await;
    assert_eq!(kind, "application/vnd.kubernetes.protobuf;stream=watch");
    let (length, frame) = body.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().unwrap()) as usize,
        frame.len()
    );
    assert!(frame.starts_with(b"\x0a\x05ADDED\x12"), "{frame:?}");
    let (_, kind, _) = get(
        &raw,
        CONFIG_MAPS,
        &[(
            "accept",
            "application/vnd.kubernetes.protobuf,application/json",
        )],
    )
    .await;
    assert_eq!(kind, "application/json");
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(get(&raw, CONFIG_MAPS, &[("accept", table)]).await.0, 406);
    assert_eq!(
        get(&raw, CONFIG_MAPS, &[("accept", "application/cbor")])
            .await
            .0,
        406
    );
}

#[tokio::test]
async fn yaml_and_indents_are_for_those_who_ask() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (_, expect) = raw.get(&path).await;
    let (code, kind, body) = get(&raw, &path, &[("accept", "application/yaml")]).await;
    let read: Value = serde_yaml::from_slice(&body).unwrap();
    assert_eq!(
        (code, kind.as_str(), &read),
        (200, "application/yaml", &expect)
    );
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    assert_eq!(
        get(&raw, &watch, &[("accept", "application/yaml")]).await.0,
        406
    );
    for (path, headers) in [
        (format!("{path}?pretty=true"), vec![]),
        (path, vec![("user-agent", "curl/8.0")]),
    ] {
        let (_, kind, body) = get(&raw, &path, &headers).await;
        assert!(
            body.starts_with(b"{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n"),
            "{body:?}"
        );
        assert_eq!(
            (
                kind.as_str(),
                serde_json::from_slice::<Value>(&body).unwrap()
            ),
            ("application/json", expect.clone())
        );
    }
}

#[tokio::test]
async fn a_timeout_that_is_none_is_refused() {
    let raw = admin().await;
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}?timeout=5s")).await.0, 200);
    let (code, refused) = raw.get(&format!("{CONFIG_MAPS}?timeout=soon")).await;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!((code, &refused["message"]), (400, &json!(message)));
}

#[tokio::test]
async fn a_claim_keeps_its_sources_group_as_it_was_written() {
    let raw = admin().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (name, source, expect) in [
        (
            "a",
            json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "x"}),
            json!(""),
        ),
        (
            "b",
            json!({"kind": "PersistentVolumeClaim", "name": "x"}),
            Value::Null,
        ),
    ] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "dataSource": source}});
        let (code, made) = raw.post(claims, claim).await;
        assert_eq!(
            (code, made["spec"]["dataSource"].get("apiGroup")),
            (201, Some(&expect)),
            "{made}"
        );
    }
}

#[tokio::test]
async fn a_document_is_for_ever_under_its_hash_alone() {
    let raw = admin().await;
    let (_, index) = raw.get("/openapi/v3").await;
    let hashed = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let plain = "/openapi/v3/apis/apps/v1";
    let ask = async |path: &str| {
        let response = raw.response("GET", path, "", Bytes::new()).await;
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
                .to_owned()
        };
        (
            response.status().as_u16(),
            header("cache-control"),
            header("location"),
        )
    };
    let (code, control, _) = ask(hashed).await;
    assert!(
        code == 200 && control.contains("immutable"),
        "{code} {control}"
    );
    for path in [plain.to_owned(), format!("{plain}?hash=")] {
        let (code, control, _) = ask(&path).await;
        assert!(
            code == 200 && control.contains("no-cache") && !control.contains("immutable"),
            "{code} {control}"
        );
    }
    let (code, control, location) = ask(&format!("{plain}?hash=OLD")).await;
    assert_eq!((code, location.as_str()), (301, hashed));
    assert!(!control.contains("immutable"), "{control}");
}
