//! The crate `kube` on a cluster: server-side apply, watcher and reflector, finalizers, leader
//! election, streams.
//!
//! Prints one line a row: `pass` or `fail`, the row's name, and why it failed. Needs `KUBECONFIG`
//! and `NS`.

#![allow(clippy::print_stdout, reason = "the rows are what it is for")]

mod streams;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, future::BoxFuture};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace, Node},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams, ValidationDirective, WatchEvent, WatchParams,
    },
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        controller::Action,
        finalizer::{Event, finalizer},
        reflector, watcher,
    },
};
use serde_json::{Value, json};

/// How long a row may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A row's body.
type Body = fn(Client) -> BoxFuture<'static, Result<()>>;

const ROWS: &[(&str, Body)] = &[
    ("version, discovery", |client| Box::pin(discovery(client))),
    (
        "create, get, list in chunks, replace, patches, delete",
        |client| Box::pin(objects(client)),
    ),
    (
        "server-side apply: conflict, force, dropped fields, status",
        |client| Box::pin(apply(client)),
    ),
    ("typed errors, dry run, field validation", |client| {
        Box::pin(errors(client))
    }),
    ("watch from a version", |client| Box::pin(watch(client))),
    ("watcher, with listing and with streamed lists", |client| {
        Box::pin(watch_on(client))
    }),
    ("reflector", |client| Box::pin(reflect(client))),
    ("finalizer", |client| Box::pin(finalize(client))),
    ("leader election by Lease", |client| Box::pin(elect(client))),
    ("pods: wait, logs, eviction", |client| {
        Box::pin(streams::pods(client))
    }),
    ("exec: output, error, status, input, terminal", |client| {
        Box::pin(streams::exec(client))
    }),
    ("attach", |client| Box::pin(streams::attach(client))),
    ("port-forward", |client| Box::pin(streams::forward(client))),
    ("scale", |client| Box::pin(scale(client))),
    ("dynamic objects, metadata only", |client| {
        Box::pin(dynamic(client))
    }),
];

fn main() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("no client")?;
        for (name, body) in ROWS {
            match tokio::time::timeout(PATIENCE, body(client.clone())).await {
                Ok(Ok(())) => println!("pass\t{name}"),
                Ok(Err(why)) => println!("fail\t{name}\t{}", json!(format!("{why:?}"))),
                Err(_) => println!("fail\t{name}\t\"not within {PATIENCE:?}\""),
            }
        }
        Ok(())
    })
}

fn namespace() -> String {
    std::env::var("NS").unwrap_or_else(|_| "default".to_owned())
}

fn api<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &namespace())
}

fn made<K: serde::de::DeserializeOwned>(object: Value) -> Result<K> {
    Ok(serde_json::from_value(object)?)
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn pod(name: &str, script: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never",
        "containers": [{"name": "box", "image": "busybox", "imagePullPolicy": "IfNotPresent", "stdin": true,
            "command": ["sh", "-c", script]}]}})
}

fn data(object: &ConfigMap) -> Value {
    json!(object.data)
}

fn code<T>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        _ => 0,
    }
}

async fn until<F, Fut>(what: &str, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let all = async {
        while !look().await? {
            looks.tick().await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .with_context(|| format!("waited for {what}"))?
}

async fn discovery(client: Client) -> Result<()> {
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

async fn objects(client: Client) -> Result<()> {
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

async fn apply(client: Client) -> Result<()> {
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

async fn errors(client: Client) -> Result<()> {
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

async fn watch(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    let start = maps
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    maps.create(
        &PostParams::default(),
        &made(config_map("seen", json!({})))?,
    )
    .await?;
    maps.delete("seen", &DeleteParams::default()).await?;
    let mut events = maps
        .watch(&WatchParams::default().timeout(20), &start)
        .await?
        .boxed();
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) => seen.push(format!("+{}", object.name_any())),
            WatchEvent::Deleted(object) => {
                seen.push(format!("-{}", object.name_any()));
                break;
            }
            _ => {}
        }
    }
    ensure!(seen == ["+seen", "-seen"], "{seen:?}");
    Ok(())
}

async fn watch_on(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    for (name, config) in [
        ("listed", watcher::Config::default()),
        ("streamed", watcher::Config::default().streaming_lists()),
    ] {
        let mut events = pin!(watcher(maps.clone(), config));
        let mut initial = 0;
        loop {
            match events.try_next().await?.context("it ended")? {
                watcher::Event::InitApply(_) => initial += 1,
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        ensure!(initial >= 1, "the root CA at least");
        maps.create(&PostParams::default(), &made(config_map(name, json!({})))?)
            .await?;
        loop {
            if let watcher::Event::Apply(object) = events.try_next().await?.context("it ended")?
                && object.name_any() == name
            {
                break;
            }
        }
    }
    Ok(())
}

async fn reflect(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    let (reader, writer) = reflector::store();
    let stream = watcher(maps.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let mut stream = pin!(stream.touched_objects());
    maps.create(
        &PostParams::default(),
        &made(config_map("mirrored", json!({"a": "b"})))?,
    )
    .await?;
    let key = reflector::ObjectRef::new("mirrored").within(&namespace());
    // The store is filled by whoever reads the stream.
    tokio::select! {
        ended = async { while stream.try_next().await?.is_some() {} anyhow::Ok(()) } => ended?,
        seen = until("the object in the store", || async { Ok(reader.get(&key).is_some()) }) => seen?,
    }
    ensure!(data(&*reader.get(&key).context("it is there")?) == json!({"a": "b"}));
    Ok(())
}

async fn finalize(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = api(&client);
    let name = "tests.example.org/held";
    maps.create(
        &PostParams::default(),
        &made(config_map("held", json!({})))?,
    )
    .await?;
    let mut steps = Vec::new();
    while let Some(object) = maps.get_opt("held").await? {
        finalizer(&maps, name, Arc::new(object), |event| {
            let step = if matches!(event, Event::Apply(_)) {
                "apply"
            } else {
                "cleanup"
            };
            steps.push(step);
            async move { Ok::<_, std::io::Error>(Action::await_change()) }
        })
        .await?;
        if steps == ["apply"] {
            let going = maps.delete("held", &DeleteParams::default()).await?;
            ensure!(
                going
                    .left()
                    .is_some_and(|object| object.metadata.deletion_timestamp.is_some()),
                "not held"
            );
        }
    }
    ensure!(steps == ["apply", "cleanup"], "{steps:?}");
    Ok(())
}

/// Two contenders; the lease changes hands when the first stops renewing it.
async fn elect(client: Client) -> Result<()> {
    let leases: Api<Lease> = api(&client);
    ensure!(take(&leases, "first").await?, "a new lease is free");
    ensure!(!take(&leases, "second").await?, "it is held");
    ensure!(take(&leases, "first").await?, "the holder renews");
    until("the lease to run out", || async {
        take(&leases, "second").await
    })
    .await?;
    ensure!(!take(&leases, "first").await?, "it is lost");
    let stale = leases.get("leader").await?;
    ensure!(take(&leases, "second").await?);
    ensure!(
        code(
            leases
                .replace("leader", &PostParams::default(), &stale)
                .await
        ) == 409,
        "only one renews"
    );
    let transitions = leases
        .get("leader")
        .await?
        .spec
        .and_then(|spec| spec.lease_transitions);
    ensure!(transitions == Some(1), "{transitions:?}");
    Ok(())
}

/// Whether `who` holds the lease after this try.
async fn take(leases: &Api<Lease>, who: &str) -> Result<bool> {
    let now = MicroTime(Timestamp::now());
    let Some(mut lease) = leases.get_opt("leader").await? else {
        let spec = json!({"holderIdentity": who, "leaseDurationSeconds": 1, "leaseTransitions": 0,
            "acquireTime": now, "renewTime": now});
        let lease = made(json!({"metadata": {"name": "leader"}, "spec": spec}))?;
        return Ok(leases.create(&PostParams::default(), &lease).await.is_ok());
    };
    let spec = lease.spec.get_or_insert_default();
    let own = spec.holder_identity.as_deref() == Some(who);
    let age = spec
        .renew_time
        .as_ref()
        .map_or(i64::MAX, |at| now.0.duration_since(at.0).as_secs());
    if !own && age < i64::from(spec.lease_duration_seconds.unwrap_or(0)) {
        return Ok(false);
    }
    if !own {
        spec.holder_identity = Some(who.to_owned());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
    }
    spec.renew_time = Some(now);
    let written = leases
        .replace("leader", &PostParams::default(), &lease)
        .await;
    if code(leases.get("leader").await) == 404 {
        bail!("the lease is gone");
    }
    Ok(written.is_ok())
}

async fn scale(client: Client) -> Result<()> {
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

async fn dynamic(client: Client) -> Result<()> {
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
