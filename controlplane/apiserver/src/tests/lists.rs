use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, admin, config_map};

async fn fill(raw: &Raw, count: usize) {
    for index in 0..count {
        let mut object = config_map(&format!("c{index:03}"));
        object["metadata"]["labels"] = json!({"even": (index % 2 == 0).to_string()});
        assert_eq!(raw.post(CONFIG_MAPS, object).await.0, 201);
    }
}

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn chunks_show_one_state_while_others_write() {
    let raw = admin().await;
    fill(&raw, 100).await;
    let (mut seen, mut token, mut version) = (BTreeSet::new(), String::new(), None);
    for round in 0.. {
        let (code, list) = raw
            .get(&format!("{CONFIG_MAPS}?limit=7&continue={token}"))
            .await;
        assert_eq!(code, 200, "{list}");
        let own = list["metadata"]["resourceVersion"].clone();
        assert_eq!(*version.get_or_insert(own.clone()), own);
        let before = seen.len();
        let found = names(&list);
        seen.extend(found.iter().cloned());
        assert_eq!(seen.len(), before + found.len(), "a duplicate");
        if let Some(remaining) = list["metadata"]["remainingItemCount"].as_u64() {
            assert_eq!(remaining, 100 - seen.len() as u64);
        }
        // Others write between the chunks.
        raw.delete(&format!("{CONFIG_MAPS}/c{:03}", 99 - round), json!({}))
            .await;
        raw.post(CONFIG_MAPS, config_map(&format!("c{round:03}x")))
            .await;
        match list["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    let expect: BTreeSet<_> = (0..100).map(|index| format!("c{index:03}")).collect();
    assert_eq!(seen, expect);
}

#[tokio::test]
async fn selectors_choose() {
    let raw = admin().await;
    fill(&raw, 4).await;
    for (query, expect) in [
        ("labelSelector=even%3Dtrue", vec!["c000", "c002"]),
        ("labelSelector=even+in+(true),even", vec!["c000", "c002"]),
        ("labelSelector=!even", vec![]),
        ("fieldSelector=metadata.name%3Dc001", vec!["c001"]),
        (
            "fieldSelector=metadata.name!%3Dc001&labelSelector=even%3Dfalse",
            vec!["c003"],
        ),
    ] {
        let (code, list) = raw.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(
            (code, names(&list)),
            (200, expect.into_iter().map(str::to_owned).collect()),
            "{query}"
        );
    }
}

#[tokio::test]
async fn list_names_its_kind_and_version() {
    let raw = admin().await;
    let (_, list) = raw.get(CONFIG_MAPS).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"], &list["items"]),
        (&json!("ConfigMapList"), &json!("v1"), &json!([]))
    );
    fill(&raw, 3).await;
    let (_, again) = raw.get(&format!("{CONFIG_MAPS}/?resourceVersion=0")).await;
    assert_eq!(names(&again).len(), 3);
    let version = |list: &Value| {
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(version(&again) > version(&list));
}

#[tokio::test]
async fn past_state_can_be_asked_for_exactly() {
    let raw = admin().await;
    fill(&raw, 2).await;
    let (_, then) = raw.get(CONFIG_MAPS).await;
    let version = then["metadata"]["resourceVersion"].as_str().unwrap();
    raw.delete(&format!("{CONFIG_MAPS}/c000"), json!({})).await;
    let (code, list) = raw
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!((code, list), (200, then.clone()));
}

#[tokio::test]
async fn tables_and_partial_objects_are_served_on_request() {
    let raw = admin().await;
    fill(&raw, 2).await;
    for (accept, kind, rows) in [
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "Table",
            "rows",
        ),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "PartialObjectMetadataList",
            "items",
        ),
    ] {
        let request = http::Request::get(CONFIG_MAPS)
            .header("accept", accept)
            .body(kube::client::Body::empty())
            .unwrap();
        let body = raw
            .0
            .send(request)
            .await
            .unwrap()
            .into_body()
            .collect_bytes()
            .await
            .unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&answer["kind"], answer[rows].as_array().map(Vec::len)),
            (&json!(kind), Some(2))
        );
    }
    let request = http::Request::get(CONFIG_MAPS)
        .header("accept", "application/xml")
        .body(kube::client::Body::empty())
        .unwrap();
    assert_eq!(raw.0.send(request).await.unwrap().status(), 406);
}
