//! Which health checks may be told: those of Services whose rules are as the check says. Pure.
//!
//! A load balancer that hears of endpoints before there are rules sends its clients into nothing;
//! of a Service that gets no rules, for ever.
//!
//! Source: the end of `syncProxyRules` in `pkg/proxy/nftables/proxier.go` at v1.37.

use std::collections::{BTreeMap, BTreeSet};

use coracle_netfilter::service::ServiceKey;

use super::health_checks::{HealthCheck, HealthChecks};

/// What is told when.
#[derive(Debug, Default)]
pub(super) struct ChecksDue {
    /// Of Services that changed; `None`: they have none.
    waiting: BTreeMap<ServiceKey, Option<HealthCheck>>,
    /// Of those whose rules are being written.
    taken: BTreeMap<ServiceKey, Option<HealthCheck>>,
    /// As rules are.
    written: HealthChecks,
}

impl ChecksDue {
    /// A Service has changed.
    pub(super) fn add(&mut self, key: &ServiceKey, check: Option<HealthCheck>) {
        let before = [&mut self.waiting, &mut self.taken].map(|all| all.remove(key));
        let is_known = before.iter().any(Option::is_some) || self.written.contains_key(key);
        if check.is_some() || is_known {
            self.waiting.insert(key.clone(), check);
        }
    }

    /// The next transaction has its rules, if it has any.
    pub(super) fn take(&mut self, key: &ServiceKey, has_rules: bool) {
        let Some(mut check) = self.waiting.remove(key) else {
            return;
        };
        if let Some(check) = check.as_mut().filter(|_| !has_rules) {
            check.local_endpoints = 0;
        }
        self.taken.insert(key.clone(), check);
    }

    /// What was taken is written, but for what the kernel refuses. Returns what is told now.
    pub(super) fn written(&mut self, refused: &BTreeSet<ServiceKey>) -> HealthChecks {
        for (key, check) in std::mem::take(&mut self.taken) {
            match check {
                Some(check) => self.written.insert(key, check),
                None => self.written.remove(&key),
            };
        }
        let mut told = self.written.clone();
        for key in refused {
            if let Some(check) = told.get_mut(key) {
                check.local_endpoints = 0;
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn check(local_endpoints: usize) -> Option<HealthCheck> {
        Some(HealthCheck {
            uid: None,
            port: 30_900,
            local_endpoints,
        })
    }

    fn told(due: &mut ChecksDue, refused: &[&str]) -> Vec<(String, usize)> {
        let refused = refused.iter().map(|name| key(name)).collect();
        let told = due.written(&refused).into_iter();
        told.map(|(key, check)| (key.name, check.local_endpoints))
            .collect()
    }

    fn expect(all: &[(&str, usize)]) -> Vec<(String, usize)> {
        all.iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn endpoints_are_told_once_there_are_rules() {
        let mut due = ChecksDue::default();
        for name in ["a", "large", "waits"] {
            due.add(&key(name), check(2));
        }
        assert_eq!(told(&mut due, &[]), [], "nothing is written");
        due.take(&key("a"), true);
        due.take(&key("large"), false);
        assert_eq!(told(&mut due, &[]), expect(&[("a", 2), ("large", 0)]));
        due.take(&key("waits"), true);
        let all = expect(&[("a", 2), ("large", 0), ("waits", 2)]);
        assert_eq!(told(&mut due, &[]), all);
        // Written, and changed again since.
        due.add(&key("a"), check(3));
        assert_eq!(told(&mut due, &[]), all);
        due.take(&key("a"), true);
        due.add(&key("a"), None);
        assert_eq!(told(&mut due, &[]), all, "the rules of before");
        due.take(&key("a"), false);
        assert_eq!(told(&mut due, &[]), expect(&[("large", 0), ("waits", 2)]));
    }

    #[test]
    fn what_the_kernel_refuses_has_no_endpoints_until_it_is_taken() {
        let mut due = ChecksDue::default();
        due.add(&key("a"), check(1));
        due.take(&key("a"), true);
        assert_eq!(told(&mut due, &["a", "b"]), expect(&[("a", 0)]));
        assert_eq!(told(&mut due, &[]), expect(&[("a", 1)]));
    }
}
