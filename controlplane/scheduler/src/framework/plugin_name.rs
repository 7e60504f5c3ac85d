//! The plugins' names, upstream's, which messages and configurations carry; and where each of them
//! has something to say.

use std::fmt;

use super::point::Point;

/// Names one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum PluginName {
    SchedulingGates,
    /// The order of the queue, which is the queue's own.
    PrioritySort,
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
    NodeDeclaredFeatures,
    DefaultPreemption,
    DefaultBinder,
    /// No plugin: upstream's name for what extenders refuse.
    Extender,
    /// Of tests.
    #[cfg(test)]
    Test,
}

impl PluginName {
    pub(crate) const ALL: [Self; 20] = [
        Self::SchedulingGates,
        Self::PrioritySort,
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::NodeResourcesBalancedAllocation,
        Self::ImageLocality,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::DynamicResources,
        Self::NodeDeclaredFeatures,
        Self::DefaultPreemption,
        Self::DefaultBinder,
    ];

    /// By what a configuration calls it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_string() == name)
    }

    /// The extension points where it has something to say.
    pub(crate) fn points(self) -> &'static [Point] {
        use Point::{
            Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
            Score,
        };
        match self {
            Self::SchedulingGates => &[PreEnqueue],
            Self::PrioritySort => &[QueueSort],
            Self::NodeUnschedulable | Self::NodeName | Self::NodeDeclaredFeatures => &[Filter],
            Self::TaintToleration => &[Filter, PreScore, Score],
            Self::NodeAffinity | Self::PodTopologySpread | Self::InterPodAffinity => {
                &[PreFilter, Filter, PreScore, Score]
            }
            Self::NodePorts
            | Self::VolumeRestrictions
            | Self::NodeVolumeLimits
            | Self::VolumeZone => &[PreFilter, Filter],
            Self::NodeResourcesFit => &[PreFilter, Filter, Score],
            Self::NodeResourcesBalancedAllocation => &[Score],
            Self::ImageLocality => &[PreScore, Score],
            Self::VolumeBinding => &[PreFilter, Filter, Reserve, PreBind],
            Self::DynamicResources => &[PreFilter],
            Self::DefaultPreemption => &[PostFilter],
            Self::DefaultBinder => &[Bind],
            Self::Extender => &[],
            #[cfg(test)]
            Self::Test => &[],
        }
    }
}

impl PluginName {
    /// Where upstream's has something to say and this one has not: it may be named there.
    pub(crate) fn is_silent_at(self, point: Point) -> bool {
        use Point::{Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, Reserve, Score};
        let points: &[Point] = match self {
            Self::NodeResourcesFit | Self::NodeResourcesBalancedAllocation => &[PreScore],
            Self::VolumeBinding => &[PreScore, Score],
            Self::DefaultPreemption => &[PreEnqueue],
            Self::NodeDeclaredFeatures => &[PreFilter],
            Self::DynamicResources => &[
                PreEnqueue, Filter, PostFilter, PreScore, Score, Reserve, PreBind,
            ],
            _ => &[],
        };
        points.contains(&point)
    }
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
