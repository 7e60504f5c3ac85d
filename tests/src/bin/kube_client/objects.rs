//! Objects: discovery, reads and writes in every form, scale, kinds known at run time only.

use std::pin::pin;

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Node},
};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams, ValidationDirective,
    },
    core::PartialObjectMeta,
    runtime::watcher,
};
use serde_json::json;

use super::{api, code, config_map, data, made, namespace, pod, until};

pub(crate) async fn discovery(client: Client) -> Result<()> {
    ensure!(client.apiserver_version().await?.major == "1");
    for found in [
        Discovery::new(client.clone()).run().await?,
        Discovery::new(client.clone()).run_aggregated().await?,
    ] {
        let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let (resource, capabilities) = found.resolve_gvk(&gvk).context("no Deployment")?;
        ensure!(resource.plural == "deployments" && capabilities.supports_operation("watch"));
        ensure!(
            found.groups().any(|group| group.name() == "metrics.k8s.io"),
            "no metrics"
        );
    }
    Ok(())
}

pub(crate) async fn objects(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    let first = maps
        .create(
            &PostParams::default(),
            &made(config_map("plain", json!({"a": "b"})))?,
        )
        .await?;
    let mut newer = maps.get("plain").await?;
    newer
        .data
        .get_or_insert_default()
        .insert("c".into(), "d".into());
    maps.replace("plain", &PostParams::default(), &newer)
        .await?;
    ensure!(
        code(maps.replace("plain", &PostParams::default(), &first).await) == 409,
        "stale"
    );
    let params = PatchParams::default();
    maps.patch(
        "plain",
        &params,
        &Patch::Merge(json!({"data": {"a": null}})),
    )
    .await?;
    maps.patch(
        "plain",
        &params,
        &Patch::Strategic(json!({"data": {"e": "f"}})),
    )
    .await?;
    let patched = maps
        .patch("plain", &params, &Patch::Merge(json!({"data": {"c": "x"}})))
        .await?;
    ensure!(data(&patched) == json!({"c": "x", "e": "f"}), "{patched:?}");
    for number in 0..4 {
        let mut object = config_map(&format!("many-{number}"), json!({}));
        object["metadata"]["labels"] = json!({"many": "yes"});
        maps.create(&PostParams::default(), &made(object)?).await?;
    }
    let chunk = ListParams::default().labels("many=yes").limit(3);
    let page = maps.list(&chunk).await?;
    let token = page.metadata.continue_.clone().unwrap_or_default();
    ensure!(
        page.items.len() == 3 && !token.is_empty(),
        "{:?}",
        page.metadata
    );
    ensure!(maps.list(&chunk.continue_token(&token)).await?.items.len() == 1);
    maps.delete_collection(
        &DeleteParams::default(),
        &ListParams::default().labels("many=yes"),
    )
    .await?;
    maps.delete("plain", &DeleteParams::default()).await?;
    ensure!(maps.get_opt("plain").await?.is_none());
    Ok(())
}

pub(crate) async fn apply(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    let one = PatchParams::apply("one");
    maps.patch(
        "applied",
        &one,
        &Patch::Apply(config_map("applied", json!({"a": "1", "b": "1"}))),
    )
    .await?;
    let other = Patch::Apply(config_map("applied", json!({"a": "2"})));
    match maps
        .patch("applied", &PatchParams::apply("two"), &other)
        .await
    {
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.code == 409 && status.message.contains("conflict with \"one\""),
                "{status:?}"
            );
            let causes = status
                .details
                .map(|details| details.causes)
                .unwrap_or_default();
            ensure!(
                causes.len() == 1 && causes[0].field == ".data.a",
                "{causes:?}"
            );
        }
        other => bail!("no conflict: {other:?}"),
    }
    maps.patch("applied", &PatchParams::apply("two").force(), &other)
        .await?;
    let now = maps
        .patch(
            "applied",
            &one,
            &Patch::Apply(config_map("applied", json!({}))),
        )
        .await?;
    ensure!(data(&now) == json!({"a": "2"}), "{now:?}");
    let again = maps
        .patch(
            "applied",
            &one,
            &Patch::Apply(config_map("applied", json!({}))),
        )
        .await?;
    ensure!(
        again.resource_version() == now.resource_version(),
        "nothing changed"
    );
    ensure!(
        again
            .managed_fields()
            .iter()
            .any(|entry| entry.manager.as_deref() == Some("two"))
    );
    Ok(())
}

pub(crate) async fn errors(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    ensure!(code(maps.get("nobody").await) == 404);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&dry, &made(config_map("ghost", json!({})))?)
        .await?;
    ensure!(maps.get_opt("ghost").await?.is_none());
    ensure!(
        code(
            maps.create(&dry, &made(config_map("Bad_Name", json!({})))?)
                .await
        ) == 422
    );
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("strict")
    };
    let mut unknown = config_map("ghost", json!({}));
    unknown["date"] = json!({});
    match maps.patch("ghost", &strict, &Patch::Apply(unknown)).await {
        Err(kube::Error::Api(status)) => ensure!(status.message.contains(".date"), "{status:?}"),
        other => bail!("an unknown field was let through: {other:?}"),
    }
    Ok(())
}

pub(crate) async fn scale(client: Client) -> Result<()> {
    let deployments: Api<Deployment> = api(&client);
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": pod("x", "sleep 3600")["spec"]});
    let mut deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    deployment["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    deployments
        .create(&PostParams::default(), &made(deployment)?)
        .await?;
    let wanted = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments
        .patch_scale("web", &PatchParams::default(), &wanted)
        .await?;
    ensure!(
        deployments
            .get_scale("web")
            .await?
            .spec
            .and_then(|spec| spec.replicas)
            == Some(2)
    );
    until("the replicas", || async {
        Ok(deployments
            .get_status("web")
            .await?
            .status
            .and_then(|status| status.ready_replicas)
            == Some(2))
    })
    .await?;
    deployments
        .delete("web", &DeleteParams::foreground())
        .await?;
    until("the end", || async {
        Ok(deployments.get_opt("web").await?.is_none())
    })
    .await
}

pub(crate) async fn dynamic(client: Client) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let maps: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace(), &resource);
    let object = DynamicObject::new("dynamic", &resource).data(json!({"data": {"a": "b"}}));
    maps.create(&PostParams::default(), &object).await?;
    ensure!(maps.get("dynamic").await?.data["data"] == json!({"a": "b"}));
    let nodes: Api<Node> = Api::all(client.clone());
    ensure!(
        !nodes
            .list_metadata(&ListParams::default())
            .await?
            .items
            .is_empty()
    );
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let mut events = pin!(watcher(namespaces, watcher::Config::default()));
    let first = events.try_next().await?;
    ensure!(matches!(first, Some(watcher::Event::Init)), "{first:?}");
    Ok(())
}
