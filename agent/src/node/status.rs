//! The Node's labels and status (pure).

use std::collections::BTreeMap;

use coracle_api::{
    node_features::GUARANTEED_CPU_RESIZE, quantity::Quantity as Amount, volume::local_path,
};
use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
    jiff::Timestamp,
};

use super::{
    facts::{Facts, architecture},
    health::{Health, Told},
};
use crate::{
    config::AgentConfig, container_config::fields::Allocatable, network::NetworkError,
    runtime::Image,
};

/// What this node can do that not every node can. It gives no pod cores of its own.
const FEATURES: [&str; 1] = [GUARANTEED_CPU_RESIZE];
/// As many images as upstream lists.
const MAX_IMAGES: usize = 50;

/// Labels of the Node.
pub(crate) fn labels(config: &AgentConfig) -> BTreeMap<String, String> {
    let mut labels = config.labels.clone();
    let own = [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ];
    for (key, value) in own {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

/// Annotations of the Node that are its own to write, each time it registers.
pub(crate) fn annotations(config: &AgentConfig) -> BTreeMap<String, String> {
    let storage = config.storage_dir().display().to_string();
    [(local_path::DIRECTORY.to_owned(), storage)].into()
}

/// The status; conditions that hold still keep the time since when.
pub(crate) fn build(
    config: &AgentConfig,
    facts: &Facts,
    allocatable: Allocatable,
    images: &[Image],
    network: &Result<(), NetworkError>,
    health: &Health,
    before: Option<&NodeStatus>,
) -> NodeStatus {
    let address = |type_: &str, address: String| NodeAddress {
        type_: type_.to_owned(),
        address,
    };
    NodeStatus {
        capacity: Some(resources(config, facts, facts.capacity())),
        allocatable: Some(resources(config, facts, allocatable)),
        addresses: Some(vec![
            address("InternalIP", config.node_ip.to_string()),
            address("Hostname", config.node_name.clone()),
        ]),
        conditions: Some(conditions(network, health, before)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(config.listen.port()),
            }),
        }),
        node_info: Some(facts.info.clone()),
        images: Some(image_list(images)),
        declared_features: Some(FEATURES.map(str::to_owned).into()),
        ..NodeStatus::default()
    }
}

/// The address that others reach the node at.
pub(crate) fn internal_ip(status: &NodeStatus) -> Option<&str> {
    let addresses = status.addresses.iter().flatten();
    addresses
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .next()
}

/// Whether anything but heartbeat times differs.
pub(crate) fn differs(a: &NodeStatus, b: &NodeStatus) -> bool {
    let plain = |status: &NodeStatus| {
        let mut conditions: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .map(|c| {
                (
                    c.type_.clone(),
                    c.status.clone(),
                    c.reason.clone(),
                    c.message.clone(),
                )
            })
            .collect();
        conditions.sort();
        (
            status.capacity.clone(),
            status.allocatable.clone(),
            status.addresses.clone(),
            status.daemon_endpoints.clone(),
            status.node_info.clone(),
            status.images.clone(),
            status.declared_features.clone(),
            conditions,
        )
    };
    plain(a) != plain(b)
}

/// Whether a condition of `b` has another status, or none, in `a`.
pub(crate) fn conditions_differ(a: &NodeStatus, b: &NodeStatus) -> bool {
    let has = |wanted: &NodeCondition| {
        a.conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == wanted.type_ && c.status == wanted.status)
    };
    !b.conditions.iter().flatten().all(has)
}

fn resources(
    config: &AgentConfig,
    facts: &Facts,
    amounts: Allocatable,
) -> BTreeMap<String, Quantity> {
    let mut map: BTreeMap<String, Quantity> = [
        ("cpu", Amount::from_milli(amounts.cpu_millis).to_string()),
        ("memory", format!("{}Ki", amounts.memory_bytes / 1024)),
        (
            "ephemeral-storage",
            format!("{}Ki", amounts.ephemeral_bytes / 1024),
        ),
        ("pods", config.max_pods.to_string()),
    ]
    .into_iter()
    .map(|(name, quantity)| (name.to_owned(), Quantity(quantity)))
    .collect();
    for (name, bytes) in &facts.hugepages {
        let text = if *bytes == 0 {
            "0".to_owned()
        } else {
            format!("{}Ki", bytes / 1024)
        };
        map.insert(name.clone(), Quantity(text));
    }
    map
}

fn conditions(
    network: &Result<(), NetworkError>,
    health: &Health,
    before: Option<&NodeStatus>,
) -> Vec<NodeCondition> {
    let (ready, reason, message) = match network {
        Ok(()) => (
            "True",
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        Err(error) => (
            "False",
            "KubeletNotReady",
            format!(
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: {error}"
            ),
        ),
    };
    let told = |(kind, is, reason, message): Told| {
        (kind, if is { "True" } else { "False" }, reason, message)
    };
    let all = health.pressure_conditions().into_iter().map(told);
    let all = all.chain([("Ready", ready, reason, message)]);
    let all = all.chain(health.more_conditions(before).into_iter().map(told));
    let now =
        Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH));
    all.map(|(kind, status, reason, message)| {
        let known = before
            .and_then(|before| before.conditions.as_ref())
            .into_iter()
            .flatten();
        // As upstream: another reason or message alone is no transition.
        let since = known
            .filter(|c| c.type_ == kind && c.status == status)
            .find_map(|c| c.last_transition_time.clone());
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: since.or_else(|| Some(now.clone())),
        }
    })
    .collect()
}

/// The largest images, with all their names.
fn image_list(images: &[Image]) -> Vec<ContainerImage> {
    let mut images: Vec<&Image> = images.iter().collect();
    images.sort_by(|a, b| {
        b.size_bytes
            .cmp(&a.size_bytes)
            .then_with(|| a.id.cmp(&b.id))
    });
    images.truncate(MAX_IMAGES);
    images
        .into_iter()
        .map(|image| ContainerImage {
            names: Some(
                image
                    .repo_digests
                    .iter()
                    .chain(&image.repo_tags)
                    .cloned()
                    .collect(),
            ),
            size_bytes: i64::try_from(image.size_bytes).ok(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOCATABLE: Allocatable = Allocatable {
        cpu_millis: 1900,
        memory_bytes: 3 << 30,
        ephemeral_bytes: 90 << 30,
    };

    fn facts() -> Facts {
        Facts {
            cpus: 2,
            memory_bytes: 4 << 30,
            ephemeral_bytes: 100 << 30,
            hugepages: vec![("hugepages-2Mi".to_owned(), 0)],
            pids: 32_768,
            info: k8s_openapi::api::core::v1::NodeSystemInfo::default(),
        }
    }

    fn config() -> AgentConfig {
        AgentConfig::new("n1", "192.0.2.1".parse().expect("address"))
    }

    #[test]
    fn capacity_is_reported_in_upstreams_units() {
        let status = build(
            &config(),
            &facts(),
            ALLOCATABLE,
            &[],
            &Ok(()),
            &Health::default(),
            None,
        );
        let listed = |map: Option<BTreeMap<String, Quantity>>| -> Vec<String> {
            map.expect("amounts")
                .into_iter()
                .map(|(name, quantity)| format!("{name}={}", quantity.0))
                .collect()
        };
        let expected = [
            "cpu=2",
            "ephemeral-storage=104857600Ki",
            "hugepages-2Mi=0",
            "memory=4194304Ki",
            "pods=110",
        ];
        assert_eq!(listed(status.capacity), expected);
        let expected = [
            "cpu=1900m",
            "ephemeral-storage=94371840Ki",
            "hugepages-2Mi=0",
            "memory=3145728Ki",
            "pods=110",
        ];
        assert_eq!(listed(status.allocatable), expected);
    }

    #[test]
    fn missing_network_makes_the_node_not_ready() {
        let why = Err(NetworkError::NotReady {
            why: "no podCIDR".to_owned(),
        });
        let status = build(
            &config(),
            &facts(),
            ALLOCATABLE,
            &[],
            &why,
            &Health::default(),
            None,
        );
        let conditions = status.conditions.expect("conditions");
        let ready = conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .expect("Ready");
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_deref()),
            ("False", Some("KubeletNotReady"))
        );
    }

    #[test]
    fn heartbeats_alone_are_no_difference() {
        let one = build(
            &config(),
            &facts(),
            ALLOCATABLE,
            &[],
            &Ok(()),
            &Health::default(),
            None,
        );
        let mut other = one.clone();
        for condition in other.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = Some(Time(Timestamp::UNIX_EPOCH));
        }
        assert!(!differs(&one, &other));
        other.images = None;
        assert!(differs(&one, &other));
        // What an older agent has not declared is told by the next one.
        other = one.clone();
        other.declared_features = None;
        assert!(differs(&one, &other));
    }
}
