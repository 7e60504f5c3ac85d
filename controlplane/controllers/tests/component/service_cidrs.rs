//! Ranges of Services' addresses: ready, used, and held while they are needed.

use std::time::Duration;

use coracle_controllers::Clock;
use k8s_openapi::{
    api::{
        core::v1::Service,
        networking::v1::{IPAddress, ServiceCIDR},
    },
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::cluster::Cluster;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

struct Ranges {
    cluster: Cluster,
    api: Api<ServiceCIDR>,
}

impl Ranges {
    /// Controllers whose clock is ahead: a range that nobody needs goes at once.
    async fn start() -> Self {
        let ahead = Clock::of(|| Timestamp::now() + Duration::from_secs(60));
        let cluster = Cluster::start_with(|config| config.clock = ahead).await;
        let api = Api::all(cluster.client.clone());
        Self { cluster, api }
    }

    async fn make(&self, name: &str, cidr: &str) {
        let range = json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}});
        let range = serde_json::from_value(range).unwrap();
        let params = PostParams::default();
        self.api.create(&params, &range).await.unwrap();
        self.say(name, "True", "", "Kubernetes Service CIDR is ready")
            .await;
    }

    /// Until the range says this of itself, and is protected.
    async fn say(&self, name: &str, status: &str, reason: &str, message: &str) {
        let says = || async {
            let range = self.api.get(name).await.unwrap();
            let protected = range.metadata.finalizers.unwrap_or_default();
            let conditions = range.status.and_then(|status| status.conditions);
            protected == [FINALIZER]
                && conditions.unwrap_or_default().iter().any(|one| {
                    let said = (&*one.type_, &*one.status, &*one.reason, &*one.message);
                    said == ("Ready", status, reason, message)
                })
        };
        self.cluster.wait(message, says).await;
    }

    async fn delete(&self, name: &str) {
        let params = DeleteParams::default();
        self.api.delete(name, &params).await.unwrap();
    }

    async fn gone(&self, name: &str) {
        let is_gone = || async { self.api.get_opt(name).await.unwrap().is_none() };
        self.cluster.wait("the end of the range", is_gone).await;
    }

    /// Until it says what it waits for.
    async fn held(&self, name: &str) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        self.say(name, "False", "Terminating", message).await;
    }

    async fn serve_at(&self, name: &str, ip: &str) {
        let spec = json!({"clusterIP": ip, "ports": [{"port": 80}]});
        let service = json!({"metadata": {"name": name}, "spec": spec});
        self.cluster.create::<Service>("default", service).await;
        let addresses: Api<IPAddress> = Api::all(self.cluster.client.clone());
        let parent = addresses.get(ip).await.unwrap().spec.parent_ref;
        assert_eq!(parent.name, name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_ready_and_goes_when_nobody_needs_it() {
    let ranges = Ranges::start().await;
    let ready = "Kubernetes Service CIDR is ready";
    ranges.say("kubernetes", "True", "", ready).await;
    ranges.make("more", "203.0.113.0/24").await;
    ranges.serve_at("a", "203.0.113.10").await;
    ranges.delete("more").await;
    ranges.held("more").await;
    // It gives out nothing more.
    let late = json!({"metadata": {"name": "late"}, "spec": {"clusterIP": "203.0.113.11", "ports": [{"port": 80}]}});
    let late: Service = serde_json::from_value(late).unwrap();
    let services = ranges.cluster.api::<Service>("default");
    let refused = services.create(&PostParams::default(), &late).await;
    let refused = refused.unwrap_err().to_string();
    let why = "the provided network does not match the current range";
    assert!(refused.contains(why), "{refused}");
    services
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    ranges.gone("more").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_whose_addresses_another_covers_may_go() {
    let ranges = Ranges::start().await;
    ranges.make("narrow", "203.0.113.0/28").await;
    ranges.serve_at("a", "203.0.113.10").await;
    ranges.delete("narrow").await;
    ranges.held("narrow").await;
    ranges.make("wide", "203.0.113.0/24").await;
    ranges.gone("narrow").await;
    ranges.delete("wide").await;
    ranges.held("wide").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_range_of_a_cluster_is_held_by_its_services() {
    let ranges = Ranges::start().await;
    ranges.delete("kubernetes").await;
    // The Service by which pods reach the API.
    ranges.held("kubernetes").await;
}
