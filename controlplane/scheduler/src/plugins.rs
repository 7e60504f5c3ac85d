//! The plugins under upstream's names, a file each, and a profile of them: which are asked where,
//! in which order.

mod default_binder;
mod default_preemption;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod not_yet;
mod pod_topology_spread;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;

pub(crate) use self::default_binder::BindError;
use self::{
    default_binder::DefaultBinder, default_preemption::DefaultPreemption,
    image_locality::ImageLocality, inter_pod_affinity::InterPodAffinity,
    node_affinity::NodeAffinity, node_declared_features::NodeDeclaredFeatures, node_name::NodeName,
    node_ports::NodePorts, node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
    node_resources_fit::NodeResourcesFit, node_unschedulable::NodeUnschedulable,
    node_volume_limits::NodeVolumeLimits, not_yet::DynamicResources,
    pod_topology_spread::PodTopologySpread, scheduling_gates::SchedulingGates,
    taint_toleration::TaintToleration, volume_binding::VolumeBinding,
    volume_binding::VolumePreBind, volume_restrictions::VolumeRestrictions,
    volume_zone::VolumeZone,
};
use crate::{
    config::{Arguments, Profile},
    framework::{
        Bind, EnqueueExtensions, Filter, Framework, PluginName, Point, PostFilter, PreBind,
        PreEnqueue, PreFilter, PreScore, Reserve, Score, Scored,
    },
    storage::SharedStorage,
};

/// What plugins are made with.
pub(crate) struct Parts<'a> {
    pub(crate) storage: &'a Arc<SharedStorage>,
    /// Without one nothing is bound: for tests.
    pub(crate) client: Option<&'a Client>,
}

/// A plugin, once for each extension point where it has something to say.
#[derive(Default)]
struct Extends {
    pre_enqueue: Option<Box<dyn PreEnqueue>>,
    pre_filter: Option<Box<dyn PreFilter>>,
    filter: Option<Box<dyn Filter>>,
    post_filter: Option<Box<dyn PostFilter>>,
    pre_score: Option<Box<dyn PreScore>>,
    score: Option<Box<dyn Score>>,
    reserve: Option<Box<dyn Reserve>>,
    pre_bind: Option<Box<dyn PreBind>>,
    bind: Option<Box<dyn Bind>>,
    events: Option<Box<dyn EnqueueExtensions>>,
}

/// The plugins of a profile.
pub(crate) fn framework(profile: &Profile, parts: &Parts<'_>) -> Framework {
    let mut made: BTreeMap<PluginName, Extends> = PluginName::ALL
        .into_iter()
        .map(|name| (name, make(name, &profile.arguments, parts)))
        .collect();
    let refusing = refusing(profile);
    let names = |point: Point| profile.points.at(point).iter().map(|(name, _)| *name);
    Framework {
        pre_enqueue: take(&mut made, names(Point::PreEnqueue), |one| {
            &mut one.pre_enqueue
        }),
        pre_filter: take(&mut made, names(Point::PreFilter), |one| {
            &mut one.pre_filter
        }),
        filter: take(&mut made, names(Point::Filter), |one| &mut one.filter),
        post_filter: take(&mut made, names(Point::PostFilter), |one| {
            &mut one.post_filter
        }),
        pre_score: take(&mut made, names(Point::PreScore), |one| &mut one.pre_score),
        score: scored(&mut made, profile),
        reserve: take(&mut made, names(Point::Reserve), |one| &mut one.reserve),
        pre_bind: take(&mut made, names(Point::PreBind), |one| &mut one.pre_bind),
        bind: take(&mut made, names(Point::Bind), |one| &mut one.bind),
        enqueue_extensions: take(&mut made, refusing.into_iter(), |one| &mut one.events),
        percent_of_nodes: profile.percent_of_nodes,
        ..Framework::default()
    }
}

/// Those that may refuse a pod, and know what may help it then.
fn refusing(profile: &Profile) -> Vec<PluginName> {
    let points = [Point::PreEnqueue, Point::PreFilter, Point::Filter];
    let asked = |name: &PluginName| {
        let mut lists = points.iter().map(|point| profile.points.at(*point));
        lists.any(|list| list.iter().any(|(other, _)| other == name))
    };
    PluginName::ALL.into_iter().filter(asked).collect()
}

fn take<T: ?Sized>(
    made: &mut BTreeMap<PluginName, Extends>,
    names: impl Iterator<Item = PluginName>,
    at: impl Fn(&mut Extends) -> &mut Option<Box<T>>,
) -> Vec<Box<T>> {
    names
        .filter_map(|name| made.get_mut(&name).and_then(|one| at(one).take()))
        .collect()
}

fn scored(made: &mut BTreeMap<PluginName, Extends>, profile: &Profile) -> Vec<Scored> {
    let plugins = profile.points.at(Point::Score).iter();
    let plugins = plugins.filter_map(|(name, weight)| {
        let plugin = made.get_mut(name)?.score.take()?;
        Some(Scored {
            plugin,
            weight: *weight,
        })
    });
    plugins.collect()
}

/// One that is asked about each node alone, and knows what helps a pod that it has refused.
fn refusing_nodes<P: Filter + EnqueueExtensions + Clone + 'static>(plugin: &P) -> Extends {
    Extends {
        filter: Some(Box::new(plugin.clone())),
        events: Some(Box::new(plugin.clone())),
        ..Extends::default()
    }
}

/// One that is asked at PreFilter and Filter, and knows what helps a pod that it has refused.
fn filtering<P>(plugin: &P) -> Extends
where
    P: PreFilter + Filter + EnqueueExtensions + Clone + 'static,
{
    Extends {
        pre_filter: Some(Box::new(plugin.clone())),
        filter: Some(Box::new(plugin.clone())),
        events: Some(Box::new(plugin.clone())),
        ..Extends::default()
    }
}

/// The same with scores.
fn ranking<P>(plugin: &P) -> Extends
where
    P: PreFilter + Filter + EnqueueExtensions + PreScore + Score + Clone + 'static,
{
    Extends {
        pre_score: Some(Box::new(plugin.clone())),
        score: Some(Box::new(plugin.clone())),
        ..filtering(plugin)
    }
}

fn binding_volumes(told: &Arguments, parts: &Parts<'_>) -> Extends {
    let (plugin, timeout) = (
        VolumeBinding::new(parts.storage.clone()),
        told.volume_binding.timeout(),
    );
    let binds =
        |client: &Client| VolumePreBind::new(parts.storage.clone(), client.clone(), timeout);
    Extends {
        reserve: Some(Box::new(plugin.clone())),
        pre_bind: parts.client.map(|client| Box::new(binds(client)) as _),
        ..filtering(&plugin)
    }
}

fn make(name: PluginName, told: &Arguments, parts: &Parts<'_>) -> Extends {
    let storage = || parts.storage.clone();
    match name {
        PluginName::SchedulingGates => Extends {
            pre_enqueue: Some(Box::new(SchedulingGates)),
            events: Some(Box::new(SchedulingGates)),
            ..Extends::default()
        },
        PluginName::NodeUnschedulable => refusing_nodes(&NodeUnschedulable),
        PluginName::NodeName => refusing_nodes(&NodeName),
        PluginName::NodeDeclaredFeatures => refusing_nodes(&NodeDeclaredFeatures),
        PluginName::TaintToleration => Extends {
            pre_score: Some(Box::new(TaintToleration)),
            score: Some(Box::new(TaintToleration)),
            ..refusing_nodes(&TaintToleration)
        },
        PluginName::NodeAffinity => ranking(&NodeAffinity::new(&told.node_affinity)),
        PluginName::NodePorts => filtering(&NodePorts),
        PluginName::NodeResourcesFit => {
            let plugin = NodeResourcesFit::new(&told.fit);
            Extends {
                score: Some(Box::new(plugin.clone())),
                ..filtering(&plugin)
            }
        }
        PluginName::VolumeRestrictions => filtering(&VolumeRestrictions::new(storage())),
        PluginName::NodeVolumeLimits => filtering(&NodeVolumeLimits::new(storage())),
        PluginName::VolumeZone => filtering(&VolumeZone::new(storage())),
        PluginName::VolumeBinding => binding_volumes(told, parts),
        PluginName::PodTopologySpread => ranking(&PodTopologySpread::new(&told.spread)),
        PluginName::InterPodAffinity => ranking(&InterPodAffinity::new(&told.inter_pod_affinity)),
        PluginName::DynamicResources => Extends {
            pre_filter: Some(Box::new(DynamicResources)),
            ..Extends::default()
        },
        PluginName::DefaultPreemption => Extends {
            post_filter: Some(Box::new(DefaultPreemption::new(told.preemption))),
            ..Extends::default()
        },
        PluginName::NodeResourcesBalancedAllocation => Extends {
            score: Some(Box::new(NodeResourcesBalancedAllocation::new(
                &told.balanced,
            ))),
            ..Extends::default()
        },
        PluginName::ImageLocality => Extends {
            pre_score: Some(Box::new(ImageLocality)),
            score: Some(Box::new(ImageLocality)),
            ..Extends::default()
        },
        PluginName::DefaultBinder => Extends {
            bind: parts
                .client
                .map(|client| Box::new(DefaultBinder::new(client.clone())) as _),
            ..Extends::default()
        },
        PluginName::PrioritySort | PluginName::Extender => Extends::default(),
        #[cfg(test)]
        PluginName::Test => Extends::default(),
    }
}

/// The default profile, up to the binding.
#[cfg(test)]
pub(crate) fn without_binding(storage: &Arc<SharedStorage>) -> Framework {
    let parts = Parts {
        storage,
        client: None,
    };
    framework(&Profile::default(), &parts)
}
