//! The crate `kube` on a cluster: server-side apply, watcher and reflector, finalizers, leader
//! election, streams, kinds of its own.
//!
//! Prints one line a row: `pass` or `fail`, the row's name, and why it failed. Needs `KUBECONFIG`
//! and `NS`.

#![allow(clippy::print_stdout, reason = "the rows are what it is for")]

mod controllers;
mod custom;
mod objects;
mod policies;
mod streams;

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};

/// How long a row may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A row's body.
type Body = fn(Client) -> BoxFuture<'static, Result<()>>;

const ROWS: &[(&str, Body)] = &[
    ("version, discovery", |client| {
        Box::pin(objects::discovery(client))
    }),
    (
        "create, get, list in chunks, replace, patches, delete",
        |client| Box::pin(objects::objects(client)),
    ),
    (
        "server-side apply: conflict, force, dropped fields, status",
        |client| Box::pin(objects::apply(client)),
    ),
    ("typed errors, dry run, field validation", |client| {
        Box::pin(objects::errors(client))
    }),
    ("watch from a version", |client| {
        Box::pin(controllers::watch(client))
    }),
    ("watcher, with listing and with streamed lists", |client| {
        Box::pin(controllers::watch_on(client))
    }),
    ("reflector", |client| Box::pin(controllers::reflect(client))),
    ("finalizer", |client| {
        Box::pin(controllers::finalize(client))
    }),
    ("leader election by Lease", |client| {
        Box::pin(controllers::elect(client))
    }),
    ("pods: wait, logs, eviction", |client| {
        Box::pin(streams::pods(client))
    }),
    ("exec: output, error, status, input, terminal", |client| {
        Box::pin(streams::exec(client))
    }),
    ("attach", |client| Box::pin(streams::attach(client))),
    ("port-forward", |client| Box::pin(streams::forward(client))),
    ("scale", |client| Box::pin(objects::scale(client))),
    ("dynamic objects, metadata only", |client| {
        Box::pin(objects::dynamic(client))
    }),
    (
        "derived kind: definition, rules, typed objects, status, scale, apply, watch",
        |client| Box::pin(custom::objects(client)),
    ),
    (
        "controller of a derived kind: owned ConfigMaps, finalizer, drift, collection",
        |client| Box::pin(custom::control(client)),
    ),
    (
        "a validating policy: typed, status, denials, its end",
        |client| Box::pin(policies::validating(client)),
    ),
    ("a mutating policy by server-side apply", |client| {
        Box::pin(policies::mutating(client))
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
