//! Two allocators on one store, as two servers have them: whatever Services and ranges come and go,
//! no address is given out twice, and none of a range that gives out nothing.

use ipnet::Ipv4Net;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::store::delete::DeleteOptions;

/// They overlap, and are small enough to be full now and then.
const RANGES: [&str; 4] = [
    "10.97.0.0/29",
    "10.97.0.0/28",
    "10.97.1.0/29",
    "10.97.2.0/30",
];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// One through each of them: both look before one of them writes.
    Race,
    Choose(u8),
    Delete(usize),
    /// A range comes, or is ready again.
    Open(usize),
    /// It begins to go.
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Race),
        2 => any::<u8>().prop_map(Step::Choose),
        3 => any::<usize>().prop_map(Step::Delete),
        1 => (0..RANGES.len()).prop_map(Step::Open),
        1 => (0..RANGES.len()).prop_map(Step::Close),
    ]
}

struct Walk {
    kept: (Store, Registry),
    allocators: [Allocators; 2],
    open: [bool; RANGES.len()],
    /// Name and address of each Service.
    services: Vec<(String, Ipv4Addr)>,
    made: usize,
}

impl Walk {
    async fn new() -> Self {
        let kept = testing::started().await;
        Self {
            allocators: [allocator(&kept), allocator(&kept)],
            kept,
            open: [false; RANGES.len()],
            services: Vec::new(),
            made: 0,
        }
    }

    fn is_open(&self, ip: Ipv4Addr) -> bool {
        let ranges = RANGES.iter().zip(self.open).filter(|(_, open)| *open);
        let mut nets = ranges.map(|(range, _)| range.parse::<Ipv4Net>().unwrap());
        nets.any(|net| net.hosts().any(|host| host == ip))
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Race => self.race().await,
            Step::Choose(last) => {
                let ip = Ipv4Addr::new(10, 97, last % 3, last / 3 % 16);
                let name = self.name();
                let new = service(&name, json!({"clusterIP": ip, "ports": [{"port": 80}]}));
                let is_free = self.services.iter().all(|(_, taken)| *taken != ip);
                let may = is_free && self.is_open(ip);
                assert_eq!(self.make(0, name, new, &[]).await, may, "{ip}");
            }
            Step::Delete(any) if !self.services.is_empty() => {
                let (name, _) = self.services.swap_remove(any % self.services.len());
                let (store, registry) = &self.kept;
                let services = registry.core("services").unwrap();
                let options = DeleteOptions::default();
                let gone = store.delete(services, "default", &name, &options);
                gone.await.unwrap();
            }
            Step::Delete(_) => {}
            Step::Open(at) => self.set(at, true).await,
            Step::Close(at) => self.set(at, false).await,
        }
    }

    async fn set(&mut self, at: usize, open: bool) {
        let more = match open {
            true => json!({}),
            false => json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        };
        put_range(&self.kept, &format!("r{at}"), RANGES[at], more).await;
        self.open[at] = open;
    }

    fn name(&mut self) -> String {
        self.made += 1;
        format!("s{}", self.made)
    }

    async fn race(&mut self) {
        let names = [self.name(), self.name()];
        let mut drawn = Vec::new();
        for (allocators, name) in self.allocators.iter().zip(&names) {
            let mut new = service(name, json!({"ports": [{"port": 80}]}));
            if allocators
                .allocate(None, &mut new, Try::default())
                .await
                .is_ok()
            {
                drawn.push((name.clone(), new));
            }
        }
        for (name, new) in drawn {
            let ip: Ipv4Addr = new["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
            assert!(self.is_open(ip), "{ip}");
            let is_free = self.services.iter().all(|(_, taken)| *taken != ip);
            let written = write(&self.kept, new).await;
            assert_eq!(written.is_ok(), is_free, "{ip}");
            if is_free {
                self.services.push((name, ip));
                continue;
            }
            let again = service(&name, json!({"ports": [{"port": 80}]}));
            self.make(1, name, again, &[Allocation::Address(ip).key()])
                .await;
        }
    }

    /// Whether it got what it needs.
    async fn make(&mut self, by: usize, name: String, mut new: Value, lost: &[Arc<str>]) -> bool {
        let allocated = self.allocators[by].allocate(None, &mut new, losing(lost));
        if allocated.await.is_err() {
            return false;
        }
        let ip = new["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        assert!(self.is_open(ip), "{ip}");
        write(&self.kept, new).await.unwrap();
        self.services.push((name, ip));
        true
    }

    /// Services and objects of addresses say the same, and each address is one Service's.
    async fn check(&self) {
        let (store, registry) = &self.kept;
        store.cache.catch_up().await.unwrap();
        let addresses = registry.get("networking.k8s.io", "v1", "ipaddresses");
        let entries = ranges::entries(&addresses.unwrap().cache);
        let objects: BTreeSet<Ipv4Addr> = entries
            .iter()
            .map(|entry| entry.name().parse().unwrap())
            .collect();
        let taken: BTreeSet<_> = self.services.iter().map(|(_, ip)| *ip).collect();
        assert_eq!(taken.len(), self.services.len(), "{:?}", self.services);
        assert_eq!(objects, taken);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_address_is_given_out_twice(steps in vec(step(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let mut walk = Walk::new().await;
            walk.set(0, true).await;
            for step in steps {
                walk.take(step).await;
                walk.check().await;
            }
        });
    }
}
