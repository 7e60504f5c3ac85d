//! Lists that are more than a piece: made as they are sent, the same in every form.

use std::io::Read as _;

use bytes::Bytes;
use coracle_api::{
    decode::{ContentType, FieldValidation, decode},
    resource::Gvk,
};
use http::{Request, header};
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, admin};

const MAPS: usize = 250;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Half a megabyte of ConfigMaps.
async fn filled() -> Raw {
    let raw = admin().await;
    for number in 0..MAPS {
        let name = format!("map-{number:03}");
        let data = json!({"text": format!("{number} ").repeat(500)});
        raw.post(
            CONFIG_MAPS,
            json!({"metadata": {"name": name}, "data": data}),
        )
        .await;
    }
    raw
}

/// What is answered, and what was said of its length.
async fn get(raw: &Raw, path: &str, headers: &[(&str, &str)]) -> (Option<u64>, Bytes) {
    let request = headers
        .iter()
        .fold(Request::get(path), |request, (name, value)| {
            request.header(*name, *value)
        });
    let request = request.body(kube::client::Body::empty()).unwrap();
    let response = raw.0.send(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path} {headers:?}");
    let length = http_body::Body::size_hint(response.body()).exact();
    let packed = response.headers().get(header::CONTENT_ENCODING).cloned();
    let body = response.into_body().collect_bytes().await.unwrap();
    if packed.is_none() {
        return (length, body);
    }
    let mut text = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&body[..]);
    unpacked.read_to_end(&mut text).unwrap();
    assert!(body.len() < text.len());
    (length, text.into())
}

async fn json_of(raw: &Raw, path: &str, accept: &str) -> Value {
    let (_, text) = get(raw, path, &[("accept", accept)]).await;
    serde_json::from_slice(&text).unwrap()
}

#[tokio::test]
async fn a_large_list_says_the_same_in_every_form() {
    let raw = filled().await;
    let expect = json_of(&raw, CONFIG_MAPS, "application/json").await;
    assert_eq!(expect["items"].as_array().unwrap().len(), MAPS);

    let (_, yaml) = get(&raw, CONFIG_MAPS, &[("accept", "application/yaml")]).await;
    let yaml: Value = serde_yaml::from_slice(&yaml).unwrap();
    assert_eq!(yaml, expect);

    let pretty = format!("{CONFIG_MAPS}?pretty=true");
    let (_, text) = get(&raw, &pretty, &[]).await;
    assert!(text.starts_with(b"{\n  \"kind\""));
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), expect);

    let (length, protobuf) = get(&raw, CONFIG_MAPS, &[("accept", PROTOBUF)]).await;
    assert_eq!(length, Some(protobuf.len() as u64), "it was told before");
    let list = Gvk::new("", "v1", "ConfigMapList");
    let read = decode(
        &protobuf,
        ContentType::Protobuf,
        &list,
        FieldValidation::Ignore,
    )
    .unwrap();
    // Items of a list say in protobuf no more what they are.
    let mut items = expect["items"].clone();
    for item in items.as_array_mut().unwrap() {
        let item = item.as_object_mut().unwrap();
        item.retain(|name, _| name != "kind" && name != "apiVersion");
    }
    assert_eq!(read.object["items"], items);

    for accept in ["application/json", TABLE] {
        let plain = json_of(&raw, CONFIG_MAPS, accept).await;
        let headers = [("accept", accept), ("accept-encoding", "gzip")];
        let (_, packed) = get(&raw, CONFIG_MAPS, &headers).await;
        assert_eq!(serde_json::from_slice::<Value>(&packed).unwrap(), plain);
    }
}

#[tokio::test]
async fn a_large_table_is_that_of_its_pages() {
    let raw = filled().await;
    let whole = json_of(&raw, CONFIG_MAPS, TABLE).await;
    assert_eq!(whole["columnDefinitions"].as_array().unwrap().len(), 3);
    let (mut rows, mut path) = (Vec::new(), format!("{CONFIG_MAPS}?limit=20"));
    loop {
        let mut page = json_of(&raw, &path, TABLE).await;
        rows.append(page["rows"].as_array_mut().unwrap());
        let Some(token) = page["metadata"]["continue"].as_str() else {
            break;
        };
        path = format!("{CONFIG_MAPS}?limit=20&continue={token}");
    }
    // The age of a row grows while one looks.
    let shown = |row: &Value| {
        (
            row["cells"][0].clone(),
            row["cells"][1].clone(),
            row["object"].clone(),
        )
    };
    let all = whole["rows"].as_array().unwrap();
    assert_eq!(
        all.iter().map(shown).collect::<Vec<_>>(),
        rows.iter().map(shown).collect::<Vec<_>>()
    );
    let partial = json_of(&raw, CONFIG_MAPS, PARTIAL).await;
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(partial["items"].as_array().unwrap().len(), MAPS);
}
