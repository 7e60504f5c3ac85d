//! Which Services the kernel refuses.
//!
//! One rule that the kernel does not take (a match whose module is missing) undoes a whole
//! transaction. Then the Services of that transaction are tried in a chain that nothing leads to,
//! in ever smaller groups, and those that are refused are set aside: without rules, and said so.
//! Works with both variants: legacy tables are checked as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::{RETRY_REFUSED, Refused, Writer};
use crate::{
    engine::Refusal,
    iptables::{
        IptablesError,
        rules::{ServiceRules, TRIAL},
    },
    service::ServiceKey,
};

/// Most trials in a row: each takes as long as a transaction. After them, whole groups are set
/// aside.
const MOST_TRIALS: usize = 64;

impl Writer {
    /// Sets aside what is refused of `candidates`, or of all Services if none of them is, and
    /// writes the rest.
    ///
    /// # Errors
    /// `error` if it is no Service's fault; else what stops the rest from being written.
    pub(super) fn go_on_without_culprits(
        &mut self,
        candidates: Vec<ServiceKey>,
        error: IptablesError,
    ) -> Result<(), IptablesError> {
        self.suspect = true;
        // Whatever the table itself is lacking is no Service's fault.
        if self.try_rules(&[])?.is_some() {
            return Err(error);
        }
        let mut culprits = self.culprits(&candidates)?;
        if culprits.is_empty() && candidates.len() < self.written.len() {
            let all: Vec<ServiceKey> = self.written.keys().cloned().collect();
            culprits = self.culprits(&all)?;
        }
        if culprits.is_empty() {
            return Err(error);
        }
        for (key, why) in culprits {
            let Some(service) = self.written.remove(&key) else {
                continue;
            };
            self.count_hairpins(&service, &ServiceRules::default());
            tracing::error!(service = %key, why, "the kernel refuses the rules of this Service: it has none here");
            let uid = self.uids.get(&key).cloned();
            self.news.push(Refusal {
                service: key.clone(),
                uid,
                why: why.clone(),
            });
            self.refused.insert(key, Refused { service, why });
        }
        self.refused_at = Some(Instant::now());
        self.write_difference().map(drop)
    }

    /// Takes Services that were set aside long enough ago in again: the next write shows whether
    /// they are refused.
    pub(super) fn retry_refused(&mut self) {
        if self.refused.is_empty()
            || self
                .refused_at
                .is_some_and(|at| at.elapsed() < RETRY_REFUSED)
        {
            return;
        }
        for (key, refused) in std::mem::take(&mut self.refused) {
            tracing::debug!(service = %key, why = refused.why, "try refused rules again");
            self.count_hairpins(&ServiceRules::default(), &refused.service);
            self.written.insert(key, refused.service);
        }
        self.suspect = true;
    }

    fn culprits(
        &self,
        candidates: &[ServiceKey],
    ) -> Result<Vec<(ServiceKey, String)>, IptablesError> {
        // Rules of one shape are refused together: a module is there or not.
        let mut shapes: BTreeMap<BTreeSet<String>, Vec<(&ServiceKey, &ServiceRules)>> =
            BTreeMap::new();
        for key in candidates {
            if let Some((key, service)) = self.written.get_key_value(key) {
                shapes
                    .entry(shape(service))
                    .or_default()
                    .push((key, service));
            }
        }
        let mut culprits = Vec::new();
        let mut left = MOST_TRIALS;
        for mut group in shapes.into_values() {
            group.sort_by_key(|(key, _)| *key);
            self.halve(&group, &mut left, &mut culprits)?;
        }
        Ok(culprits)
    }

    fn halve(
        &self,
        group: &[(&ServiceKey, &ServiceRules)],
        left: &mut usize,
        culprits: &mut Vec<(ServiceKey, String)>,
    ) -> Result<(), IptablesError> {
        let services: Vec<&ServiceRules> = group.iter().map(|(_, service)| *service).collect();
        let Some(why) = self.try_rules(&services)? else {
            return Ok(());
        };
        *left = left.saturating_sub(1);
        if group.len() == 1 || *left == 0 {
            culprits.extend(group.iter().map(|(key, _)| ((*key).clone(), why.clone())));
            return Ok(());
        }
        let (first, second) = group.split_at(group.len() / 2);
        self.halve(first, left, culprits)?;
        self.halve(second, left, culprits)
    }

    /// Why these rules are refused, if they are.
    fn try_rules(&self, services: &[&ServiceRules]) -> Result<Option<String>, IptablesError> {
        let (mut nat, mut filter) = (Vec::new(), Vec::new());
        for service in services {
            let (more_nat, more_filter) = service.trial();
            nat.extend(more_nat);
            filter.extend(more_filter);
        }
        let table = |name: &str, rules: &[String]| {
            let rules: String = rules
                .iter()
                .map(|rule| format!("-A {TRIAL} {rule}\n"))
                .collect();
            format!("*{name}\n:{TRIAL} - [0:0]\n{rules}COMMIT\n")
        };
        let outcome = self
            .iptables
            .restore(&(table("nat", &nat) + &table("filter", &filter)));
        let clear = |name: &str| format!("*{name}\n:{TRIAL} - [0:0]\n-X {TRIAL}\nCOMMIT\n");
        let cleared = self.iptables.restore(&(clear("nat") + &clear("filter")));
        match outcome {
            Ok(()) => cleared.map(|()| None),
            Err(error) if error.is_refusal() => Ok(Some(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// Matches, protocols and targets that the rules need of the kernel.
fn shape(service: &ServiceRules) -> BTreeSet<String> {
    let (nat, filter) = service.trial();
    let mut shape = BTreeSet::new();
    for rule in nat.iter().chain(&filter) {
        let words: Vec<&str> = rule.split(' ').collect();
        let named = words
            .windows(2)
            .filter(|pair| matches!(pair[0], "-m" | "-p" | "-j"));
        shape.extend(named.map(|pair| pair.join(" ")));
    }
    shape
}
