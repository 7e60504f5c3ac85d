//! Follows a new connection through rules as the kernel would. Knows the matches that the rules use
//! and panics on others.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use crate::{
    iptables::{
        plan::Desired,
        rules::{BaseRules, ServiceRules},
    },
    packets::{Outcome, Tracer, key},
    service::{Protocol, ServiceNetwork, ServiceView},
};

pub(crate) struct IptablesTracer {
    nat: Desired,
    filter: Desired,
    local: Vec<IpAddr>,
    /// Lists of the `recent` match.
    recent: HashSet<(String, IpAddr)>,
}

#[derive(Clone)]
struct Packet {
    source: IpAddr,
    target: SocketAddr,
    protocol: Protocol,
    mark: bool,
    translated: bool,
    masqueraded: bool,
    /// How many random choices say no before one says yes.
    choice: usize,
    remembered: Vec<(String, IpAddr)>,
}

enum Verdict {
    Continue,
    Return,
    Accept,
    Reject(&'static str),
    Drop,
}

impl Tracer for IptablesTracer {
    fn engine(&self) -> &'static str {
        "iptables"
    }

    fn trace(
        &mut self,
        from: IpAddr,
        protocol: Protocol,
        to: SocketAddr,
        choice: usize,
    ) -> Outcome {
        let (outcome, remembered) = self.walk(from, protocol, to, choice);
        self.recent.extend(remembered);
        outcome
    }
}

impl IptablesTracer {
    /// On a machine with these addresses.
    pub(crate) fn over(
        network: ServiceNetwork,
        views: &[(&str, ServiceView)],
        local: &[&str],
    ) -> Self {
        let base = BaseRules::new(network);
        let services = views.iter();
        let services: Vec<ServiceRules> = services
            .map(|(name, view)| base.service(&key(name), view))
            .collect();
        Self {
            nat: base.nat(services.iter()),
            filter: base.filter(services.iter()),
            local: local.iter().map(|ip| ip.parse().unwrap()).collect(),
            recent: HashSet::new(),
        }
    }

    fn walk(
        &self,
        source: IpAddr,
        protocol: Protocol,
        target: SocketAddr,
        choice: usize,
    ) -> (Outcome, Vec<(String, IpAddr)>) {
        let (mark, translated, masqueraded) = (false, false, false);
        let mut packet = Packet {
            source,
            target,
            protocol,
            mark,
            translated,
            masqueraded,
            choice,
            remembered: Vec::new(),
        };
        let from_here = self.local.contains(&source);
        self.hook(
            &self.nat,
            if from_here { "OUTPUT" } else { "PREROUTING" },
            &mut packet,
        );
        let to_here = self.local.contains(&packet.target.ip());
        let hook = match (from_here, to_here) {
            (true, _) => "OUTPUT",
            (false, true) => "INPUT",
            (false, false) => "FORWARD",
        };
        match self.hook(&self.filter, hook, &mut packet) {
            Verdict::Reject(with) => return (Outcome::Rejected(with), packet.remembered),
            Verdict::Drop => return (Outcome::Dropped, packet.remembered),
            _ => {}
        }
        self.hook(&self.nat, "POSTROUTING", &mut packet);
        (
            Outcome::Delivered {
                to: packet.target,
                masqueraded: packet.masqueraded,
            },
            packet.remembered,
        )
    }

    /// Later jumps were inserted above earlier ones.
    fn hook(&self, table: &Desired, hook: &str, packet: &mut Packet) -> Verdict {
        for jump in table.jumps.iter().rev().filter(|jump| jump.from == hook) {
            match self.rule(table, &jump.rule, packet) {
                Verdict::Continue | Verdict::Return => {}
                other => return other,
            }
        }
        Verdict::Continue
    }

    fn chain(&self, table: &Desired, name: &str, packet: &mut Packet) -> Verdict {
        let chain = table
            .chains
            .get(name)
            .unwrap_or_else(|| panic!("jump to missing chain {name}"));
        for rule in &chain.rules {
            match self.rule(table, rule, packet) {
                Verdict::Continue => {}
                Verdict::Return => return Verdict::Continue,
                other => return other,
            }
        }
        Verdict::Continue
    }

    fn rule(&self, table: &Desired, rule: &str, packet: &mut Packet) -> Verdict {
        let mut words = rule.split(' ').filter(|word| !word.is_empty());
        let mut negate = false;
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .unwrap_or_else(|| panic!("{word} without value in {rule}"))
            };
            let matched = match word {
                "!" => {
                    negate = true;
                    continue;
                }
                "--reap" | "--rsource" => continue,
                "-m" | "--comment" | "--mode" | "--seconds" | "--mask" | "--name" => {
                    value();
                    continue;
                }
                "--update" | "--set" => self.recent(rule, word == "--set", packet),
                "-j" => return self.jump(table, rule, value(), packet),
                _ => self.matches(word, value(), packet),
            };
            if matched == negate {
                return Verdict::Continue;
            }
            negate = false;
        }
        panic!("no target in {rule}");
    }

    fn matches(&self, word: &str, value: &str, packet: &mut Packet) -> bool {
        let within = |address| value.parse::<IpNet>().unwrap().contains(&address);
        match word {
            "-s" => within(packet.source),
            "-d" => within(packet.target.ip()),
            // Pods of the node are in one subnet behind one link.
            "-i" => {
                assert_eq!(value, "coracle0");
                let subnet: IpNet = "10.244.1.0/24".parse().unwrap();
                subnet.contains(&packet.source)
            }
            "-p" => value == packet.protocol.as_str(),
            "--dport" => value.parse::<u16>().unwrap() == packet.target.port(),
            "--dst-type" => {
                assert_eq!(value, "LOCAL");
                self.local.contains(&packet.target.ip())
            }
            "--src-type" => {
                assert_eq!(value, "LOCAL");
                self.local.contains(&packet.source)
            }
            "--ctstate" => match value {
                "DNAT" => packet.translated,
                "NEW" => true,
                "INVALID" | "RELATED,ESTABLISHED" => false,
                other => panic!("state {other}"),
            },
            "--mark" => packet.mark,
            "--probability" => {
                let yes = packet.choice == 0;
                packet.choice = packet.choice.saturating_sub(1);
                yes
            }
            other => panic!("match {other} {value}"),
        }
    }

    /// The match `recent`: puts the source on the rule's list, or says whether it is there.
    fn recent(&self, rule: &str, set: bool, packet: &mut Packet) -> bool {
        let name = rule
            .split("--name ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let entry = (name.unwrap().to_owned(), packet.source);
        if !set {
            return self.recent.contains(&entry);
        }
        packet.remembered.push(entry);
        true
    }

    fn jump(&self, table: &Desired, rule: &str, target: &str, packet: &mut Packet) -> Verdict {
        let option = |name: &str| {
            rule.split(&format!("{name} "))
                .nth(1)
                .map(|rest| rest.split(' ').next().unwrap())
        };
        match target {
            "RETURN" => Verdict::Return,
            "ACCEPT" => Verdict::Accept,
            "DROP" => Verdict::Drop,
            "REJECT" => match option("--reject-with") {
                Some("tcp-reset") => {
                    assert_eq!(packet.protocol, Protocol::Tcp, "{rule}");
                    Verdict::Reject("tcp-reset")
                }
                Some("icmp-port-unreachable") => Verdict::Reject("icmp-port-unreachable"),
                other => panic!("reject with {other:?}"),
            },
            "MARK" => {
                packet.mark = !option("--set-xmark").unwrap().ends_with("/0x0");
                Verdict::Continue
            }
            "MASQUERADE" => {
                packet.masqueraded = true;
                Verdict::Accept
            }
            "DNAT" => {
                packet.target = option("--to-destination").unwrap().parse().unwrap();
                packet.translated = true;
                Verdict::Accept
            }
            chain => self.chain(table, chain, packet),
        }
    }
}
