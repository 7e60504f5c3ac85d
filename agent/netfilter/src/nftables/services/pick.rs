//! Chains that choose one of so many endpoints: shared by all ports that have as many.

use super::{
    super::expression::{Expression, Field, Register},
    layout::{DESTINATION, NUMBER, SOURCE, VALUE, load_vip, name, set_mark},
};

/// A way to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pick {
    /// How many there are.
    pub(super) count: u32,
    /// Among those for traffic that stays on the node.
    pub(super) local: bool,
    /// The answer must come back through here.
    pub(super) masquerade: bool,
    /// A client stays for so many seconds where it was.
    pub(super) sticky_secs: Option<u32>,
}

impl Pick {
    /// Its chain's name.
    pub(super) fn chain(self) -> String {
        let marked = if self.masquerade { "mark-" } else { "" };
        let local = if self.local { "local-" } else { "" };
        let sticky = self.sticky_secs.map(|secs| format!("-for-{secs}"));
        let sticky = sticky.unwrap_or_default();
        format!("{marked}{local}pick-{}{sticky}", self.count)
    }

    /// Its chain's rules.
    pub(super) fn rules(self) -> Vec<Vec<Expression>> {
        let mut rules = Vec::new();
        if self.masquerade {
            rules.push(set_mark());
        }
        if let Some(secs) = self.sticky_secs {
            let remember = || Expression::Remember {
                map: name::STICKY.to_owned(),
                key: SOURCE,
                value: VALUE,
                milliseconds: u64::from(secs) * 1000,
            };
            let known = || [client(), vec![read(name::STICKY, SOURCE)]].concat();
            // Whoever comes again is remembered for longer.
            rules.push([known(), vec![remember()]].concat());
            rules.push([known(), vec![translate()]].concat());
            rules.push([client(), self.draw(), vec![remember()]].concat());
            rules.push([known(), vec![translate()]].concat());
            // Where no more clients can be remembered.
        }
        rules.push([load_vip(), self.draw(), vec![translate()]].concat());
        rules
    }

    /// One of the endpoints of the VIP that is loaded.
    fn draw(self) -> Vec<Expression> {
        let endpoints = if self.local {
            name::LOCAL_ENDPOINTS
        } else {
            name::ENDPOINTS
        };
        vec![
            Expression::Random(self.count, NUMBER),
            read(endpoints, DESTINATION),
        ]
    }
}

fn client() -> Vec<Expression> {
    [
        vec![Expression::Payload(Field::Source4, SOURCE)],
        load_vip(),
    ]
    .concat()
}

fn read(map: &str, key: Register) -> Expression {
    Expression::Map {
        map: map.to_owned(),
        key,
        value: VALUE,
    }
}

fn translate() -> Expression {
    Expression::Translate4 {
        address: VALUE,
        port: VALUE.after(1),
    }
}
