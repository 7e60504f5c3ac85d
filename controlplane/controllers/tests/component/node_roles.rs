//! The role of the node that runs in the server's own process.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::cluster::Cluster;

const ROLE: &str = "node-role.kubernetes.io/control-plane";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_node_alone_has_the_role_of_a_control_plane() {
    let cluster = Cluster::start_with(|config| config.own_node = Some("n1".to_owned())).await;
    for (name, ip) in [("n1", "192.0.2.11"), ("n2", "192.0.2.12")] {
        cluster.add_node(name, ip).await;
    }
    let node = |name| cluster.node(name);
    let has_range = |node: &Node| {
        node.spec
            .as_ref()
            .is_some_and(|spec| spec.pod_cidr.is_some())
    };
    for (name, expect) in [("n1", Some("true")), ("n2", None)] {
        cluster
            .wait("a podCIDR", || async { has_range(&node(name).await) })
            .await;
        let role = node(name).await.labels().get(ROLE).cloned();
        assert_eq!(role.as_deref(), expect, "{name}");
    }
}
