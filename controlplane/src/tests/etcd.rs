//! A server whose objects are in etcd, and how they get there. Skips visibly where there is none.

use std::{collections::BTreeMap, time::Instant};

use coracle_store_etcd::testing::Etcd;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};

use super::{
    several::races::{Two, small_range},
    *,
};
use crate::{
    alive,
    backup::{self, Existing, PendingFile},
    copy_store,
};

/// As long as a reader waits at most: what takes so long has waited for nothing.
const READ_WAIT: Duration = Duration::from_secs(3);

struct Running {
    server: Server,
    maps: Api<ConfigMap>,
    shutdown: CancellationToken,
}

impl Running {
    async fn start(dir: &Path, store: StoreEngine) -> Self {
        let shutdown = CancellationToken::new();
        let config = ServerConfig {
            store,
            ..small_range(config(dir))
        };
        let server = Server::start(config, shutdown.clone()).await.unwrap();
        let client = server.client(UserInfo::master("test"));
        Self {
            maps: Api::namespaced(client, "default"),
            server,
            shutdown,
        }
    }

    async fn stop(self) {
        let Self {
            server,
            maps,
            shutdown,
        } = self;
        drop(maps);
        shutdown.cancel();
        server.stopped().await.unwrap();
    }

    async fn create(&self, name: &str) -> ConfigMap {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([("of".to_owned(), name.to_owned())])),
            ..ConfigMap::default()
        };
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let mut found = self.maps.list(&ListParams::default()).await.unwrap().items;
        found.retain(|map| {
            map.data
                .as_ref()
                .is_some_and(|data| data.contains_key("of"))
        });
        found
            .into_iter()
            .filter_map(|map| map.metadata.name)
            .collect()
    }
}

/// The directory of another server of the cluster: its certificates are there, as joining brings
/// them.
fn twin(dir: &Path) -> tempfile::TempDir {
    let twin = tempfile::tempdir().unwrap();
    let (from, to) = (dir.join("server/pki"), twin.path().join("server/pki"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    twin
}

fn version(map: &ConfigMap) -> u64 {
    map.metadata
        .resource_version
        .as_deref()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_are_read_at_once_and_outlive_the_server() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let engine = || StoreEngine::Etcd(etcd.config());
    let running = Running::start(dir.path(), engine()).await;
    let mut expected = Vec::new();
    for n in 0..30 {
        let started = Instant::now();
        let made = running.create(&format!("m{n:02}")).await;
        let read = running.maps.get(&format!("m{n:02}")).await.unwrap();
        assert_eq!(read, made);
        expected.push(format!("m{n:02}"));
        assert_eq!(running.names().await, expected);
        assert!(started.elapsed() < READ_WAIT, "{:?}", started.elapsed());
    }
    let gone = expected.remove(7);
    running
        .maps
        .delete(&gone, &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(running.names().await, expected);
    running.stop().await;
    let running = Running::start(dir.path(), engine()).await;
    assert_eq!(running.names().await, expected);
    running.stop().await;
    // With another authority it is another cluster.
    let other = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        store: engine(),
        ..config(other.path())
    };
    let said = refused(config).await;
    assert!(said.contains("holds another cluster"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_server_writes_is_read_here() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let one = Running::start(dir.path(), StoreEngine::Etcd(etcd.config())).await;
    let other = twin(dir.path());
    let two = Running::start(other.path(), StoreEngine::Etcd(etcd.config())).await;
    for n in 0..20 {
        let name = format!("m{n:02}");
        let made = one.create(&name).await;
        assert_eq!(two.maps.get(&name).await.unwrap(), made);
        two.maps
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
        assert!(one.maps.get_opt(&name).await.unwrap().is_none());
    }
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_give_nothing_out_twice() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let first = Running::start(dir.path(), StoreEngine::Memory).await;
    first.stop().await;
    let second = twin(dir.path());
    let start = |dir| Running::start(dir, StoreEngine::Etcd(etcd.config()));
    let (one, other) = tokio::join!(start(dir.path()), start(second.path()));
    let two = Two::of(&one.server, &other.server);
    two.give_out_addresses().await;
    two.delete_what_is_filled().await;
    drop(two);
    other.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_by_lease_and_backups_are_left_to_etcd() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), StoreEngine::Etcd(etcd.config())).await;
    let client = running.server.client(UserInfo::master("test"));
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let deadline = Instant::now() + Duration::from_secs(30);
    for name in ["kube-scheduler", "kube-controller-manager"] {
        while leases.get_opt(name).await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "nobody holds {name}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut file = PendingFile::create(&dir.path().join("backup.db"), Existing::Keep).unwrap();
    let refused = backup::fetch(&client, &mut file).await.unwrap_err();
    let refused = format!("{refused:?}");
    assert!(refused.contains("etcdctl snapshot save"), "{refused}");
    drop((client, leases, file));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_go_to_etcd_and_back_with_growing_versions() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let in_etcd = StoreEngine::Etcd(etcd.config());
    let sqlite = StoreEngine::Sqlite;
    let running = Running::start(dir.path(), StoreEngine::Sqlite).await;
    let made = running.create("a").await;
    let busy = copy_store(dir.path(), &sqlite, &in_etcd).await.unwrap_err();
    assert!(
        busy.to_string().contains("in use by another server"),
        "{busy}"
    );
    running.stop().await;

    let copied = copy_store(dir.path(), &sqlite, &in_etcd).await.unwrap();
    assert!(copied.keys > 10 && copied.to > copied.from, "{copied:?}");
    let running = Running::start(dir.path(), in_etcd.clone()).await;
    let moved = running.maps.get("a").await.unwrap();
    assert_eq!(
        (&moved.metadata.uid, &moved.data),
        (&made.metadata.uid, &made.data)
    );
    assert!(version(&moved) > version(&made));
    let second = running.create("b").await;
    assert!(version(&second) > version(&moved));
    servers_that_run_are_noticed(dir.path(), &in_etcd).await;
    running.stop().await;

    let there = copy_store(dir.path(), &in_etcd, &sqlite).await.unwrap_err();
    assert!(there.to_string().contains("is there already"), "{there}");
    std::fs::rename(
        dir.path().join("server/store.db"),
        dir.path().join("old.db"),
    )
    .unwrap();
    // One that has ended in order is not waited for.
    let began = Instant::now();
    copy_store(dir.path(), &in_etcd, &sqlite).await.unwrap();
    assert!(began.elapsed() < alive::ALIVE, "{:?}", began.elapsed());
    let running = Running::start(dir.path(), StoreEngine::Sqlite).await;
    assert_eq!(running.names().await, ["a", "b"]);
    let back = running.maps.get("b").await.unwrap();
    assert_eq!(back.metadata.uid, second.metadata.uid);
    assert!(version(&back) > version(&second));
    running.stop().await;
}

/// On this directory, and on this etcd by another one's flags.
async fn servers_that_run_are_noticed(dir: &Path, in_etcd: &StoreEngine) {
    let sqlite = StoreEngine::Sqlite;
    let locked = Server::keep_off(dir).unwrap_err().to_string();
    assert!(locked.contains("is in use by another server"), "{locked}");
    let here = copy_store(dir, in_etcd, &sqlite).await.unwrap_err();
    assert_eq!(here.to_string(), locked);
    let (elsewhere, other) = (twin(dir), tempfile::tempdir().unwrap());
    let running = Running::start(other.path(), StoreEngine::Sqlite).await;
    running.stop().await;
    let (from, onto) = tokio::join!(
        copy_store(elsewhere.path(), in_etcd, &sqlite),
        copy_store(other.path(), &sqlite, in_etcd),
    );
    // Nor is it said of what is in the way that it could be deleted.
    for refused in [from, onto] {
        let said = refused.unwrap_err().to_string();
        assert!(
            said.starts_with("the server localhost runs on /coracle of this etcd: stop it"),
            "{said}"
        );
    }
}
