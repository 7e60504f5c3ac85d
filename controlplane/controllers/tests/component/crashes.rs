//! Controllers that end between any two calls, and start again: what they count they count once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Method, Request};
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{Pod, Service},
};
use kube::{Api, Client, ResourceExt, api::DeleteParams, client::Body};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Cluster, PATIENCE},
    cron_jobs::{Hands, cron_job, minutes},
    jobs::{conditions, end_pods, job, status},
    load_balancers::{balanced, shown},
};

/// After how many writes each of the controllers ends, in turn, and whether the last of them is
/// carried out: all small numbers, and some larger ones.
const LIVES: [(usize, bool); 12] = [
    (1, true),
    (2, false),
    (1, true),
    (3, true),
    (2, true),
    (4, false),
    (5, true),
    (3, false),
    (7, true),
    (6, false),
    (9, true),
    (8, false),
];

/// A client that ends its controllers with a write.
fn mortal(
    client: Client,
    (life, is_done): (usize, bool),
    stop: CancellationToken,
    writes: Arc<AtomicUsize>,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, stop, writes) = (client.clone(), stop.clone(), writes.clone());
        let is_write = request.method() != Method::GET;
        async move {
            let number = match is_write {
                true => writes.fetch_add(1, Ordering::SeqCst) + 1,
                false => 0,
            };
            if number < life {
                return client.send(request).await;
            }
            if is_done && number == life {
                drop(client.send(request).await);
            }
            stop.cancel();
            // Nobody is there to hear the answer.
            std::future::pending().await
        }
    });
    Client::new(service, "default")
}

/// Runs controllers of which the one with this account ends again and again, until `is_over`.
async fn run<F, Fut>(
    account: &'static str,
    hands: &Hands,
    cluster: &Cluster,
    authorities: [coracle_controllers::CertificateAuthority; 2],
    is_over: F,
) where
    F: Fn() -> Fut,
    Fut: Future<Output = bool>,
{
    for life in LIVES.iter().copied().cycle() {
        let (stop, writes) = (
            cluster.shutdown.child_token(),
            Arc::new(AtomicUsize::new(0)),
        );
        let mortal_stop = stop.clone();
        let wrap = move |own: &str, client: Client| match own == account {
            true => mortal(client, life, mortal_stop.clone(), writes.clone()),
            false => client,
        };
        let clock = hands.clock();
        let adjust = |config: &mut coracle_controllers::ControllersConfig| config.clock = clock;
        let running = cluster.spawn_controllers(authorities.clone(), adjust, wrap, stop.clone());
        cluster
            .wait("the controllers to end, or their work", || async {
                stop.is_cancelled() || is_over().await
            })
            .await;
        if !stop.is_cancelled() {
            return;
        }
        let ended = tokio::time::timeout(PATIENCE, running).await;
        ended
            .expect("they end")
            .expect("without a panic")
            .expect("as they were told");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_of_a_job_is_counted_twice_or_not_at_all() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    cluster.run_agent();
    let plain = json!({"completions": 7, "parallelism": 3});
    let indexed = json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    cluster.create::<Job>("default", job("plain", plain)).await;
    cluster
        .create::<Job>("default", job("indexed", indexed))
        .await;
    let are_over = || async {
        end_pods(&cluster, "Succeeded").await;
        let mut over = true;
        for name in ["plain", "indexed"] {
            let conditions = conditions(&status(&cluster, name).await);
            over &= conditions.iter().any(|(kind, _)| kind == "Complete");
        }
        over
    };
    run(
        "job-controller",
        &Hands::default(),
        &cluster,
        authorities,
        are_over,
    )
    .await;
    let pods = cluster.list::<Pod>("default").await;
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()));
    for (name, count) in [("plain", 7), ("indexed", 5)] {
        let status = status(&cluster, name).await;
        assert_eq!(
            (status.succeeded, status.failed),
            (Some(count), None),
            "{name}"
        );
        let is_its = |pod: &&Pod| pod.owner_references()[0].name == name;
        let made = pods.iter().filter(is_its).count();
        assert_eq!(i32::try_from(made), Ok(count), "{name}");
    }
    let indexed = status(&cluster, "indexed").await;
    assert_eq!(indexed.completed_indexes.as_deref(), Some("0-4"));
    assert_eq!(indexed.failed_indexes, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_gets_its_address_and_gives_it_back() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    cluster.add_node("n11", "192.0.2.11").await;
    let services: Api<Service> = cluster.api("default");
    let names: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    for (name, port) in names.iter().zip(80..) {
        let service = balanced(name, json!({"ports": [{"port": port}]}));
        cluster.create::<Service>("default", service).await;
    }
    // Each goes as soon as it has its address.
    let are_over = || async {
        let mut left = 0;
        for name in &names {
            let Some(addresses) = shown(&cluster, name).await else {
                continue;
            };
            left += 1;
            if addresses == ["192.0.2.11"] {
                // It may be going already.
                drop(services.delete(name, &DeleteParams::default()).await);
            }
        }
        left == 0
    };
    run(
        "service-controller",
        &Hands::default(),
        &cluster,
        authorities,
        are_over,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_time_of_a_cron_job_gets_two_jobs_or_none() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let hands = Hands::default();
    cluster
        .create::<CronJob>("default", cron_job(json!({})))
        .await;
    let noted = || async {
        let cron_job: CronJob = cluster.get_opt("default", "tick").await.unwrap();
        let status = cron_job.status.unwrap_or_default();
        let last = status
            .last_schedule_time
            .map(|time| time.0.as_second() / 60);
        let mut active: Vec<String> = status
            .active
            .unwrap_or_default()
            .into_iter()
            .filter_map(|one| one.name)
            .collect();
        active.sort_unstable();
        (last, active)
    };
    let ticks = AtomicUsize::new(0);
    // A minute later whenever all that is due is noted: ten times.
    let are_over = || async {
        let (minutes, (last, active)) = (minutes(&cluster).await, noted().await);
        let names: Vec<String> = minutes
            .iter()
            .map(|minute| format!("tick-{minute}"))
            .collect();
        if minutes.len() < ticks.load(Ordering::SeqCst)
            || last != minutes.last().copied()
            || active != names
        {
            return false;
        }
        if minutes.len() >= 10 {
            return true;
        }
        ticks.store(minutes.len() + 1, Ordering::SeqCst);
        hands.set(60);
        let change = json!({"metadata": {"annotations": {"tick": minutes.len().to_string()}}});
        cluster.merge::<CronJob>("default", "tick", change).await;
        false
    };
    run(
        "cronjob-controller",
        &hands,
        &cluster,
        authorities,
        are_over,
    )
    .await;
    let minutes = minutes(&cluster).await;
    let first = minutes[0];
    let expect: Vec<i64> = (first..).take(minutes.len()).collect();
    assert_eq!(minutes, expect, "one a minute, none left out");
}
