//! `make bench`: the figures of ARCHITECTURE.md, measured on this machine from outside.
//!
//! Without arguments it makes a cluster in a network namespace without an uplink and starts itself
//! there once for every measurement (`bench within WHAT KUBECONFIG`), because requests must come
//! from inside that namespace. Definitions are those of the field's instruments: pod latency from
//! the POST to Running and Ready in a watch; request rates of sequential requests on each
//! connection, TLS and authentication on. `bench compare BEFORE AFTER RUNS` starts itself for each
//! run of each build (`bench rows`), which ends with its rows as one line of JSON.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench ends with its first panic"
)]

mod agents;
mod api;
mod client;
mod cluster;
mod compare;
mod etcd;
mod figures;
mod identity;
mod kinds;
mod memory;
mod names;
mod pods;
mod policies;
mod report;
mod scale;
mod scale_objects;
mod scheduling;
mod service;
mod stages;
mod watchers;
mod workloads;

use std::process::ExitCode;

use anyhow::{Context, bail};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["within", what, kubeconfig] => within(what, kubeconfig),
        ["compare", before, after, runs, sections @ ..] => {
            compare::run(before, after, runs, sections)
        }
        ["rows", sections @ ..] => {
            cluster::run(sections).map(|rows| report::print_json(&report::as_json(&rows)))
        }
        sections => cluster::run(sections).map(drop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Inside the namespace: one measurement, printed as one line of JSON.
fn within(what: &str, kubeconfig: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (what, number) = match what.split_once(' ') {
        Some((what, number)) => (what, number.parse()?),
        None => (what, 0),
    };
    let value = runtime.block_on(async {
        match what {
            "service-fill" => service::fill(kubeconfig, number).await,
            "service-works" => service::until_last_works(kubeconfig, number).await,
            "ready" => pods::until_ready(kubeconfig).await,
            "first-pod" => pods::first_pod(kubeconfig).await,
            "pods" => pods::serial_and_burst(kubeconfig).await,
            "pods-gone" => pods::delete_all(kubeconfig).await,
            "staged" => pods::staged(kubeconfig).await,
            "policies" => policies::measure(kubeconfig).await,
            "names" => names::measure().await,
            "service-new" => service::latency(kubeconfig).await,
            "service-connect" => service::connects(kubeconfig).await,
            "service-forget" => service::forget(kubeconfig).await,
            "api" => api::rates(kubeconfig).await,
            "many" => api::many_objects(kubeconfig).await,
            "kinds-objects" => kinds::objects::measure(kubeconfig).await,
            "kinds-full" => kinds::objects::fill(kubeconfig).await,
            "kinds-many" => kinds::definitions::measure(kubeconfig).await,
            "maps-memory" => memory::of_config_maps(kubeconfig).await,
            "pods-memory" => memory::of_pods(kubeconfig).await,
            "watchers" => watchers::delivery(kubeconfig).await,
            "scale" => scale::measure(kubeconfig).await,
            "scheduling" => scheduling::measure(kubeconfig).await,
            "workloads-idle" => workloads::idle(kubeconfig).await,
            "workloads" => workloads::measure(kubeconfig).await,
            "workloads-crowd" => workloads::crowd(kubeconfig).await,
            "workloads-back" => workloads::back(kubeconfig).await,
            "etcd-bare" => etcd::bare().await,
            "etcd-follow" => etcd::follow(kubeconfig).await,
            "connections" => watchers::connections(kubeconfig).await,
            other => bail!("no measurement is called {other:?}"),
        }
    });
    report::print_json(&value.with_context(|| format!("measure {what}"))?);
    Ok(())
}
