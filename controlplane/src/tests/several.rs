//! Two servers over one store: one leads, and the other takes over; both serve.

pub(super) mod races;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use coracle_store::{Backend, memory::MemoryBackend, testing::FailingBackend};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Endpoints, Namespace, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config;
use crate::{
    Server, ServerConfig, UserInfo, server,
    store::{Opened, open},
};

const LEASES: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];

struct One {
    server: Server,
    shutdown: CancellationToken,
}

/// A server called `host` over the same store as others.
async fn start(dir: &Path, host: &str, store: &Arc<MemoryBackend>) -> One {
    let mut config = races::small_range(config(dir));
    config.host_name = host.to_owned();
    start_with(config, store).await
}

async fn start_with(mut config: ServerConfig, store: &Arc<MemoryBackend>) -> One {
    let dir = config.data_dir.clone();
    config.store = crate::StoreEngine::Memory;
    let opened = open(&config, dir.join("server")).await.unwrap();
    let store = Arc::clone(store) as Arc<dyn Backend>;
    let backend = FailingBackend::over(store).shared().far();
    let shutdown = CancellationToken::new();
    let listener = server::listen(config.bind).await.unwrap();
    let opened = Opened {
        backend: Arc::new(backend),
        ..opened
    };
    let server_dir = dir.join("server");
    let server = Server::start_on(config, listener, opened, server_dir, shutdown.clone());
    One {
        server: server.await.unwrap(),
        shutdown,
    }
}

impl One {
    fn client(&self) -> kube::Client {
        self.server.client(UserInfo::master("test"))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client(), "kube-system")
    }

    /// Hosts that hold a Lease of those for which one leads.
    async fn leaders(&self) -> BTreeSet<String> {
        let mut leaders = BTreeSet::new();
        for name in LEASES {
            let lease = self.leases().get_opt(name).await.unwrap();
            let holder = lease
                .and_then(|lease| lease.spec?.holder_identity)
                .unwrap_or_default();
            leaders.insert(holder.split('_').next().unwrap().to_owned());
        }
        leaders
    }

    /// Waits until `host` leads in all.
    async fn led_by(&self, host: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.leaders().await != BTreeSet::from([host.to_owned()]) {
            assert!(Instant::now() < deadline, "{:?}", self.leaders().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Makes a namespace, and waits for what a controller puts into it.
    async fn controllers_work(&self, namespace: &str) {
        let metadata = ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        let made = Namespace {
            metadata,
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces
            .create(&PostParams::default(), &made)
            .await
            .unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let deadline = Instant::now() + Duration::from_secs(30);
        while accounts.get_opt("default").await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "nobody controls {namespace}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(20), self.server.stopped());
        stopped.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_servers_leads_and_the_other_takes_over() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryBackend::new()));
    let first = start(&dir.path().join("a"), "a", &store).await;
    first.led_by("a").await;
    let second = start(&dir.path().join("b"), "b", &store).await;
    second.controllers_work("by-a").await;
    assert_eq!(second.leaders().await, BTreeSet::from(["a".to_owned()]));
    let labelled = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let deadline = Instant::now() + Duration::from_secs(30);
    while second.leases().list(&labelled).await.unwrap().items.len() < 2 {
        assert!(
            Instant::now() < deadline,
            "each server has a Lease of its own"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.stop().await;
    second.led_by("b").await;
    second.controllers_work("by-b").await;
    second.stop().await;
}

impl One {
    /// Addresses to which the Service of the API leads, by both of its objects.
    async fn led_to(&self) -> [Vec<String>; 2] {
        let old: Api<Endpoints> = Api::namespaced(self.client(), "default");
        let new: Api<EndpointSlice> = Api::namespaced(self.client(), "default");
        let old = old.get_opt("kubernetes").await.unwrap();
        let new = new.get_opt("kubernetes").await.unwrap();
        let subsets = old.and_then(|old| old.subsets).unwrap_or_default();
        let addresses = subsets
            .into_iter()
            .flat_map(|subset| subset.addresses.unwrap_or_default());
        let endpoints = new.and_then(|new| new.endpoints).unwrap_or_default();
        [
            addresses.map(|address| address.ip).collect(),
            endpoints
                .into_iter()
                .flat_map(|one| one.addresses)
                .collect(),
        ]
    }

    async fn leads_to(&self, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|&one| one.to_owned()).collect();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = self.led_to().await;
            if found.iter().all(|found| *found == expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_the_api_leads_to_all_servers_and_to_none_that_has_stopped() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryBackend::new()));
    let advertised = |host: &str, last: u8| {
        let mut config = config(&dir.path().join(host));
        config.host_name = host.to_owned();
        config.advertise = [198, 18, 0, last].into();
        config
    };
    // Both on one port, as servers of a cluster are.
    let first = start_with(advertised("a", 1), &store).await;
    let port = first.server.address().port();
    first.leads_to(&["198.18.0.1"]).await;
    let mut config = advertised("b", 2);
    config.bind = ([127, 0, 0, 2], port).into();
    let second = start_with(config, &store).await;
    for one in [&first, &second] {
        one.leads_to(&["198.18.0.1", "198.18.0.2"]).await;
    }
    // Who may write Leases here makes no server by it.
    let forged = serde_json::json!({
        "metadata": {"name": "apiserver-forged",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "c"},
            "annotations": {"coracle.dev/apiserver-address": "198.18.0.66:6443"}},
        "spec": {"holderIdentity": "c_1", "leaseDurationSeconds": 3600, "renewTime": "2030-01-01T00:00:00.000000Z"},
    });
    let forged: Lease = serde_json::from_value(forged).unwrap();
    let made = first.leases().create(&PostParams::default(), &forged).await;
    made.unwrap();
    let changes: Api<Endpoints> = Api::namespaced(second.client(), "default");
    let version = async || {
        let found = changes.get("kubernetes").await.unwrap();
        found.metadata.resource_version.unwrap()
    };
    let before = version().await;
    first.stop().await;
    // It has said so itself: nobody had to wait for its Lease.
    assert_eq!(second.led_to().await[0], ["198.18.0.2"]);
    second.leads_to(&["198.18.0.2"]).await;
    assert_ne!(version().await, before);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_store_of_its_own_holds_no_election() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::start(config(dir.path()), shutdown.clone())
        .await
        .unwrap();
    let one = One { server, shutdown };
    one.controllers_work("mine").await;
    let leases = one.leases().list(&ListParams::default()).await.unwrap();
    assert!(leases.items.is_empty(), "{:?}", leases.items);
    one.stop().await;
}
