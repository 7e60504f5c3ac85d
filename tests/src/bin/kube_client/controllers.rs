//! What controllers are made of: watches, watchers, reflectors, finalizers, leader election.

use std::{pin::pin, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
    runtime::{
        WatchStreamExt,
        controller::Action,
        finalizer::{Event, finalizer},
        reflector, watcher,
    },
};
use serde_json::json;

use super::{api, code, config_map, data, made, namespace, until};

pub(crate) async fn watch(client: Client) -> Result<()> {
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

pub(crate) async fn watch_on(client: Client) -> Result<()> {
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

pub(crate) async fn reflect(client: Client) -> Result<()> {
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

pub(crate) async fn finalize(client: Client) -> Result<()> {
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
pub(crate) async fn elect(client: Client) -> Result<()> {
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
