//! Which slices a Service gets.

use k8s_openapi::{
    api::core::v1::{PodIP, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
    jiff::Timestamp,
};
use kube::api::ObjectMeta;
use proptest::prelude::*;

use super::{plan::MAX_ENDPOINTS, *};

mod nearby;

use crate::pod::{Container, ContainerPort, PodCondition, PodSpec, PodStatus};

fn service() -> Service {
    Service {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("ns".into()),
            uid: Some("of-web".into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some([("app".to_owned(), "web".to_owned())].into()),
            ports: Some(vec![ServicePort {
                port: 80,
                target_port: Some(IntOrString::String("http".into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn pod(number: usize, ready: bool, port: i32) -> Arc<Pod> {
    let address = format!("10.42.{}.{}", number / 250, number % 250 + 1);
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(format!("p{number}")),
            uid: Some(format!("u{number}")),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some("n1".into()),
            containers: vec![Container {
                ports: Some(vec![ContainerPort {
                    name: Some("http".into()),
                    container_port: port,
                    ..ContainerPort::default()
                }]),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Running".into()),
            pod_ip: Some(address.clone()),
            pod_ips: Some(vec![PodIP { ip: address }]),
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: if ready { "True" } else { "False" }.into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
    })
}

fn terminating(pod: &Pod) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    Arc::new(pod)
}

fn plan_for(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Plan {
    plan::plan(&Input {
        service,
        pods,
        slices,
        node: &|_| None,
        ratios: &|| None,
    })
}

/// Carries a plan out on a list of slices.
fn apply(plan: Plan, slices: &mut Vec<Arc<EndpointSlice>>, counter: &mut usize) {
    let name = |slice: &EndpointSlice| slice.metadata.name.clone();
    for gone in plan.delete {
        slices.retain(|slice| name(slice) != name(&gone));
    }
    for changed in plan.update {
        let at = slices
            .iter()
            .position(|slice| name(slice) == name(&changed))
            .unwrap();
        slices[at] = Arc::new(changed);
    }
    for mut made in plan.create {
        *counter += 1;
        made.metadata.name = Some(format!("web-{counter}"));
        slices.push(Arc::new(made));
    }
}

fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    slices
        .iter()
        .map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len))
        .collect()
}

#[test]
fn service_without_pods_has_one_empty_slice() {
    let (mut slices, mut counter) = (Vec::new(), 0);
    apply(
        plan_for(&service(), &[], &slices),
        &mut slices,
        &mut counter,
    );
    assert_eq!(sizes(&slices), [0]);
    assert_eq!(plan_for(&service(), &[], &slices), Plan::default());
}

#[test]
fn the_empty_slice_becomes_the_first_filled_one_and_back() {
    let (mut slices, mut counter) = (Vec::new(), 0);
    apply(
        plan_for(&service(), &[], &slices),
        &mut slices,
        &mut counter,
    );
    for (pods, ports) in [(vec![pod(1, true, 8080)], 1), (Vec::new(), 0)] {
        let plan = plan_for(&service(), &pods, &slices);
        assert_eq!(
            (plan.create.len(), plan.update.len(), plan.delete.len()),
            (0, 1, 0)
        );
        apply(plan, &mut slices, &mut counter);
        assert_eq!(sizes(&slices), [pods.len()]);
        assert_eq!(slices[0].ports.as_ref().map_or(0, Vec::len), ports);
        assert_eq!(plan_for(&service(), &pods, &slices), Plan::default());
    }
}

#[test]
fn a_slice_of_the_services_namesake_is_not_taken_over() {
    let (mut slices, mut counter) = (Vec::new(), 0);
    let mut namesake = service();
    namesake.metadata.uid = Some("of-the-web-before".into());
    apply(plan_for(&namesake, &[], &slices), &mut slices, &mut counter);
    let plan = plan_for(&service(), &[pod(1, true, 8080)], &slices);
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (1, 0, 1)
    );
}

#[test]
fn endpoint_says_where_and_how_its_pod_is() {
    let ready = pod(1, true, 8080);
    let table = [
        (ready.clone(), false, (true, true, false)),
        (pod(1, false, 8080), false, (false, false, false)),
        (pod(1, false, 8080), true, (true, false, false)),
        (terminating(&ready), false, (false, true, true)),
    ];
    for (pod, publish, (is_ready, serving, going)) in table {
        let mut service = service();
        service.spec.as_mut().unwrap().publish_not_ready_addresses = Some(publish);
        let slice = plan_for(&service, &[pod], &[]).create.remove(0);
        let endpoint = &slice.endpoints.unwrap()[0];
        let conditions = endpoint.conditions.clone().unwrap();
        assert_eq!(
            (conditions.ready, conditions.serving, conditions.terminating),
            (Some(is_ready), Some(serving), Some(going))
        );
        assert_eq!(endpoint.node_name.as_deref(), Some("n1"));
        assert_eq!(
            endpoint.target_ref.as_ref().unwrap().name.as_deref(),
            Some("p1")
        );
        assert_eq!(slice.ports.unwrap()[0].port, Some(8080));
        assert_eq!(slice.metadata.generate_name.as_deref(), Some("web-"));
        assert_eq!(
            slice.metadata.labels.unwrap()["endpointslice.kubernetes.io/managed-by"],
            "endpointslice-controller.k8s.io"
        );
    }
}

#[test]
fn finished_pods_and_pods_without_address_are_no_endpoints() {
    let mut finished = pod(1, true, 8080).as_ref().clone();
    finished.status.as_mut().unwrap().phase = Some("Succeeded".into());
    let mut pending = pod(2, false, 8080).as_ref().clone();
    pending.status = None;
    let plan = plan_for(&service(), &[Arc::new(finished), Arc::new(pending)], &[]);
    assert_eq!(plan.create[0].endpoints.as_ref().unwrap().len(), 0);
}

#[test]
fn pods_with_different_numbers_for_a_named_port_get_slices_of_their_own() {
    let pods = [pod(1, true, 8080), pod(2, true, 9090), pod(3, true, 8080)];
    let plan = plan_for(&service(), &pods, &[]);
    let mut found: Vec<_> = plan
        .create
        .iter()
        .map(|slice| {
            (
                slice.ports.as_ref().unwrap()[0].port.unwrap(),
                slice.endpoints.as_ref().unwrap().len(),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(8080, 2), (9090, 1)]);
}

#[test]
fn change_of_one_pod_writes_one_slice() {
    let mut pods: Vec<_> = (0..250).map(|number| pod(number, true, 8080)).collect();
    let (mut slices, mut counter) = (Vec::new(), 0);
    apply(
        plan_for(&service(), &pods, &slices),
        &mut slices,
        &mut counter,
    );
    assert_eq!(slices.len(), 3);
    pods[7] = pod(7, false, 8080);
    let plan = plan_for(&service(), &pods, &slices);
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (0, 1, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn slices_hold_exactly_the_pods_and_are_never_overfull(rounds in prop::collection::vec(0..260usize, 1..6), step in 1..7usize) {
        let (mut slices, mut counter) = (Vec::new(), 0);
        for count in rounds {
            let pods: Vec<_> = (0..count).map(|number| pod(number * step % 997, number % 3 > 0, 8080)).collect();
            apply(plan_for(&service(), &pods, &slices), &mut slices, &mut counter);
            let mut there: Vec<String> = slices
                .iter()
                .flat_map(|slice| slice.endpoints.iter().flatten())
                .map(|endpoint| endpoint.target_ref.as_ref().unwrap().uid.clone().unwrap())
                .collect();
            let mut wanted: Vec<String> = pods.iter().map(|pod| pod.metadata.uid.clone().unwrap()).collect();
            there.sort();
            wanted.sort();
            wanted.dedup();
            prop_assert_eq!(there, wanted);
            prop_assert!(sizes(&slices).iter().all(|size| *size <= MAX_ENDPOINTS));
            prop_assert!(!slices.is_empty());
            prop_assert_eq!(plan_for(&service(), &pods, &slices), Plan::default(), "a plan carried out leaves nothing to do");
        }
    }
}
