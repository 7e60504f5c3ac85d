//! Tells what is wrong with what is allocated to Services as Events about them, as upstream's
//! repair controllers do.

use std::{sync::Arc, time::Duration};

use coracle_apiserver::{AllocationFinding, ApiServer};
use coracle_client::event_recorder::{self, EventRecorder, EventType};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio_util::sync::CancellationToken;

use crate::identity;

/// Repairs until `stop`, and tells.
pub(crate) async fn run(apiserver: Arc<ApiServer>, stop: CancellationToken) {
    let client = apiserver.client(identity::user());
    let (recorder, writer) = event_recorder::channel(client, None, Duration::ZERO);
    let repairing = apiserver.repair_allocations(stop.clone(), |finding| tell(&recorder, finding));
    tokio::join!(repairing, writer.run(stop));
}

fn tell(recorder: &EventRecorder, finding: AllocationFinding) {
    let about = ObjectReference {
        api_version: Some(finding.about.api_version.to_owned()),
        kind: Some(finding.about.kind.to_owned()),
        namespace: Some(finding.about.namespace).filter(|namespace| !namespace.is_empty()),
        name: Some(finding.about.name),
        uid: Some(finding.about.uid),
        ..ObjectReference::default()
    };
    let (component, reason) = (finding.component, finding.reason);
    recorder.record_about(
        component,
        about,
        EventType::Warning,
        reason,
        finding.message,
    );
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::testing;
    use k8s_openapi::api::{
        core::v1::{Event, Service},
        networking::v1::IPAddress,
    };
    use kube::{
        Api,
        api::{DeleteParams, ListParams},
    };

    use super::*;

    #[tokio::test]
    async fn what_is_found_is_told_of_the_service() {
        let server = testing::server().await;
        let client = server.client(identity::user());
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let service = services.get("kubernetes").await.unwrap();
        let (recorder, writer) = event_recorder::channel(client.clone(), None, Duration::ZERO);
        let mut finding = AllocationFinding {
            about: coracle_apiserver::AllocationAbout {
                api_version: "v1",
                kind: "Service",
                namespace: "default".to_owned(),
                name: "kubernetes".to_owned(),
                uid: service.metadata.uid.clone().unwrap(),
            },
            component: "ipallocator-repair-controller",
            reason: "ClusterIPOutOfRange",
            message: "it is out of range".to_owned(),
        };
        tell(&recorder, finding.clone());
        finding.reason = "ClusterIPAlreadyAllocated";
        tell(&recorder, finding);
        drop(recorder);
        writer.run(CancellationToken::new()).await;
        let events: Api<Event> = Api::namespaced(client, "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut reasons: Vec<_> = events
            .iter()
            .filter(|event| event.involved_object.uid == service.metadata.uid)
            .map(|event| (event.reason.as_deref(), event.type_.as_deref()))
            .collect();
        reasons.sort_unstable();
        let warning = Some("Warning");
        assert_eq!(
            reasons,
            [
                (Some("ClusterIPAlreadyAllocated"), warning),
                (Some("ClusterIPOutOfRange"), warning)
            ]
        );
    }
    #[tokio::test(start_paused = true)]
    async fn a_look_tells_what_it_has_set_right_once() {
        let server = testing::server().await;
        let client = server.client(identity::user());
        let addresses: Api<IPAddress> = Api::all(client.clone());
        let params = DeleteParams::default();
        addresses.delete("10.96.0.1", &params).await.unwrap();
        let events: Api<Event> = Api::namespaced(client, "default");
        // As long as three looks take.
        let looking = tokio::time::timeout(
            Duration::from_secs(35),
            run(server, CancellationToken::new()),
        );
        looking.await.unwrap_err();
        addresses.get("10.96.0.1").await.unwrap();
        let events = events.list(&ListParams::default()).await.unwrap();
        let told: Vec<_> = events
            .iter()
            .map(|event| {
                (
                    event.reason.as_deref(),
                    event.message.as_deref(),
                    event.count,
                )
            })
            .collect();
        let message = "Cluster IP [IPv4]: 10.96.0.1 is not allocated; repairing";
        assert_eq!(
            told,
            [(Some("ClusterIPNotAllocated"), Some(message), Some(1))]
        );
    }
}
