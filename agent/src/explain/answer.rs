//! What is answered: data for programs, words for people. Pure.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

/// One of the two kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Answer {
    /// Where a packet would go.
    Path(Box<Path>),
    /// What is programmed.
    Listing(Listing),
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It gets there.
    Arrives,
    /// The sender is told that nobody takes it.
    Refused,
    /// Nobody is told anything.
    Dropped,
    /// It depends on the endpoint that is drawn.
    Depends,
    /// This node does not know enough.
    Unknown,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Its address.
    pub address: IpAddr,
    /// `pod NAMESPACE/NAME`, `node NAME`, `Service NAMESPACE/NAME`, if it is known.
    pub name: Option<String>,
    /// The node it is on, if it is known.
    pub node: Option<String>,
}

/// Where a packet would go, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Who answers.
    pub node: String,
    /// What keeps the rules of Services there.
    pub engine: String,
    /// The sender.
    pub from: Party,
    /// Whom it asks for.
    pub to: Party,
    /// Which port of theirs.
    pub port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// What rules of Services and published ports do with it; `None`: nothing.
    pub service: Option<ServiceStep>,
    /// Where it may end: one for each endpoint, all as likely.
    pub ends: Vec<End>,
    /// What becomes of it.
    pub verdict: Verdict,
    /// The reason, in words.
    pub why: String,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// What translates an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStep {
    /// Whose: `Service NAMESPACE/NAME` or `pod NAMESPACE/NAME`.
    pub owner: String,
    /// Which port, under which address.
    pub port: String,
    /// What it does.
    pub says: String,
    /// Seconds that a client stays with its endpoint.
    pub affinity_secs: Option<u32>,
}

/// Where a packet may end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Who gets it.
    pub party: Party,
    /// At which port.
    pub port: u16,
    /// What the sender's policies say.
    pub egress: PolicyStep,
    /// Which way it takes.
    pub route: Route,
    /// Whom the receiver sees, if that is not the sender, and why.
    pub seen_as: Option<String>,
    /// What the receiver's policies say.
    pub ingress: PolicyStep,
    /// What becomes of it here.
    pub verdict: Verdict,
    /// Why, where it does not arrive.
    pub why: Option<String>,
}

/// What policies say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "says")]
pub enum PolicyStep {
    /// No policy selects the pod.
    NotSelected,
    /// They are not asked.
    NotAsked {
        /// The reason, in words.
        why: String,
    },
    /// A rule lets it through.
    Allowed {
        /// The node that decides, if it is another.
        node: Option<String>,
        /// `NAMESPACE/NAME spec.ingress[0]`.
        rules: Vec<String>,
    },
    /// No rule does.
    Denied {
        /// The node that decides, if it is another.
        node: Option<String>,
        /// The policies that select the pod.
        policies: Vec<String>,
    },
    /// This node does not know.
    Unknown {
        /// The reason, in words.
        why: String,
    },
}

impl PolicyStep {
    pub(super) fn denies(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Which way a packet takes from this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to")]
pub enum Route {
    /// It does not leave the sender.
    Itself,
    /// It is the node's own.
    Node,
    /// To a pod of this node.
    Pod {
        /// Out of which link, if it is known.
        link: Option<String>,
    },
    /// To another node, for itself or for a pod of it.
    OtherNode {
        /// Its name.
        node: String,
        /// Out of which link.
        link: String,
        /// Through whom.
        gateway: Option<IpAddr>,
    },
    /// Out of the cluster.
    Outside {
        /// Out of which link, if it is known.
        link: Option<String>,
        /// Through whom.
        gateway: Option<IpAddr>,
    },
    /// Nowhere.
    Nowhere {
        /// What is missing.
        why: String,
        /// The sender hears of it.
        is_told: bool,
    },
}

/// What is programmed for something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Who answers.
    pub node: String,
    /// What keeps the rules of Services there.
    pub engine: String,
    /// What it is about.
    pub subject: String,
    /// What there is to say.
    pub facts: Vec<Fact>,
}

/// A line, or a heading with lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub what: String,
    /// How it is.
    pub lines: Vec<String>,
}

impl Answer {
    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data with names for keys")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Listing(listing) => listing.fmt(f),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrives => "arrives",
            Self::Refused => "is refused",
            Self::Dropped => "is dropped",
            Self::Depends => "depends on the endpoint",
            Self::Unknown => "is not known",
        })
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        let name = self.name.iter().cloned();
        // Of a node the name says it already.
        let node = self.node.iter().map(|node| format!("node {node}"));
        let node = node.filter(|node| self.name.as_ref() != Some(node));
        let about: Vec<String> = name.chain(node).collect();
        match about.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", about.join(", ")),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from      {}", self.from)?;
        writeln!(
            f,
            "to        {}, port {}/{}",
            self.to, self.port, self.protocol
        )?;
        writeln!(f, "asked of  node {} ({})", self.node, self.engine)?;
        if let Some(service) = &self.service {
            writeln!(
                f,
                "service   {}, {}: {}",
                service.owner, service.port, service.says
            )?;
            if let Some(secs) = service.affinity_secs {
                writeln!(f, "          a client stays with its endpoint for {secs} s")?;
            }
        }
        let count = self.ends.len();
        for (number, end) in self.ends.iter().enumerate() {
            let share = match count {
                1 => String::new(),
                _ => format!(", 1 of {count}"),
            };
            writeln!(
                f,
                "end {:<6}{}, port {}{share}",
                number + 1,
                end.party,
                end.port
            )?;
            writeln!(f, "  egress  {}", end.egress)?;
            writeln!(f, "  route   {}", end.route)?;
            if let Some(seen) = &end.seen_as {
                writeln!(f, "  seen as {seen}")?;
            }
            writeln!(f, "  ingress {}", end.ingress)?;
            if let Some(why) = &end.why {
                writeln!(f, "  {}: {why}", end.verdict)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        write!(f, "It {}: {}", self.verdict, self.why)
    }
}

impl fmt::Display for PolicyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |node: &Option<String>| match node {
            Some(node) => format!(" (node {node} decides)"),
            None => String::new(),
        };
        match self {
            Self::NotSelected => f.write_str("no policy selects the pod"),
            Self::NotAsked { why } => write!(f, "no policy is asked: {why}"),
            Self::Allowed { node, rules } => {
                write!(f, "allowed by {}{}", rules.join(", "), by(node))
            }
            Self::Denied { node, policies } => write!(
                f,
                "denied: no rule of {} names it{}",
                policies.join(", "),
                by(node)
            ),
            Self::Unknown { why } => write!(f, "not known: {why}"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |link: &Option<String>, gateway: &Option<IpAddr>| {
            let link = link.iter().map(|link| format!(" by {link}"));
            let gateway = gateway.iter().map(|gateway| format!(" through {gateway}"));
            link.chain(gateway).collect::<String>()
        };
        match self {
            Self::Itself => f.write_str("does not leave the pod"),
            Self::Node => f.write_str("the node itself takes it"),
            Self::Pod { link } => write!(f, "to a pod of this node{}", way(link, &None)),
            Self::OtherNode {
                node,
                link,
                gateway,
            } => write!(f, "to node {node}{}", way(&Some(link.clone()), gateway)),
            Self::Outside { link, gateway } => {
                write!(f, "out of the cluster{}", way(link, gateway))
            }
            Self::Nowhere { why, .. } => write!(f, "nowhere: {why}"),
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, on node {} ({})",
            self.subject, self.node, self.engine
        )?;
        for fact in &self.facts {
            match &fact.lines[..] {
                [one] => write!(f, "\n{:<21} {one}", fact.what)?,
                lines => {
                    write!(f, "\n{}", fact.what)?;
                    for line in lines {
                        write!(f, "\n  {line}")?;
                    }
                }
            }
        }
        Ok(())
    }
}
