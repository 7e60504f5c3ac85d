//! Services that come, change and go at random.

use super::*;
use crate::service::{Port, Protocol};

const EVENTS: usize = 1000;
/// So many Services at most, which share some of their addresses.
const SERVICES: u32 = 25;

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        // Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % bound
    }

    fn is(&mut self, one_in: u32) -> bool {
        self.below(one_in) == 0
    }

    fn byte(&mut self, bound: u32) -> u8 {
        u8::try_from(self.below(bound)).unwrap()
    }

    fn view(&mut self, number: u32) -> ServiceView {
        let last = u8::try_from(10 + number).unwrap();
        let mut view = ServiceView {
            uid: Some(format!("uid-{number}")),
            cluster_ips: vec![[10, 96, 0, last].into()],
            internal_local: self.is(4),
            external_local: self.is(3),
            affinity_secs: self.is(4).then_some(60 * (1 + self.below(2))),
            ..ServiceView::default()
        };
        if self.is(3) {
            view.external_ips = vec![[203, 0, 113, self.byte(8)].into()];
        }
        if self.is(3) {
            view.balancer_ips = vec![[203, 0, 114, self.byte(8)].into()];
            let ranges = ["198.51.100.0/24", "192.168.0.0/16", "192.168.7.0/24"];
            let ranges = ranges[..self.below(4) as usize].iter();
            view.source_ranges = self
                .is(2)
                .then(|| ranges.map(|one| one.parse().unwrap()).collect());
        }
        for port in 0..1 + self.below(2) {
            let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
            let node_port = 30_000 + u16::try_from(self.below(12)).unwrap();
            let port = Port {
                name: format!("p{port}"),
                protocol: protocols[self.below(3) as usize],
                port: 80 + u16::try_from(port).unwrap(),
                node_port: self.is(2).then_some(node_port),
            };
            let count = [0, 1, 3, 9][self.below(4) as usize];
            let mut endpoints: Vec<Endpoint> = (0..count).map(|_| self.endpoint()).collect();
            endpoints.sort_unstable();
            endpoints.dedup();
            view.ports.push(view_of(port, endpoints));
        }
        view
    }

    fn endpoint(&mut self) -> Endpoint {
        let (node, pod) = (1 + self.below(3), 2 + self.below(5));
        endpoint(&format!("10.244.{node}.{pod}:8080"), node == 1)
    }
}

#[test]
fn the_kernel_has_the_plan_after_any_events() {
    on_ground("random", || {
        let mut dice = Dice(4);
        let mut views: BTreeMap<ServiceKey, ServiceView> = BTreeMap::new();
        let mut writer = engine();
        writer.apply(Vec::new()).unwrap();
        for event in 0..EVENTS {
            let number = dice.below(SERVICES);
            let key = key(&format!("s{number}"));
            let view = (!dice.is(4)).then(|| dice.view(number));
            match view.clone() {
                Some(view) => views.insert(key.clone(), view),
                None => views.remove(&key),
            };
            // Killed before it heard of this one, and begun anew: the next hears of all at once.
            if dice.is(20) {
                writer = engine();
                let all = views.iter();
                let all = all.map(|(key, view)| (key.clone(), Some(view.clone())));
                writer.apply(all.collect()).unwrap();
            } else {
                writer.apply(vec![(key, view)]).unwrap();
            }
            assert!(!writer.suspect, "event {event}");
            assert_eq!(writer.refused().len(), 0, "event {event}");
            if event % 10 == 0 {
                assert_kernel_has(&writer, &format!("event {event}"));
                assert!(
                    !writer.is_disturbed() || !writer.reconcile().unwrap(),
                    "event {event}"
                );
            }
        }
        let all = views.keys().map(|key| (key.clone(), None)).collect();
        writer.apply(all).unwrap();
        assert_kernel_has(&writer, "none left");
        for set in [
            name::SERVICES,
            name::ENDPOINTS,
            name::UNSERVED,
            name::HAIRPINS,
        ] {
            assert!(kernel::elements(&TABLE, set).unwrap().is_empty(), "{set}");
        }
    });
}
