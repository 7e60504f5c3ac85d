use coracle_registry::kinds::core::pod::Pod;
use serde_json::json;

use super::*;

const OPTIONS: TableOptions = TableOptions {
    version: MetaVersion::V1,
    include: IncludeObject::Metadata,
    with_columns: true,
    now_secs: 1_000_000,
};

fn pod() -> Vec<u8> {
    br#"{"metadata":{"name":"a","resourceVersion":"7","creationTimestamp":"1970-01-12T13:46:30Z"},"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c"}]},"status":{"phase":"Succeeded"}}"#.to_vec()
}

fn table(options: TableOptions, meta: &ListMeta<'_>) -> Value {
    let pod = pod();
    serde_json::from_slice(&render(
        &Pod,
        [pod.as_slice(), pod.as_slice()],
        options,
        meta,
    ))
    .unwrap()
}

#[test]
fn table_has_columns_rows_and_list_metadata() {
    let meta = ListMeta {
        resource_version: "9",
        continue_token: Some("t"),
        remaining_item_count: Some(3),
    };
    let table = table(OPTIONS, &meta);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(
        table["metadata"],
        json!({"resourceVersion": "9", "continue": "t", "remainingItemCount": 3})
    );
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(table["columnDefinitions"][5]["priority"], 1);
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "a",
            "0/1",
            "Succeeded",
            "0",
            "10s",
            "<none>",
            "<none>",
            "<none>",
            "<none>"
        ])
    );
    assert_eq!(table["rows"][0]["conditions"][0]["type"], "Completed");
}

#[test]
fn rows_carry_what_include_object_says() {
    let row = |include| {
        table(TableOptions { include, ..OPTIONS }, &ListMeta::default())["rows"][0].clone()
    };
    assert!(row(IncludeObject::None).get("object").is_none());
    assert_eq!(
        row(IncludeObject::Metadata)["object"]["kind"],
        "PartialObjectMetadata"
    );
    assert_eq!(
        row(IncludeObject::Metadata)["object"]["metadata"]["resourceVersion"],
        "7"
    );
    assert_eq!(
        row(IncludeObject::Object)["object"]["status"]["phase"],
        "Succeeded"
    );
}

#[test]
fn later_watch_events_omit_columns() {
    let table = table(
        TableOptions {
            with_columns: false,
            ..OPTIONS
        },
        &ListMeta::default(),
    );
    assert_eq!(table["columnDefinitions"], json!([]));
}

#[test]
fn partial_metadata_drops_all_but_metadata() {
    let object: Value =
        serde_json::from_slice(&partial_metadata(&pod(), MetaVersion::V1beta1)).unwrap();
    assert_eq!(object["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(object["metadata"]["name"], "a");
    assert_eq!(object.as_object().unwrap().len(), 3);
}
