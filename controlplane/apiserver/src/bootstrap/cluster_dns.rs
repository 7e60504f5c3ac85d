//! The Service by which people and charts find where names are answered: on every node, at its
//! address. It has no endpoints, and no rules anywhere.
//!
//! What an administrator has made of it stays. Where another Service has the address there is none:
//! nodes tell so.

use coracle_api::cluster_dns::{NAMESPACE, PORT, SERVICE, address};
use serde_json::json;

use super::{Kind, ensure_object, kubernetes_service::holder};
use crate::{error::ApiServerError, state::State};

/// Makes the Service if it is not there.
pub(super) async fn ensure(server: &State) -> Result<(), ApiServerError> {
    let services = server.config.service_cidr;
    let Some(address) = address(services.network(), services.prefix_len()) else {
        return Ok(());
    };
    let ip = address.to_string();
    let own = format!("{NAMESPACE}/{SERVICE}");
    if holder(server, &ip, &own).is_some() {
        return Ok(());
    }
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": PORT, "targetPort": PORT});
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE,
            "labels": {"k8s-app": SERVICE, "kubernetes.io/name": "CoreDNS", "kubernetes.io/cluster-service": "true"}},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None", "clusterIP": ip, "clusterIPs": [ip],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        },
    });
    ensure_object(server, Kind::core("services"), service, &[]).await
}
