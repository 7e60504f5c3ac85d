//! Amounts of what a node has to give: CPU, memory and storage by field, everything else that is
//! counted by name.

use std::collections::BTreeMap;

use coracle_api::{
    quantity::Quantity as Amount,
    resource_list::{self, Amounts},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Of any resource: no node has more, and the sum of what its pods ask for stays exact, whatever
/// comes and goes.
const MOST: i64 = 1 << 52;

/// Amounts by resource: asked for, allocatable or taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) milli_cpu: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_storage_bytes: i64,
    /// Extended resources, huge pages and what else has a name. Upstream calls them scalar
    /// resources.
    pub(crate) scalars: BTreeMap<String, i64>,
}

impl Resources {
    pub(crate) fn from_list(list: &BTreeMap<String, Quantity>) -> Self {
        Self::from_amounts(&resource_list::amounts(list))
    }

    pub(crate) fn from_amounts(amounts: &Amounts) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            resources.set(name, amount);
        }
        resources
    }

    /// Nothing is less than nothing: who asks for that must not give it to others.
    fn set(&mut self, name: &str, quantity: &Amount) {
        let value = quantity.value().clamp(0, MOST);
        match name {
            "cpu" => self.milli_cpu = quantity.milli_value().clamp(0, MOST),
            "memory" => self.memory_bytes = value,
            "ephemeral-storage" => self.ephemeral_storage_bytes = value,
            // Counted by the number of pods.
            "pods" => {}
            _ => drop(self.scalars.insert(name.to_owned(), value)),
        }
    }

    /// How much of a resource there is, by its name: CPU in thousandths.
    pub(crate) fn amount(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_storage_bytes,
            _ => self.scalar(name),
        }
    }

    /// Whether a resource is counted by its name alone.
    pub(crate) fn is_scalar(name: &str) -> bool {
        !matches!(name, "cpu" | "memory" | "ephemeral-storage")
    }

    /// How much of a resource beside CPU, memory and storage there is.
    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let plus = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        plus(&mut self.milli_cpu, other.milli_cpu);
        plus(&mut self.memory_bytes, other.memory_bytes);
        plus(
            &mut self.ephemeral_storage_bytes,
            other.ephemeral_storage_bytes,
        );
        for (name, amount) in &other.scalars {
            plus(self.scalars.entry(name.clone()).or_default(), *amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        let minus = |sum: &mut i64, less: i64| *sum = sum.saturating_sub(less);
        minus(&mut self.milli_cpu, other.milli_cpu);
        minus(&mut self.memory_bytes, other.memory_bytes);
        minus(
            &mut self.ephemeral_storage_bytes,
            other.ephemeral_storage_bytes,
        );
        for (name, amount) in &other.scalars {
            minus(self.scalars.entry(name.clone()).or_default(), *amount);
        }
        self.scalars.retain(|_, amount| *amount != 0);
    }

    /// Whether there is less of any resource than in `other`.
    pub(crate) fn any_less_than(&self, other: &Self) -> bool {
        self.milli_cpu < other.milli_cpu
            || self.memory_bytes < other.memory_bytes
            || self.ephemeral_storage_bytes < other.ephemeral_storage_bytes
            || other
                .scalars
                .iter()
                .any(|(name, amount)| self.scalar(name) < *amount)
    }

    /// Whether there is more than in `other` of a resource that `asked` asks for.
    pub(crate) fn any_more_of(&self, asked: &Self, other: &Self) -> bool {
        asked.milli_cpu > 0 && self.milli_cpu > other.milli_cpu
            || asked.memory_bytes > 0 && self.memory_bytes > other.memory_bytes
            || asked.ephemeral_storage_bytes > 0
                && self.ephemeral_storage_bytes > other.ephemeral_storage_bytes
            || asked
                .scalars
                .iter()
                .any(|(name, asked)| *asked > 0 && self.scalar(name) > other.scalar(name))
    }

    /// Whether all of `asked` is there.
    pub(crate) fn covers(&self, asked: &Self) -> bool {
        let covers = |asked: i64, has: i64| asked <= 0 || asked <= has;
        covers(asked.milli_cpu, self.milli_cpu)
            && covers(asked.memory_bytes, self.memory_bytes)
            && covers(asked.ephemeral_storage_bytes, self.ephemeral_storage_bytes)
            && asked
                .scalars
                .iter()
                .all(|(name, asked)| covers(*asked, self.scalar(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(amounts: &[(&str, &str)]) -> Resources {
        let list = amounts.iter().map(|(name, amount)| {
            let quantity = Quantity((*amount).to_owned());
            ((*name).to_owned(), quantity)
        });
        Resources::from_list(&list.collect())
    }

    #[test]
    fn what_comes_and_goes_leaves_no_trace() {
        let most = i64::MAX.to_string();
        let large = of(&[("cpu", &most), ("memory", &most), ("example.org/x", &most)]);
        let usual = of(&[("cpu", "2"), ("memory", "4Gi"), ("example.org/x", "3")]);
        let mut sum = usual.clone();
        for _ in 0..500 {
            sum.add(&large);
        }
        for _ in 0..500 {
            sum.subtract(&large);
        }
        assert_eq!(sum, usual);
        sum.subtract(&usual);
        assert_eq!(sum, Resources::default());
    }
}
