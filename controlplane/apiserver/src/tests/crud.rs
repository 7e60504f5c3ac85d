use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use super::raw::{CONFIG_MAPS, PODS, admin, config_map, pod};
use crate::testing;

#[tokio::test]
async fn object_lives_its_life() {
    let api: Api<ConfigMap> = Api::namespaced(testing::client().await, "default");
    let object = serde_json::from_value(config_map("x")).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    assert!(made.metadata.uid.is_some() && made.metadata.resource_version.is_some());
    let read = api.get("x").await.unwrap();
    assert_eq!(read, made);
    let mut changed = read.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("c".into(), "d".into());
    let changed = api
        .replace("x", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(
        changed.metadata.resource_version,
        made.metadata.resource_version
    );
    let patch = Patch::Merge(json!({"data": {"n": null}}));
    let patched = api
        .patch("x", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap().len(), 1);
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    api.delete("x", &DeleteParams::default()).await.unwrap();
    assert_eq!(api.get_opt("x").await.unwrap(), None);
}

#[tokio::test]
async fn cluster_starts_with_its_namespaces() {
    let api: Api<Namespace> = Api::all(testing::client().await);
    let list = api.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = list
        .items
        .into_iter()
        .filter_map(|namespace| namespace.metadata.name)
        .collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test]
async fn kubernetes_service_leads_to_the_advertised_address() {
    let raw = admin().await;
    let (_, service) = raw
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let (_, endpoints) = raw
        .get("/api/v1/namespaces/default/endpoints/kubernetes")
        .await;
    assert_eq!(
        endpoints["subsets"][0]["addresses"][0]["ip"], "198.18.0.1",
        "{endpoints}"
    );
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (_, slice) = raw.get(&format!("{slices}/kubernetes")).await;
    assert_eq!(
        slice["endpoints"][0]["addresses"][0], "198.18.0.1",
        "{slice}"
    );
}

#[tokio::test]
async fn concurrent_increments_are_all_counted() {
    const WRITERS: usize = 50;
    const INCREMENTS: usize = 20;
    let api: Api<ConfigMap> = Api::namespaced(testing::client().await, "default");
    api.create(
        &PostParams::default(),
        &serde_json::from_value(config_map("x")).unwrap(),
    )
    .await
    .unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let api = api.clone();
        coracle_telemetry::spawn_in(&mut writers, "a writer", async move {
            let mut done = 0;
            while done < INCREMENTS {
                let mut object = api.get("x").await.unwrap();
                let data = object.data.as_mut().unwrap();
                let count: usize = data["n"].parse().unwrap();
                data.insert("n".into(), (count + 1).to_string());
                match api.replace("x", &PostParams::default(), &object).await {
                    Ok(_) => done += 1,
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    writers.join_all().await;
    assert_eq!(
        api.get("x").await.unwrap().data.unwrap()["n"],
        (WRITERS * INCREMENTS).to_string()
    );
}

#[tokio::test]
async fn a_name_beside_a_prefix_is_not_exchanged_for_another() {
    let raw = admin().await;
    let named = || {
        let mut object = config_map("x-abcde");
        object["metadata"]["generateName"] = json!("x-");
        object
    };
    assert_eq!(raw.post(CONFIG_MAPS, named()).await.0, 201);
    let (code, taken) = raw.post(CONFIG_MAPS, named()).await;
    assert_eq!(
        (code, &taken["reason"]),
        (409, &json!("AlreadyExists")),
        "{taken}"
    );
    let (_, list) = raw.get(CONFIG_MAPS).await;
    let names: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["x-abcde"]);
}

#[tokio::test]
async fn generated_names_are_all_different() {
    let raw = admin().await;
    let mut names = std::collections::HashSet::new();
    for _ in 0..50 {
        let mut object = config_map("");
        object["metadata"] = json!({"generateName": "made-"});
        let (code, made) = raw.post(CONFIG_MAPS, object).await;
        assert_eq!(code, 201);
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("made-") && name.len() == 10, "{name}");
        assert!(names.insert(name));
    }
}

#[tokio::test]
async fn update_that_changes_nothing_writes_nothing() {
    let raw = admin().await;
    let (_, made) = raw.post(CONFIG_MAPS, config_map("x")).await;
    let (code, same) = raw.put(&format!("{CONFIG_MAPS}/x"), made.clone()).await;
    assert_eq!((code, &same), (200, &made));
    let (_, patched) = raw
        .merge(&format!("{CONFIG_MAPS}/x"), json!({"data": {"n": "0"}}))
        .await;
    assert_eq!(patched, made);
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let raw = admin().await;
    let dry = "?dryRun=All";
    assert_eq!(
        raw.post(&format!("{CONFIG_MAPS}{dry}"), config_map("x"))
            .await
            .0,
        201
    );
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}/x")).await.0, 404);
    let (_, made) = raw.post(CONFIG_MAPS, config_map("x")).await;
    let (code, changed) = raw
        .merge(
            &format!("{CONFIG_MAPS}/x{dry}"),
            json!({"data": {"n": "1"}}),
        )
        .await;
    assert_eq!((code, &changed["data"]["n"]), (200, &json!("1")));
    assert_eq!(
        raw.delete(&format!("{CONFIG_MAPS}/x{dry}"), json!({}))
            .await
            .0,
        200
    );
    assert_eq!(raw.get(&format!("{CONFIG_MAPS}/x")).await, (200, made));
}

#[tokio::test]
async fn status_and_spec_do_not_touch_each_other() {
    let raw = admin().await;
    let (_, made) = raw.post(PODS, pod("x")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{PODS}/x");
    let both = json!({"metadata": {"labels": {"new": "label"}}, "spec": {"containers": [{"name": "c", "image": "other"}]},
        "status": {"phase": "Running"}});
    let (code, with_status) = raw.merge(&format!("{path}/status"), both.clone()).await;
    assert_eq!(code, 200, "{with_status}");
    assert_eq!(with_status["status"]["phase"], "Running");
    assert_eq!(with_status["spec"], made["spec"]);
    assert_eq!(with_status["metadata"]["generation"], 1);
    let other = json!({"spec": {"activeDeadlineSeconds": 60}, "status": {"phase": "Failed"}});
    let (code, with_spec) = raw.merge(&path, other).await;
    assert_eq!(code, 200, "{with_spec}");
    assert_eq!(with_spec["status"]["phase"], "Running");
    assert_eq!(with_spec["metadata"]["generation"], 2);
}
