//! What this node programs for a pod, a Service or a policy. Pure.

use std::net::IpAddr;

use coracle_netfilter::{
    policy::{ChainId, Direction, Plan, PolicyKey},
    service::{Endpoint, PortView, ServiceKey, ServiceView},
};

use super::{
    answer::{Fact, Listing},
    places::service_key,
    question::{Name, Subject},
    world::{KnownPod, PolicyPlan, World},
};

/// More are counted.
const MOST_LINES: usize = 100;

/// All that is programmed for it.
///
/// # Errors
/// It is not known, and what to do.
pub(super) fn show(world: &World, subject: &Subject) -> Result<Listing, String> {
    let (subject, mut facts) = match subject {
        Subject::Pod(name) => (format!("pod {name}"), pod(world, name)?),
        Subject::Service(name) => (format!("Service {name}"), service(world, name)?),
        Subject::Policy(name) => (format!("NetworkPolicy {name}"), policy(world, name)?),
    };
    for fact in &mut facts {
        let more = fact.lines.len().saturating_sub(MOST_LINES);
        if more > 0 {
            fact.lines.truncate(MOST_LINES);
            fact.lines.push(format!("and {more} more"));
        }
    }
    Ok(Listing {
        node: world.node.clone(),
        engine: world.engine.clone(),
        subject,
        facts,
    })
}

fn fact(what: &str, lines: impl IntoIterator<Item = String>) -> Fact {
    Fact {
        what: what.to_owned(),
        lines: lines.into_iter().collect(),
    }
}

fn one(what: &str, line: impl Into<String>) -> Fact {
    fact(what, [line.into()])
}

/// Without those that have nothing to say.
fn some(what: &str, lines: Vec<String>) -> Option<Fact> {
    (!lines.is_empty()).then(|| fact(what, lines))
}

// === pods ===

fn pod(world: &World, name: &Name) -> Result<Vec<Fact>, String> {
    let pod = world.known_pod(name)?;
    let mut facts = vec![
        fact("addresses", pod.addresses.iter().map(ToString::to_string)),
        one("node", node_in_words(world, pod)),
    ];
    let ports = pod.host_ports.iter().map(|port| {
        let at = port.host_ip.map(|ip| format!("{ip}:")).unwrap_or_default();
        let protocol = port.protocol.as_str();
        format!(
            "{at}{}/{protocol} leads to its port {}",
            port.host_port, port.container_port
        )
    });
    facts.extend(some("published on its node", ports.collect()));
    facts.extend(some("endpoint of", services_of(world, pod)));
    if pod.host_network {
        facts.push(one("policies", "none is asked: it has its node's network"));
        return Ok(facts);
    }
    let Some(policies) = &world.policies else {
        facts.push(one("policies", "nobody enforces any on this node"));
        return Ok(facts);
    };
    let other;
    let plan = match world.is_here(&pod.node) {
        true => &policies.written,
        false => {
            other = policies.tracker.for_node(&pod.node).plan();
            &other
        }
    };
    for direction in [Direction::Ingress, Direction::Egress] {
        facts.push(selection(policies, plan, pod, direction));
    }
    facts.extend(trouble(policies));
    Ok(facts)
}

fn node_in_words(world: &World, pod: &KnownPod) -> String {
    match (world.is_here(&pod.node), pod.host_network) {
        (true, false) => format!("{}, this one", pod.node),
        (true, true) => format!("{}, this one, on its network", pod.node),
        (false, _) => format!("{}: what it programs is asked there", pod.node),
    }
}

fn services_of(world: &World, pod: &KnownPod) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, view) in &world.services {
        for ports in &view.ports {
            let all = ports.cluster.iter().chain(&ports.local);
            let mut its = all.filter(|one| pod.addresses.contains(&one.address.ip()));
            if let Some(endpoint) = its.next() {
                let (port, protocol) = (ports.port.port, ports.port.protocol.as_str());
                let target = endpoint.address.port();
                lines.push(format!("Service {key} port {port}/{protocol}, at {target}"));
            }
        }
    }
    lines
}

fn direction_in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

fn selection(policies: &PolicyPlan, plan: &Plan, pod: &KnownPod, direction: Direction) -> Fact {
    let what = direction_in_words(direction);
    let leads = match direction {
        Direction::Ingress => &plan.to,
        Direction::Egress => &plan.from,
    };
    let chain = pod.addresses.iter().find_map(|address| leads.get(address));
    let Some((id, chain)) = chain.and_then(|id| Some((id, plan.chains.get(id)?))) else {
        return one(what, "everything: no policy selects it");
    };
    let mut lines = vec![chain_in_words(id)];
    for key in &chain.policies {
        lines.extend(rules_of(policies, key, direction));
    }
    fact(what, lines)
}

fn chain_in_words(id: &ChainId) -> String {
    format!("only what is named here (chain {id})")
}

fn rules_of(policies: &PolicyPlan, key: &PolicyKey, direction: Direction) -> Vec<String> {
    let list = direction_in_words(direction);
    let rules = policies.tracker.policy(key);
    let rules = rules.and_then(|policy| policy.rules_in_words(direction));
    match rules {
        None => vec![format!("{key}: has changed since")],
        Some(rules) if rules.is_empty() => vec![format!("{key}: nothing")],
        Some(rules) => rules
            .iter()
            .map(|(at, rule)| format!("{key} spec.{list}[{at}]: {rule}"))
            .collect(),
    }
}

fn trouble(policies: &PolicyPlan) -> Option<Fact> {
    let why = policies.trouble.as_ref()?;
    Some(one("trouble", why.clone()))
}

// === Services ===

fn service(world: &World, name: &Name) -> Result<Vec<Fact>, String> {
    let key = service_key(name);
    let Some(view) = world.services.get(&key) else {
        return match world.without_rules.get(&key) {
            Some(why) => Ok(vec![one("rules", format!("none: {why}"))]),
            None => Err(world.unknown_service(&key)),
        };
    };
    let texts = |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut facts = vec![fact("cluster IPs", texts(&view.cluster_ips))];
    facts.extend(some("external IPs", texts(&view.external_ips)));
    facts.extend(some("load balancer's", texts(&view.balancer_ips)));
    facts.extend(withheld(view));
    if let Some(ranges) = &view.source_ranges {
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let what = "loadBalancerSourceRanges";
        facts.push(fact(what, ranges));
    }
    if let Some(secs) = view.affinity_secs {
        let line = format!("a client stays with its endpoint for {secs} s");
        facts.push(one("affinity", line));
    }
    let local = |is: bool| if is { "Local" } else { "Cluster" };
    facts.push(one("internalTrafficPolicy", local(view.internal_local)));
    let is_outside = |one: &PortView| view.is_externally_accessible(&one.port);
    if view.ports.iter().any(is_outside) {
        facts.push(one("externalTrafficPolicy", local(view.external_local)));
    }
    for ports in &view.ports {
        facts.push(port(world, ports));
    }
    facts.extend(state(world, &key));
    Ok(facts)
}

fn withheld(view: &ServiceView) -> Option<Fact> {
    let places = view.withheld.iter();
    let lines = places.map(|(ip, protocol, port)| {
        let protocol = protocol.as_str();
        format!("{ip}:{port}/{protocol} has no rule: it is somebody else's here")
    });
    some("withheld", lines.collect())
}

fn port(world: &World, ports: &PortView) -> Fact {
    let port = &ports.port;
    let mut what = format!("port {}/{}", port.port, port.protocol.as_str());
    if !port.name.is_empty() {
        what += &format!(" ({})", port.name);
    }
    if let Some(number) = port.node_port {
        what += &format!(", node port {number}");
    }
    if ports.cluster.is_empty() {
        return one(&what, "refused: no endpoint is ready");
    }
    let line = |one: &Endpoint| {
        let owner = world.owner(one.address.ip());
        let owner = owner.map(|owner| format!(" {owner}")).unwrap_or_default();
        let here = if one.local { ", on this node" } else { "" };
        format!("{}{owner}{here}", one.address)
    };
    let mut lines: Vec<String> = ports.cluster.iter().map(line).collect();
    let is_extra = |one: &&Endpoint| !ports.cluster.contains(one);
    let local = ports.local.iter().filter(is_extra);
    lines.extend(local.map(|one| format!("{}, for traffic policy Local alone", line(one))));
    if ports.local.is_empty() {
        lines.push("none on this node: dropped where the traffic policy is Local".to_owned());
    }
    fact(&what, lines)
}

fn state(world: &World, key: &ServiceKey) -> Vec<Fact> {
    let why = world.unwritten.get(key);
    let in_kernel = why.map_or_else(|| "as here".to_owned(), |why| format!("not as here: {why}"));
    let trouble = world.trouble.as_ref();
    let trouble = trouble.map(|why| one("trouble", why.clone()));
    [one("in the kernel", in_kernel)]
        .into_iter()
        .chain(trouble)
        .collect()
}

// === policies ===

fn policy(world: &World, name: &Name) -> Result<Vec<Fact>, String> {
    let key = PolicyKey {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    };
    let policies = world.policies.as_ref();
    let known = policies.and_then(|plan| Some((plan, plan.tracker.policy(&key)?)));
    let Some((policies, policy)) = known else {
        return Err(format!(
            "node {} knows no NetworkPolicy {name}: see `kubectl get networkpolicies -A`",
            world.node
        ));
    };
    let mut facts = vec![one("selects", policy.selected_in_words())];
    let selected: Vec<_> = policies.tracker.selected(policy).collect();
    let here = selected.iter().filter(|pod| world.is_here(&pod.node));
    let lines: Vec<String> = here
        .map(|pod| {
            let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
            let (namespace, name) = (&pod.key.namespace, &pod.key.name);
            format!("{namespace}/{name} {}", addresses.join(", "))
        })
        .collect();
    let others = selected.len() - lines.len();
    facts.push(match lines.is_empty() {
        true => one("pods here", "none: nothing is programmed for it here"),
        false => fact("pods here", lines),
    });
    if others > 0 {
        facts.push(one("pods of other nodes", others.to_string()));
    }
    for direction in [Direction::Ingress, Direction::Egress] {
        facts.push(rules(policies, &key, direction));
    }
    facts.extend(chains(policies, &key));
    facts.extend(groups(world, policies, &key));
    facts.extend(trouble(policies));
    Ok(facts)
}

fn rules(policies: &PolicyPlan, key: &PolicyKey, direction: Direction) -> Fact {
    let policy = policies.tracker.policy(key);
    let says = policy.and_then(|policy| policy.rules_in_words(direction));
    let list = direction_in_words(direction);
    let what = format!("{list} lets through");
    match says {
        None => one(&what, "says nothing of it"),
        Some(rules) if rules.is_empty() => one(&what, "nothing"),
        Some(rules) => fact(
            &what,
            rules
                .iter()
                .map(|(at, rule)| format!("spec.{list}[{at}]: {rule}")),
        ),
    }
}

/// What stands for it in the kernel.
fn chains(policies: &PolicyPlan, key: &PolicyKey) -> Option<Fact> {
    let chains = policies.written.chains.iter();
    let its = chains.filter(|(_, chain)| chain.policies.contains(key));
    let lines = its.map(|(id, chain)| {
        let others = chain.policies.len() - 1;
        let shared = match others {
            0 => String::new(),
            _ => format!(", with {others} more policies of the same pods"),
        };
        let direction = direction_in_words(chain.direction);
        format!("{id}: {direction}, {} rules{shared}", chain.rules.len())
    });
    some("chains in the kernel", lines.collect())
}

/// Whom its rules name, by address.
fn groups(world: &World, policies: &PolicyPlan, key: &PolicyKey) -> Option<Fact> {
    let written = &policies.written;
    let policy = policies.tracker.policy(key)?;
    let lines = policy
        .groups_in_words()
        .into_iter()
        .filter_map(|(id, words)| {
            let members = written.groups.get(&id)?;
            let members = members.iter().map(|address| match world.owner(*address) {
                Some(owner) => format!("{address} ({owner})"),
                None => address.to_string(),
            });
            let members: Vec<String> = members.take(MOST_LINES).collect();
            let members = match members.is_empty() {
                true => "nobody".to_owned(),
                false => members.join(", "),
            };
            Some(format!("{words}: {members}"))
        });
    some("whom it names", lines.collect())
}
