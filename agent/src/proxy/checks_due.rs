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
    taken: BTreeMap<ServiceKey, Option<Due>>,
    /// As rules are.
    written: BTreeMap<ServiceKey, Due>,
}

#[derive(Debug, Clone)]
struct Due {
    check: HealthCheck,
    /// A Service that is too large has none.
    has_rules: bool,
}

impl ChecksDue {
    /// A Service has changed.
    pub(super) fn add(&mut self, key: &ServiceKey, check: Option<HealthCheck>) {
        let was_due = self.waiting.remove(key).is_some() | self.taken.remove(key).is_some();
        let is_known = was_due || self.written.contains_key(key);
        if check.is_some() || is_known {
            self.waiting.insert(key.clone(), check);
        }
    }

    /// The next transaction has its rules, if it has any: that may change without the Service, by
    /// what others have.
    pub(super) fn take(&mut self, key: &ServiceKey, has_rules: bool) {
        let known = || {
            let due = match self.taken.get(key) {
                Some(due) => due.as_ref(),
                None => self.written.get(key),
            };
            due.map(|due| due.check.clone())
        };
        let check = self.waiting.remove(key).unwrap_or_else(known);
        let due = check.map(|check| Due { check, has_rules });
        self.taken.insert(key.clone(), due);
    }

    /// What was taken is written, but for what the kernel refuses. Returns what is told now.
    pub(super) fn written(&mut self, refused: &BTreeSet<ServiceKey>) -> HealthChecks {
        for (key, due) in std::mem::take(&mut self.taken) {
            match due {
                Some(due) => self.written.insert(key, due),
                None => self.written.remove(&key),
            };
        }
        let told = self.written.iter().map(|(key, due)| {
            let mut check = due.check.clone();
            if !due.has_rules || refused.contains(key) {
                check.local_endpoints = 0;
            }
            (key.clone(), check)
        });
        told.collect()
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
    fn a_service_may_lose_and_get_rules_by_what_others_have() {
        let mut due = ChecksDue::default();
        due.take(&key("unknown"), true);
        due.add(&key("a"), check(2));
        for has_rules in [true, false, true] {
            due.take(&key("a"), has_rules);
            let count = if has_rules { 2 } else { 0 };
            assert_eq!(told(&mut due, &[]), expect(&[("a", count)]));
        }
        // One that is about to go does not come back.
        due.add(&key("a"), None);
        due.take(&key("a"), false);
        due.take(&key("a"), true);
        assert_eq!(told(&mut due, &[]), []);
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
