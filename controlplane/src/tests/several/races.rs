//! Two whole servers that both serve, with everything that one of them leads: races whose outcome
//! clients see. Over memory, and over a real etcd.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use kube::api::DeleteParams;

use super::*;

const SERVICES: usize = 200;
/// Requests under way.
const AT_ONCE: usize = 48;

/// A range with room for little more than what the race takes of it.
pub(in crate::tests) fn small_range(mut config: crate::ServerConfig) -> crate::ServerConfig {
    config.service_cidr = "10.96.0.0/24".parse().unwrap();
    config
}

fn named(name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        ..ObjectMeta::default()
    }
}

/// Clients of the two.
pub(in crate::tests) struct Two([kube::Client; 2]);

impl Two {
    pub(in crate::tests) fn of(one: &Server, other: &Server) -> Self {
        Self([one, other].map(|server| server.client(UserInfo::master("test"))))
    }

    fn client(&self, n: usize) -> kube::Client {
        self.0[n % 2].clone()
    }

    fn services(&self, n: usize) -> Api<Service> {
        Api::namespaced(self.client(n), "default")
    }

    async fn make(&self, n: usize) -> Result<Service, kube::Error> {
        let port = ServicePort {
            port: 80,
            ..ServicePort::default()
        };
        let spec = ServiceSpec {
            type_: Some("NodePort".to_owned()),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        };
        let service = Service {
            metadata: named(format!("s{n}")),
            spec: Some(spec),
            ..Service::default()
        };
        self.services(n)
            .create(&PostParams::default(), &service)
            .await
    }

    /// Makes many Services through both, and looks at them from both.
    pub(in crate::tests) async fn give_out_addresses(&self) {
        let made = stream::iter((0..SERVICES).map(|n| self.make(n)));
        let made: Vec<_> = made.buffer_unordered(AT_ONCE).collect().await;
        let failed: Vec<_> = made.iter().filter_map(|made| made.as_ref().err()).collect();
        assert!(failed.is_empty(), "{failed:?}");
        for n in 0..2 {
            let mut all = self.services(n).list(&ListParams::default()).await.unwrap();
            all.items
                .retain(|service| service.metadata.name.as_deref() != Some("kubernetes"));
            assert_eq!(all.items.len(), SERVICES);
            let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
            for service in all.items {
                let spec = service.spec.unwrap();
                addresses.insert(spec.cluster_ip.unwrap());
                ports.insert(spec.ports.unwrap()[0].node_port.unwrap());
            }
            assert_eq!((addresses.len(), ports.len()), (SERVICES, SERVICES));
        }
    }

    /// Deletes namespaces through one while both fill them: nothing outlives its namespace.
    pub(in crate::tests) async fn delete_what_is_filled(&self) {
        let rounds = (0..8).map(|round| async move {
            let name = format!("race{round}");
            let namespaces: Api<Namespace> = Api::all(self.client(round));
            let namespace = Namespace {
                metadata: named(name.clone()),
                ..Namespace::default()
            };
            namespaces
                .create(&PostParams::default(), &namespace)
                .await
                .unwrap();
            let fill = stream::iter((0..40).map(|n| self.fill(n, &name)));
            let deleting = async {
                tokio::task::yield_now().await;
                let options = DeleteParams::default();
                namespaces.delete(&name, &options).await.unwrap();
            };
            let (filled, ()) = tokio::join!(fill.buffered(8).collect::<Vec<bool>>(), deleting);
            let deadline = Instant::now() + Duration::from_secs(60);
            while namespaces.get_opt(&name).await.unwrap().is_some() {
                assert!(Instant::now() < deadline, "{name} stays");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let left: Api<ConfigMap> = Api::namespaced(self.client(round + 1), &name);
            let left = left.list(&ListParams::default()).await.unwrap().items;
            assert!(left.is_empty(), "outlive {name}: {left:?}");
            filled
        });
        let filled = stream::iter(rounds).buffer_unordered(4);
        let filled: Vec<Vec<bool>> = filled.collect().await;
        println!("made before their namespaces went: {filled:?}");
    }

    /// Whether it was made; if not, because the namespace goes or has gone.
    async fn fill(&self, n: usize, namespace: &str) -> bool {
        let maps: Api<ConfigMap> = Api::namespaced(self.client(n), namespace);
        let map = ConfigMap {
            metadata: named(format!("m{n}")),
            data: Some(BTreeMap::new()),
            ..ConfigMap::default()
        };
        match maps.create(&PostParams::default(), &map).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => {
                let goes = status.code == 403 && status.message.contains("is being terminated");
                let gone = status.code == 404 && status.message.starts_with("namespaces ");
                assert!(goes || gone, "{status:?}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_start_at_once_on_nothing_give_nothing_out_twice() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryBackend::new()));
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let (one, other) = tokio::join!(start(&a, "a", &store), start(&b, "b", &store));
    let two = Two::of(&one.server, &other.server);
    two.give_out_addresses().await;
    two.delete_what_is_filled().await;
    drop(two);
    one.stop().await;
    other.stop().await;
}
