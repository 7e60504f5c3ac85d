//! Which plugins are asked at which extension point, in which order: the defaults, and what a
//! profile changes of them.
//!
//! Source: `mergePluginSet` in `pkg/scheduler/apis/config/v1/default_plugins.go`,
//! `expandMultiPointPlugins` in `pkg/scheduler/framework/runtime/framework.go` at v1.37.

use super::{
    ConfigError,
    file::{Plugins, Switch, Switches},
};
use crate::framework::{PluginName, Point};

/// The plugins that are asked at a point, with the weight of each.
pub(crate) type Plugged = Vec<(PluginName, i64)>;

/// What is asked everywhere it has something to say, unless a profile says otherwise: with the
/// weights of their scores. The cheap and decisive ones come first.
///
/// Source: `getDefaultPlugins` in `pkg/scheduler/apis/config/v1/default_plugins.go` at v1.37.
const DEFAULTS: [(PluginName, i64); 20] = [
    (PluginName::SchedulingGates, 0),
    (PluginName::PrioritySort, 0),
    (PluginName::NodeUnschedulable, 0),
    (PluginName::NodeName, 0),
    (PluginName::TaintToleration, 3),
    (PluginName::NodeAffinity, 2),
    (PluginName::NodePorts, 0),
    (PluginName::NodeResourcesFit, 1),
    (PluginName::VolumeRestrictions, 0),
    (PluginName::NodeVolumeLimits, 0),
    (PluginName::VolumeBinding, 0),
    (PluginName::VolumeZone, 0),
    (PluginName::PodTopologySpread, 2),
    (PluginName::InterPodAffinity, 2),
    (PluginName::DynamicResources, 0),
    (PluginName::DefaultPreemption, 0),
    (PluginName::NodeResourcesBalancedAllocation, 1),
    (PluginName::ImageLocality, 1),
    (PluginName::DefaultBinder, 0),
    (PluginName::NodeDeclaredFeatures, 0),
];

/// The plugins of a profile, a list an extension point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Points(Vec<(Point, Plugged)>);

impl Default for Points {
    fn default() -> Self {
        let nothing = Switches::default();
        let all = Point::ALL.map(|point| (point, expanded(point, &DEFAULTS, &[], &nothing)));
        Self(all.into())
    }
}

/// What a profile says about a point.
fn switches(point: Point, plugins: &Plugins) -> &Switches {
    match point {
        Point::PreEnqueue => &plugins.pre_enqueue,
        Point::QueueSort => &plugins.queue_sort,
        Point::PreFilter => &plugins.pre_filter,
        Point::Filter => &plugins.filter,
        Point::PostFilter => &plugins.post_filter,
        Point::PreScore => &plugins.pre_score,
        Point::Score => &plugins.score,
        Point::Reserve => &plugins.reserve,
        Point::Permit => &plugins.permit,
        Point::PreBind => &plugins.pre_bind,
        Point::Bind => &plugins.bind,
        Point::PostBind => &plugins.post_bind,
    }
}

impl Points {
    /// # Errors
    /// A plugin that there is not, or that has nothing to say where it is enabled; too few, or too
    /// many, of what there has to be one of.
    pub(super) fn of(plugins: &Plugins, place: &str) -> Result<Self, ConfigError> {
        for (field, switches) in [
            ("placementGenerate", &plugins.placement_generate),
            ("placementScore", &plugins.placement_score),
        ] {
            if !switches.enabled.is_empty() {
                let why = "pods are placed one at a time: nobody would be asked";
                return Err(ConfigError::at(format!("{place}.plugins.{field}"), why));
            }
        }
        let everywhere = format!("{place}.plugins.multiPoint");
        let asked = enabled(&plugins.multi_point, &everywhere)?;
        let merged = merged(&asked, &plugins.multi_point);
        let mut all = Vec::new();
        for point in Point::ALL {
            let place = format!("{place}.plugins.{}", point.field());
            let switches = switches(point, plugins);
            let own = enabled(switches, &place)?;
            let may_be_named =
                |name: PluginName| name.points().contains(&point) || name.is_silent_at(point);
            if let Some((name, _)) = own.iter().find(|(name, _)| !may_be_named(*name)) {
                let why = format!("plugin {name} does not extend it");
                return Err(ConfigError::at(place, why));
            }
            all.push((point, expanded(point, &merged, &own, switches)));
        }
        let found = Self(all);
        match found.at(Point::QueueSort) {
            [_] => {}
            _ => {
                let why = "exactly one queue sort plugin must be enabled: PrioritySort";
                return Err(ConfigError::at(format!("{place}.plugins.queueSort"), why));
            }
        }
        if found.at(Point::Bind).is_empty() {
            let why = "at least one bind plugin is needed";
            return Err(ConfigError::at(format!("{place}.plugins.bind"), why));
        }
        Ok(found)
    }

    pub(crate) fn at(&self, point: Point) -> &[(PluginName, i64)] {
        let mut all = self.0.iter();
        let found = all.find(|(other, _)| *other == point);
        found.map_or(&[], |(_, plugins)| plugins)
    }
}

/// The plugins that are turned on, by name.
fn enabled(switches: &Switches, place: &str) -> Result<Plugged, ConfigError> {
    let mut found = Plugged::new();
    for (index, Switch { name, weight }) in switches.enabled.iter().enumerate() {
        let place = format!("{place}.enabled[{index}]");
        let known = PluginName::parse(name)
            .ok_or_else(|| ConfigError::at(&place, format!("plugin {name:?} does not exist")))?;
        if found.iter().any(|(other, _)| *other == known) {
            return Err(ConfigError::at(
                place,
                format!("plugin {name:?} already registered"),
            ));
        }
        if *weight < 0 || *weight > MAX_WEIGHT {
            let why = format!("weight {weight} of plugin {name:?} is not in 0..={MAX_WEIGHT}");
            return Err(ConfigError::at(place, why));
        }
        found.push((known, *weight));
    }
    Ok(found)
}

/// So that no sum of scores is too large to be counted.
const MAX_WEIGHT: i64 = i32::MAX as i64;

fn is_disabled(switches: &Switches, name: PluginName) -> bool {
    let mut names = switches.disabled.iter().map(|one| one.name.as_str());
    names.any(|one| one == "*" || PluginName::parse(one) == Some(name))
}

/// The defaults, as far as they are not turned off; those that are turned on again, with what is
/// said of them then, where they were; and whatever else is turned on.
fn merged(asked: &Plugged, switches: &Switches) -> Plugged {
    let own = |name: PluginName| asked.iter().find(|(other, _)| *other == name);
    let defaults = DEFAULTS
        .iter()
        .filter(|(name, _)| !is_disabled(switches, *name));
    let mut all: Plugged = defaults.map(|one| *own(one.0).unwrap_or(one)).collect();
    let others = asked
        .iter()
        .filter(|one| !all.iter().any(|known| known.0 == one.0));
    let others: Plugged = others.copied().collect();
    all.extend(others);
    all
}

/// What is asked at a point: first those that it names itself of those that are asked everywhere,
/// in its own order; then the others of those; then the others that it names.
fn expanded(
    point: Point,
    everywhere: &[(PluginName, i64)],
    own: &[(PluginName, i64)],
    switches: &Switches,
) -> Plugged {
    let is_own = |name: PluginName| own.iter().any(|(other, _)| *other == name);
    let everywhere: Plugged = everywhere
        .iter()
        .filter(|(name, _)| name.points().contains(&point) && !is_disabled(switches, *name))
        .copied()
        .collect();
    let is_everywhere = |name: PluginName| everywhere.iter().any(|(other, _)| *other == name);
    let (first, last): (Plugged, Plugged) = own.iter().partition(|(name, _)| is_everywhere(*name));
    let rest = everywhere
        .iter()
        .filter(|(name, _)| !is_own(*name))
        .copied();
    let all = first.into_iter().chain(rest).chain(last);
    // One that is asked counts at least once.
    all.map(|(name, weight)| (name, weight.max(1))).collect()
}
