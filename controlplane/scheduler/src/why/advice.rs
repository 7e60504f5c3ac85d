//! What would have to change for a plugin to say yes.

use crate::framework::PluginName;

/// In a sentence; `None` if there is nothing that anybody could do.
pub(super) fn advice(plugin: PluginName) -> Option<&'static str> {
    let advice = match plugin {
        PluginName::SchedulingGates => {
            "whoever has put a gate into spec.schedulingGates takes it out"
        }
        PluginName::NodeUnschedulable => {
            "the node is uncordoned (kubectl uncordon), or the pod tolerates node.kubernetes.io/unschedulable"
        }
        PluginName::NodeName => {
            "the pod is made anew without spec.nodeName, or with that of another node"
        }
        PluginName::TaintToleration => {
            "the pod tolerates the node's taints, or they are taken off (kubectl taint nodes NODE KEY-)"
        }
        PluginName::NodeAffinity => {
            "a node gets the labels that nodeSelector and nodeAffinity ask for (kubectl label node), or the pod asks for others"
        }
        PluginName::NodePorts => {
            "the pod that has the host port ends, or the pod asks for another or none"
        }
        PluginName::NodeResourcesFit => {
            "pods on the node end or ask for less, the pod asks for less, or a larger node joins"
        }
        PluginName::VolumeRestrictions => {
            "the pod that uses the volume ends, or the claim may be used by several"
        }
        PluginName::NodeVolumeLimits => {
            "pods with volumes of that driver end, or a node joins whose driver can attach more"
        }
        PluginName::VolumeBinding => {
            "the claims, their StorageClass and volumes are there and reach the node; kubectl describe pvc says what they wait for"
        }
        PluginName::VolumeZone => "a node is labelled with the zone of the volumes, or joins there",
        PluginName::PodTopologySpread => {
            "places with fewer pods of the kind take some, a node gets the label of topologyKey, or the pod allows more maxSkew"
        }
        PluginName::InterPodAffinity => {
            "the pods that it must be near are placed, or those that keep it away end"
        }
        PluginName::NodeDeclaredFeatures => {
            "a node joins whose status.declaredFeatures names what the pod needs, or the pod asks for less"
        }
        PluginName::Extender => "an extender of the scheduler's configuration says otherwise",
        PluginName::DynamicResources => "nothing does: claims of devices are not seen to here",
        _ => return None,
    };
    Some(advice)
}
