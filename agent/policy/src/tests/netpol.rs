//! The truth tables of upstream's suite: nine pods, a to c in x to z, each to each.
//!
//! Source: `test/e2e/network/netpol/network_policy.go` of Kubernetes. As there, what a pod sends
//! to itself is not looked at.

mod peers;
mod ports;
mod specs;

use coracle_netfilter::service::Protocol::Tcp;
use serde_json::json;

use self::specs::{NAME, expect, relabel};
use super::World;

type Case = (&'static str, fn(&mut World));

#[test]
fn plan_gives_the_truth_tables_of_the_suite() {
    for (name, case) in peers::CASES.iter().chain(ports::CASES) {
        let _named = Named(name);
        let mut world = World::new();
        for namespace in ['x', 'y', 'z'] {
            world.namespace(
                &namespace.to_string(),
                Some(json!({NAME: namespace.to_string()})),
            );
            for name in ['a', 'b', 'c'] {
                relabel(
                    &mut world,
                    namespace,
                    name,
                    &json!({"pod": name.to_string()}),
                );
            }
        }
        expect(&mut world, Tcp, 80, |_, _| true);
        case(&mut world);
    }
}

/// Names the case that fails.
struct Named(&'static str);

impl Drop for Named {
    #[allow(clippy::print_stderr, reason = "a test's report")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("case: {}", self.0);
        }
    }
}
