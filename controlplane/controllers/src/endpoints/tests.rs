//! The legacy object of a Service.

use k8s_openapi::{
    api::core::v1::{ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::*;
use crate::pod::{PodCondition, PodStatus};

fn service(publish: bool) -> Service {
    Service {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("ns".into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some([("app".to_owned(), "web".to_owned())].into()),
            ports: Some(vec![ServicePort {
                port: 80,
                ..ServicePort::default()
            }]),
            publish_not_ready_addresses: Some(publish),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn pod(ip: &str, ready: bool, terminating: bool) -> Arc<Pod> {
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(ip.into()),
            deletion_timestamp: terminating.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        },
        status: Some(PodStatus {
            pod_ip: Some(ip.into()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: if ready { "True" } else { "False" }.into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    })
}

/// Ready and not-ready addresses of the only subset.
fn addresses(service: &Service, pods: &[Arc<Pod>]) -> (Vec<String>, Vec<String>) {
    let endpoints = plan(service, pods, None);
    let subset = endpoints
        .subsets
        .unwrap_or_default()
        .into_iter()
        .next()
        .unwrap_or_default();
    let ips = |list: Option<Vec<EndpointAddress>>| {
        list.unwrap_or_default()
            .into_iter()
            .map(|address| address.ip)
            .collect()
    };
    (ips(subset.addresses), ips(subset.not_ready_addresses))
}

#[test]
fn ready_and_unready_pods_are_told_apart_and_terminating_ones_left_out() {
    let pods = [
        pod("10.0.0.2", true, false),
        pod("10.0.0.1", true, false),
        pod("10.0.0.3", false, false),
        pod("10.0.0.4", true, true),
    ];
    let list = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        addresses(&service(false), &pods),
        (list(&["10.0.0.1", "10.0.0.2"]), list(&["10.0.0.3"]))
    );
    let all = list(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    assert_eq!(addresses(&service(true), &pods), (all, Vec::new()));
}

#[test]
fn more_than_a_thousand_addresses_are_cut_off_and_marked() {
    let pods: Vec<_> = (0..1001)
        .map(|n| pod(&format!("10.0.{}.{}", n / 250, n % 250), true, false))
        .collect();
    let endpoints = plan(&service(false), &pods, None);
    assert_eq!(
        endpoints.subsets.unwrap()[0]
            .addresses
            .as_ref()
            .unwrap()
            .len(),
        MAX_ADDRESSES
    );
    assert_eq!(
        endpoints.metadata.annotations.unwrap()[OVER_CAPACITY],
        "truncated"
    );
}

#[test]
fn unchanged_pods_write_nothing() {
    let pods = [pod("10.0.0.1", true, false)];
    let first = plan(&service(false), &pods, None);
    assert!(same(&first, &plan(&service(false), &pods, Some(&first))));
}
