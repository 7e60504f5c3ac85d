//! The node's network against a real kernel: nodes and pods are namespaces of the test, joined by
//! veth pairs, without an uplink. Needs root; skips visibly without, fails if `REQUIRE_ROOT` is
//! set.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

/// Has each of these tests once over iptables and once over nftables.
macro_rules! for_each_engine {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            use coracle_netfilter::ProxyMode;

            #[test]
            fn iptables() {
                super::$test(ProxyMode::Iptables);
            }

            #[test]
            fn nftables() {
                super::$test(ProxyMode::Nftables);
            }
        }
    )+ };
}

mod cni;
mod explain;
mod fake_api;
mod harness;
mod isolation;
mod network_policies;
mod policies;
mod proxy;
mod reach;
mod routes;
