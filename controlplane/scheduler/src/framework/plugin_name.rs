//! The plugins' names: upstream's, which messages and configurations carry.

use std::fmt;

/// Names one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum PluginName {
    SchedulingGates,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    DefaultBinder,
    /// Of tests.
    #[cfg(test)]
    Test,
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants are the names.
        fmt::Debug::fmt(self, f)
    }
}

/// Several of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PluginSet(u32);

impl PluginSet {
    pub(crate) fn insert(&mut self, name: PluginName) {
        self.0 |= 1 << name as u8;
    }

    pub(crate) fn remove(&mut self, name: PluginName) {
        self.0 &= !(1 << name as u8);
    }

    pub(crate) fn contains(self, name: PluginName) -> bool {
        self.0 & (1 << name as u8) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Extend<PluginName> for PluginSet {
    fn extend<I: IntoIterator<Item = PluginName>>(&mut self, names: I) {
        names.into_iter().for_each(|name| self.insert(name));
    }
}

impl FromIterator<PluginName> for PluginSet {
    fn from_iter<I: IntoIterator<Item = PluginName>>(names: I) -> Self {
        let mut set = Self::default();
        set.extend(names);
        set
    }
}
