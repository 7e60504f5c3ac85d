//! Two servers over one store: one leads, and the other takes over.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use coracle_store::{Backend, memory::MemoryBackend, testing::FailingBackend};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config;
use crate::{Server, UserInfo, server, store::open};

const LEASES: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];

struct One {
    server: Server,
    shutdown: CancellationToken,
}

/// A server called `host` over the same store as others.
async fn start(dir: &Path, host: &str, store: &Arc<MemoryBackend>) -> One {
    let mut config = config(dir);
    config.host_name = host.to_owned();
    config.store = crate::StoreEngine::Memory;
    let (_, pki) = open(&config, dir.join("server")).await.unwrap();
    let backend = FailingBackend::over(Arc::clone(store) as Arc<dyn Backend>).shared();
    let shutdown = CancellationToken::new();
    let listener = server::listen(config.bind).await.unwrap();
    let opened = (Arc::new(backend) as Arc<dyn Backend>, pki);
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
