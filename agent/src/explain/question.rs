//! What is asked, as people write it. Pure.

use std::{fmt, net::IpAddr};

use coracle_netfilter::service::Protocol;
use serde::{Deserialize, Serialize};

/// A namespace and a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// Where packets come from or go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A pod.
    Pod(Name),
    /// A Service's first address.
    Service(Name),
    /// A node; `None`: this one.
    Node(Option<String>),
    /// Any address.
    Address(IpAddr),
}

/// A port by number, or by the name that a Service gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRef {
    /// Its number.
    Number(u16),
    /// Its name.
    Name(String),
}

/// What a connection is made to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Whom.
    pub place: Place,
    /// Which port; `None` where it has only one.
    pub port: Option<PortRef>,
    /// `tcp`, `udp` or `sctp`; `None`: what the port has, else TCP.
    pub protocol: Option<String>,
}

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// A pod.
    Pod(Name),
    /// A Service.
    Service(Name),
    /// A NetworkPolicy.
    Policy(Name),
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// What this node programs for it.
    Show(Subject),
    /// Where a packet would go.
    Path {
        /// The sender.
        from: Place,
        /// Where it is sent to.
        to: Target,
    },
}

/// A word of the command line that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: expected {expected}")]
pub struct QuestionError {
    word: String,
    expected: &'static str,
}

const SUBJECT: &str =
    "NAMESPACE/POD, svc/NAMESPACE/NAME or netpol/NAMESPACE/NAME (without a namespace: default)";
const SOURCE: &str = "NAMESPACE/POD, an address of one sender, node or node/NAME";
const TARGET: &str = "NAMESPACE/POD, svc/NAMESPACE/NAME, an address of one receiver or node, with :PORT and /udp or /sctp where it needs them";
const DEFAULT_NAMESPACE: &str = "default";

/// What a word before the first slash makes of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Service,
    Policy,
    Node,
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "pod" | "po" | "pods" => Some(Self::Pod),
            "svc" | "service" | "services" => Some(Self::Service),
            "netpol" | "networkpolicy" | "networkpolicies" => Some(Self::Policy),
            "node" | "no" | "nodes" => Some(Self::Node),
            _ => None,
        }
    }
}

impl Question {
    /// Of one word or two.
    ///
    /// # Errors
    /// One of them is none of these.
    pub fn parse(first: &str, second: Option<&str>) -> Result<Self, QuestionError> {
        let Some(second) = second else {
            return Ok(Self::Show(subject(first)?));
        };
        Ok(Self::Path {
            from: Place::parse(first).ok_or_else(|| expected(first, SOURCE))?,
            to: Target::parse(second).ok_or_else(|| expected(second, TARGET))?,
        })
    }
}

fn expected(word: &str, expected: &'static str) -> QuestionError {
    QuestionError {
        word: word.to_owned(),
        expected,
    }
}

fn subject(word: &str) -> Result<Subject, QuestionError> {
    // A port of it says nothing more: all are shown.
    let (name, _port) = word.split_once(':').unwrap_or((word, ""));
    match kind_and_name(name) {
        Some((Kind::Pod, name)) => Ok(Subject::Pod(name)),
        Some((Kind::Service, name)) => Ok(Subject::Service(name)),
        Some((Kind::Policy, name)) => Ok(Subject::Policy(name)),
        Some((Kind::Node, _)) | None => Err(expected(word, SUBJECT)),
    }
}

fn kind_and_name(word: &str) -> Option<(Kind, Name)> {
    let parts: Vec<&str> = word.split('/').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let name = |namespace: &str, name: &str| Name {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match parts[..] {
        [first, second] => Some(match Kind::parse(first) {
            Some(kind) => (kind, name(DEFAULT_NAMESPACE, second)),
            None => (Kind::Pod, name(first, second)),
        }),
        [kind, namespace, of] => Some((Kind::parse(kind)?, name(namespace, of))),
        _ => None,
    }
}

impl Place {
    fn parse(word: &str) -> Option<Self> {
        if word == "node" {
            return Some(Self::Node(None));
        }
        if let Ok(address) = word.trim_matches(['[', ']']).parse() {
            return is_ones(address).then_some(Self::Address(address));
        }
        match kind_and_name(word)? {
            (Kind::Pod, name) => Some(Self::Pod(name)),
            (Kind::Service, name) => Some(Self::Service(name)),
            (Kind::Node, name) => Some(Self::Node(Some(name.name))),
            (Kind::Policy, _) => None,
        }
    }
}

/// What is sent to everybody, or to nobody, has no way that could be told.
fn is_ones(address: IpAddr) -> bool {
    let is_everybodys = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    !(is_everybodys || address.is_multicast() || address.is_unspecified())
}

impl Target {
    fn parse(word: &str) -> Option<Self> {
        let (rest, protocol) = match word.rsplit_once('/') {
            Some((rest, last)) if protocol(last).is_some() => (rest, Some(last.to_lowercase())),
            _ => (word, None),
        };
        // An address of IPv6 has colons of its own.
        let (place, port) = match rest.rsplit_once(':') {
            Some((place, port)) if !place.contains(':') || place.ends_with(']') => {
                (place, Some(port))
            }
            _ => (rest, None),
        };
        let port = match port {
            None => None,
            Some("") => return None,
            Some(port) => Some(match port.parse() {
                Ok(0) => return None,
                Ok(number) => PortRef::Number(number),
                Err(_) if port.bytes().all(|byte| byte.is_ascii_digit()) => return None,
                Err(_) => PortRef::Name(port.to_owned()),
            }),
        };
        Some(Self {
            place: Place::parse(place)?,
            port,
            protocol,
        })
    }
}

/// As people write it.
pub(super) fn protocol(text: &str) -> Option<Protocol> {
    Protocol::parse(Some(&text.to_ascii_uppercase()))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, name: &str) -> Name {
        Name {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn places_are_said_as_people_say_them() {
        let default = |of: &str| name("default", of);
        for (word, expect) in [
            ("team/web", Some(Place::Pod(name("team", "web")))),
            ("pod/web", Some(Place::Pod(default("web")))),
            ("pod/svc/web", Some(Place::Pod(name("svc", "web")))),
            ("svc/web", Some(Place::Service(default("web")))),
            ("svc/team/web", Some(Place::Service(name("team", "web")))),
            ("node", Some(Place::Node(None))),
            ("node/n2", Some(Place::Node(Some("n2".to_owned())))),
            ("10.0.0.1", Some(Place::Address([10, 0, 0, 1].into()))),
            ("[::1]", Some(Place::Address("::1".parse().unwrap()))),
            ("web", None),
            ("/web", None),
            ("netpol/deny", None),
            ("a/b/c", None),
            ("svc/a/b/c", None),
        ] {
            assert_eq!(Place::parse(word), expect, "{word}");
        }
    }

    #[test]
    fn ports_and_protocols_follow_a_target() {
        let web = || Place::Service(name("team", "web"));
        let number = |port| Some(PortRef::Number(port));
        let udp = || Some("udp".to_owned());
        for (word, place, port, protocol) in [
            ("svc/team/web", web(), None, None),
            ("svc/team/web:80", web(), number(80), None),
            (
                "svc/team/web:http/udp",
                web(),
                Some(PortRef::Name("http".to_owned())),
                udp(),
            ),
            ("svc/team/web/UDP", web(), None, udp()),
            (
                "10.0.0.1:53/udp",
                Place::Address([10, 0, 0, 1].into()),
                number(53),
                udp(),
            ),
            (
                "[fd00::1]:53",
                Place::Address("fd00::1".parse().unwrap()),
                number(53),
                None,
            ),
            ("node:30080", Place::Node(None), number(30080), None),
        ] {
            let expect = Target {
                place,
                port,
                protocol,
            };
            assert_eq!(Target::parse(word), Some(expect), "{word}");
        }
        for word in ["10.0.0.1:0", "10.0.0.1:70000", "a/b:", "web:80", ":80"] {
            assert_eq!(Target::parse(word), None, "{word}");
        }
        // Nobody's, and everybody's.
        for word in [
            "0.0.0.0:80",
            "[::]:80",
            "255.255.255.255:80",
            "224.0.0.1:80",
            "[ff02::1]:80",
        ] {
            assert_eq!(Target::parse(word), None, "{word}");
        }
    }

    #[test]
    fn what_is_no_question_is_told() {
        assert_eq!(
            Question::parse("netpol/default/deny", None).unwrap(),
            Question::Show(Subject::Policy(name("default", "deny")))
        );
        let said = Question::parse("web", None).unwrap_err().to_string();
        assert!(said.contains("\"web\"") && said.contains("svc/"), "{said}");
        let said = Question::parse("netpol/a", Some("a/b"));
        assert!(said.unwrap_err().to_string().contains("node"));
    }
}
