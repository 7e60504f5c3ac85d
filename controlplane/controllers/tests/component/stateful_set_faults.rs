//! StatefulSets under controllers that end at any point, hear no answer, or meet a namesake.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use coracle_client::reflector::{Event, Reflector, Selection};
use coracle_controllers::CertificateAuthority;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{Client, ResourceExt, api::DeleteParams, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    cluster::Cluster,
    own_writes::deaf,
    stateful_sets::{has, image, is_complete, merge, stateful_set},
};

const ACCOUNT: &str = "statefulset-controller";

fn with_claims(policy: &str) -> Value {
    stateful_set(json!({
        "podManagementPolicy": policy,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }))
}

/// A client that is gone with its write of this number, which is carried out; `cut` hears of it.
fn severed(client: Client, last: usize, cut: watch::Sender<bool>) -> Client {
    let written = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, written, cut) = (client.clone(), written.clone(), cut.clone());
        async move {
            let silence = || {
                let response = Response::builder().status(StatusCode::GATEWAY_TIMEOUT);
                Ok::<_, kube::Error>(response.body(Body::empty()).unwrap())
            };
            if *cut.borrow() {
                return silence();
            }
            let is_write = request.method() != Method::GET;
            let number =
                usize::from(is_write) + written.fetch_add(usize::from(is_write), Ordering::Relaxed);
            if is_write && number > last {
                return silence();
            }
            let response = client.send(request).await?;
            if is_write && number == last {
                cut.send_replace(true);
                return silence();
            }
            Ok(response)
        }
    });
    Client::new(service, "default")
}

/// The uids of all pods that have ever been, by name.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Seen {
    fn of(cluster: &Cluster) -> Self {
        let (this, shutdown) = (Self::default(), cluster.shutdown.clone());
        let (seen, pods) = (this.clone(), cluster.api::<Pod>("default"));
        let mut events = Reflector::new(pods, Selection::all());
        coracle_telemetry::spawn("task of a test", async move {
            while let Some(event) = shutdown.run_until_cancelled(events.next()).await {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                    let mut pods = seen.0.lock();
                    let uids = pods.entry(pod.name_any()).or_default();
                    uids.insert(pod.uid().unwrap());
                }
            }
        });
        this
    }

    /// How many pods each name has had.
    fn counts(&self) -> Vec<(String, usize)> {
        let pods = self.0.lock();
        pods.iter()
            .map(|(name, uids)| (name.clone(), uids.len()))
            .collect()
    }
}

/// Controllers that are started again and again, each time gone after a few writes, until this
/// state is reached. How often they went.
async fn restarted_until(
    cluster: &Cluster,
    authorities: &[CertificateAuthority; 2],
    writes: &mut impl Iterator<Item = usize>,
    expect: &[(&str, &str)],
) -> usize {
    for restarts in 0.. {
        let (cut, last) = (watch::Sender::new(false), writes.next().unwrap());
        let (shutdown, mut is_cut, of_client) =
            (cluster.shutdown.child_token(), cut.subscribe(), cut.clone());
        let wrap = move |account: &str, client: Client| match account {
            ACCOUNT => severed(client, last, of_client.clone()),
            _ => client,
        };
        let running =
            cluster.spawn_controllers(authorities.clone(), |_| {}, wrap, shutdown.clone());
        let is_done = tokio::select! {
            _ = is_cut.wait_for(|is_cut| *is_cut) => false,
            () = has(cluster, expect) => true,
        };
        shutdown.cancel();
        running.await.unwrap().unwrap();
        if is_done || is_complete(cluster, expect).await {
            return restarts + usize::from(!is_done);
        }
    }
    unreachable!("it would have taken too long")
}

/// A set is made, changed, scaled up and down while its controller ends after each few writes.
async fn survives_restarts(policy: &str) {
    let (cluster, authorities) = Cluster::without_controllers().await;
    cluster.run_agent();
    let seen = Seen::of(&cluster);
    cluster
        .create::<StatefulSet>("default", with_claims(policy))
        .await;
    let pods = |count: usize, image: &'static str| {
        let all = ["web-0", "web-1", "web-2", "web-3", "web-4"];
        all.into_iter()
            .take(count)
            .map(|pod| (pod, image))
            .collect::<Vec<_>>()
    };
    let mut writes = [1, 2, 3, 5].into_iter().cycle();
    let mut restarts = 0;
    for (change, count, tag) in [
        (json!({}), 3, "i:1"),
        (image("i:2"), 3, "i:2"),
        (json!({"spec": {"replicas": 5}}), 5, "i:2"),
        (json!({"spec": {"replicas": 1}}), 1, "i:2"),
    ] {
        merge(&cluster, change).await;
        let expect = pods(count, tag);
        restarts += restarted_until(&cluster, &authorities, &mut writes, &expect).await;
    }
    assert!(restarts > 6, "{restarts}");
    let expect = [
        ("web-0", 2),
        ("web-1", 2),
        ("web-2", 2),
        ("web-3", 1),
        ("web-4", 1),
    ];
    let expect = expect.map(|(name, count)| (name.to_owned(), count));
    cluster
        .wait("all pods to be seen", || async {
            seen.counts().len() == expect.len()
        })
        .await;
    assert_eq!(
        seen.counts(),
        expect,
        "none more than once for each template"
    );
    let claims = cluster.list::<PersistentVolumeClaim>("default").await;
    let names: Vec<_> = claims.iter().map(ResourceExt::name_any).collect();
    let expect = [
        "data-web-0",
        "data-web-1",
        "data-web-2",
        "data-web-3",
        "data-web-4",
    ];
    assert_eq!(names, expect);
    let is_owned = |claim: &PersistentVolumeClaim| claim.owner_references().len() == 1;
    assert!(claims.iter().all(is_owned), "{claims:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_between_any_two_writes_make_no_pod_of_a_set_in_order_twice() {
    survives_restarts("OrderedReady").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_between_any_two_writes_make_no_pod_of_a_set_in_parallel_twice() {
    survives_restarts("Parallel").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_lost_hold_up_no_set() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    cluster.run_agent();
    let seen = Seen::of(&cluster);
    // The first revision, claim and pod.
    let wrap = |account: &str, client: Client| match account {
        ACCOUNT => deaf(client, 3),
        _ => client,
    };
    cluster.run_controllers(authorities, |_| {}, wrap).await;
    cluster
        .create::<StatefulSet>("default", with_claims("OrderedReady"))
        .await;
    has(
        &cluster,
        &[("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:1")],
    )
    .await;
    let expect = ["web-0", "web-1", "web-2"].map(|name| (name.to_owned(), 1));
    cluster
        .wait("all pods to be seen", || async { seen.counts().len() == 3 })
        .await;
    assert_eq!(seen.counts(), expect);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_waits_for_the_pods_of_its_namesake_to_go() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let first: StatefulSet = cluster.create("default", with_claims("OrderedReady")).await;
    let three = [("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:1")];
    has(&cluster, &three).await;
    // Its pods hold on to their names.
    let held = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    for (pod, _) in three {
        cluster.merge::<Pod>("default", pod, held.clone()).await;
    }
    let api = cluster.api::<StatefulSet>("default");
    drop(
        api.delete("web", &DeleteParams::background())
            .await
            .unwrap(),
    );
    cluster
        .wait("the first set to be gone", || async {
            api.get_opt("web").await.unwrap().is_none()
        })
        .await;
    let second: StatefulSet = cluster.create("default", with_claims("OrderedReady")).await;
    assert_ne!(first.uid(), second.uid());
    let owners = async || {
        let pods = cluster.list::<Pod>("default").await;
        let owner = |pod: &Pod| pod.owner_references()[0].uid.clone();
        pods.iter().map(owner).collect::<BTreeSet<_>>()
    };
    let counted = || async {
        let set = api.get("web").await.unwrap();
        set.status
            .is_some_and(|status| status.observed_generation == Some(1))
    };
    cluster.wait("the second to be seen", counted).await;
    assert_eq!(owners().await, BTreeSet::from([first.uid().unwrap()]));
    for (pod, _) in three {
        let free = json!({"metadata": {"finalizers": null}});
        cluster.merge::<Pod>("default", pod, free).await;
    }
    has(&cluster, &three).await;
    assert_eq!(owners().await, BTreeSet::from([second.uid().unwrap()]));
}
