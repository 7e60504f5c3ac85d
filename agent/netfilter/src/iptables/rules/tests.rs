//! Golden text, and what no rule may have.

mod tracer;

pub(crate) use self::tracer::IptablesTracer;
use super::{
    balance::{port_hash, probability},
    *,
};
use crate::{
    iptables::plan::{Chains, reconcile, transaction},
    packets::{exposed, key, network, port, view_of, web},
    service::{Port, Protocol},
};

fn base() -> BaseRules {
    BaseRules::new(network())
}

#[test]
fn one_service_is_this_text() {
    let base = base();
    let service = base.service(&key("web"), &web());
    let nat = transaction(
        "nat",
        &reconcile(&Chains::new(), &base.nat([&service].into_iter())),
    );
    let filter = transaction(
        "filter",
        &reconcile(&Chains::new(), &base.filter([&service].into_iter())),
    );
    assert_eq!(nat + &filter, include_str!("golden/web.rules"));
}

#[test]
fn affinity_and_node_port_are_this_text() {
    let base = base();
    let mut view = web();
    view.affinity_secs = Some(600);
    view.ports[0].port.node_port = Some(30080);
    view.ports[0].cluster.truncate(2);
    let service = base.service(&key("web"), &view);
    let text: Vec<String> = service
        .chains
        .iter()
        .flat_map(|(name, rules)| rules.iter().map(move |rule| format!("{name} {rule}")))
        .chain(
            service
                .services
                .iter()
                .map(|rule| format!("{SERVICES} {rule}")),
        )
        .chain(
            service
                .node_ports
                .iter()
                .map(|rule| format!("{NODE_PORTS} {rule}")),
        )
        .collect();
    assert_eq!(
        text.join("\n") + "\n",
        include_str!("golden/affinity.rules")
    );
}

#[test]
fn an_external_address_takes_no_other_services_cluster_ip() {
    let mut thief = exposed();
    thief.cluster_ips = vec![[10, 96, 0, 66].into()];
    thief.external_ips = vec![[10, 96, 0, 10].into()];
    thief.balancer_ips = vec![[10, 96, 0, 11].into()];
    let service = base().service(&key("thief"), &thief);
    let text = format!("{service:?}");
    assert!(
        !text.contains("10.96.0.10") && !text.contains("10.96.0.11"),
        "{text}"
    );
}

#[test]
fn an_external_address_takes_no_pods_address() {
    let mut thief = exposed();
    thief.external_ips = vec![[10, 244, 9, 9].into()];
    let text = format!("{:?}", base().service(&key("thief"), &thief));
    assert!(!text.contains("10.244.9.9"), "{text}");
}

#[test]
fn what_is_withheld_is_in_no_rule() {
    for served in [true, false] {
        let mut view = exposed();
        if !served {
            view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
        }
        view.source_ranges = Some(vec!["192.0.2.0/24".parse().unwrap()]);
        view.ports.push(view.ports[0].clone());
        view.ports[1].port = Port {
            name: "ssh".into(),
            ..port(Protocol::Tcp, 22)
        };
        for ip in [view.external_ips[0], view.balancer_ips[0]] {
            view.withheld.insert((ip, Protocol::Tcp, 22));
        }
        let service = base().service(&key("web"), &view);
        let rules = service
            .services
            .iter()
            .chain(&service.externals)
            .chain(&service.unserved);
        let external: Vec<&String> = rules.filter(|rule| rule.contains("203.0.113.")).collect();
        assert!(
            external.iter().any(|rule| rule.contains("--dport 80")),
            "{external:#?}"
        );
        assert!(
            !external.iter().any(|rule| rule.contains("--dport 22")),
            "{external:#?}"
        );
    }
}

#[test]
fn flows_to_what_still_answers_are_left_alone() {
    let mut view = web();
    view.ports[0].port.protocol = Protocol::Udp;
    view.ports[0].serving.push([10, 244, 9, 9].into());
    let service = base().service(&key("web"), &view);
    let allowed = &service.udp.services[&([10, 96, 0, 10].into(), 80)];
    assert!(
        allowed.contains(&IpAddr::from([10, 244, 9, 9])),
        "chosen or not, it drains: {allowed:?}"
    );
}

#[test]
fn rules_on_trial_lead_nowhere() {
    let mut view = exposed();
    view.external_local = true;
    let (nat, _) = base().service(&key("web"), &view).trial();
    assert!(nat.iter().any(|rule| rule.contains("--to-destination")));
    assert!(
        nat.iter().all(|rule| !rule.contains("-j CORACLE-")),
        "{nat:#?}"
    );
}

#[test]
fn without_service_cidrs_every_service_without_endpoints_is_rejected_by_itself() {
    let base = BaseRules::new(ServiceNetwork::default());
    let mut view = web();
    view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
    let service = base.service(&key("web"), &view);
    assert_eq!(
        service.unserved,
        [
            "-d 10.96.0.10/32 -p tcp -m comment --comment \"default/web:http\" -m tcp --dport 80 -j REJECT --reject-with \
          tcp-reset"
        ]
    );
    assert!(service.services.is_empty() && service.chains.is_empty());
}

#[test]
fn probabilities_are_printed_as_the_kernel_keeps_them() {
    let cases = [
        (2, "0.50000000000"),
        (3, "0.33333333349"),
        (7, "0.14285714272"),
        (1000, "0.00100000016"),
    ];
    for (parts, text) in cases {
        assert_eq!(probability(parts), text);
    }
}

#[test]
fn chain_names_fit_and_differ() {
    let names: BTreeSet<String> = (0..2000_u16)
        .map(|n| {
            format!(
                "{SERVICE_PREFIX}{}",
                port_hash(&key("a-long-name"), &port(Protocol::Tcp, n))
            )
        })
        .collect();
    assert_eq!(names.len(), 2000);
    assert!(names.iter().all(|name| name.len() <= 28));
}

#[test]
fn both_policies_local_need_no_chain_for_the_cluster_ip_alone() {
    let mut view = web();
    view.internal_local = true;
    view.external_local = true;
    let service = base().service(&key("web"), &view);
    assert!(
        service
            .chains
            .keys()
            .all(|name| name.starts_with(LOCAL_PREFIX)),
        "{:?}",
        service.chains
    );
}
