//! Compares rules that are there with rules that should be, and writes the difference. Pure.
//!
//! Rules are compared as text, so whoever makes them writes them as `iptables-save` prints them. A
//! rule written otherwise still works, but is written anew at every comparison.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

/// The chains of one table: name to rules, without `-A NAME `.
pub type Chains = BTreeMap<String, Vec<String>>;

/// Reads what `iptables-save -t TABLE` printed.
#[must_use]
pub fn parse(text: &str) -> Chains {
    let mut chains = Chains::new();
    for line in text.lines() {
        if let Some(declaration) = line.strip_prefix(':') {
            let name = declaration.split(' ').next().unwrap_or_default();
            chains.entry(name.to_owned()).or_default();
        } else if let Some((chain, rule)) = line
            .strip_prefix("-A ")
            .and_then(|rest| rest.split_once(' '))
        {
            chains
                .entry(chain.to_owned())
                .or_default()
                .push(rule.to_owned());
        }
    }
    chains
}

/// How a chain's rules relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// First match wins: the chain is rewritten as a whole if it differs.
    Sequence,
    /// Rules exclude one another: single ones are added and deleted, so a change costs the same in
    /// a long chain.
    Set,
}

/// One own chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// How the rules relate.
    pub order: Order,
    /// The rules.
    pub rules: Vec<String>,
}

impl Chain {
    /// A chain where the first match wins.
    #[must_use]
    pub fn sequence(rules: Vec<String>) -> Self {
        Self {
            order: Order::Sequence,
            rules,
        }
    }

    /// A chain whose rules exclude one another.
    #[must_use]
    pub fn set(rules: Vec<String>) -> Self {
        Self {
            order: Order::Set,
            rules,
        }
    }
}

/// The rule in somebody else's chain that leads into ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jump {
    /// `PREROUTING`...
    pub from: &'static str,
    /// `-j CORACLE-...`, perhaps with a match before.
    pub rule: String,
    /// At the top instead of at the end: that is before what refuses everything that gets so far.
    pub first: bool,
}

/// What one table should contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// Own chains.
    pub chains: BTreeMap<String, Chain>,
    /// Ways into them.
    pub jumps: Vec<Jump>,
    /// Prefixes of chain names that belong to this owner: chains there which are not desired are
    /// deleted.
    pub owned_prefixes: Vec<&'static str>,
}

/// A table's changes, in the order that `iptables-restore` needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Chains to make or to empty.
    pub declared: Vec<String>,
    /// `-A`, `-I`, `-D` lines.
    pub rules: Vec<String>,
    /// Chains to delete; they are declared too, which empties them.
    pub deleted: Vec<String>,
}

impl Changes {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.declared.is_empty() && self.rules.is_empty() && self.deleted.is_empty()
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.declared.extend(more.declared);
        self.rules.extend(more.rules);
        self.deleted.extend(more.deleted);
        self
    }

    /// Makes or rewrites a chain.
    pub fn write_chain(&mut self, name: &str, rules: &[String]) {
        self.declared.push(name.to_owned());
        self.rules
            .extend(rules.iter().map(|rule| format!("-A {name} {rule}")));
    }

    /// Deletes a chain.
    pub fn delete_chain(&mut self, name: &str) {
        self.declared.push(name.to_owned());
        self.deleted.push(name.to_owned());
    }

    /// Adds and deletes single rules.
    pub fn edit_set(&mut self, name: &str, before: &[String], after: &[String]) {
        let mut surplus: HashMap<&str, usize> = HashMap::new();
        for rule in before {
            *surplus.entry(rule).or_default() += 1;
        }
        let mut missing = Vec::new();
        for rule in after {
            match surplus.get_mut(rule.as_str()) {
                Some(count) if *count > 0 => *count -= 1,
                _ => missing.push(rule),
            }
        }
        // New ones first: whatever matched before and after the change always matches.
        self.rules
            .extend(missing.into_iter().map(|rule| format!("-A {name} {rule}")));
        for rule in before {
            if let Some(count) = surplus.get_mut(rule.as_str()).filter(|count| **count > 0) {
                *count -= 1;
                self.rules.push(format!("-D {name} {rule}"));
            }
        }
    }
}

/// What makes `actual` equal to `desired`.
#[must_use]
pub fn reconcile(actual: &Chains, desired: &Desired) -> Changes {
    let mut changes = Changes::default();
    for (name, chain) in &desired.chains {
        match (actual.get(name), chain.order) {
            (Some(rules), _) if *rules == chain.rules => {}
            (Some(rules), Order::Set) => changes.edit_set(name, rules, &chain.rules),
            _ => changes.write_chain(name, &chain.rules),
        }
    }
    reconcile_jumps(actual, desired, &mut changes);
    for name in actual.keys() {
        let owned = desired
            .owned_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if owned && !desired.chains.contains_key(name) {
            changes.delete_chain(name);
        }
    }
    changes
}

fn reconcile_jumps(actual: &Chains, desired: &Desired, changes: &mut Changes) {
    for jump in &desired.jumps {
        let rules = actual.get(jump.from).map_or(&[][..], Vec::as_slice);
        let present = rules.iter().filter(|rule| **rule == jump.rule).count();
        place(actual, jump, changes);
        for _ in 1..present {
            changes
                .rules
                .push(format!("-D {} {}", jump.from, jump.rule));
        }
    }
    // Other ways into our chains from elsewhere are a predecessor's: they would keep the chain from
    // being deleted.
    for (from, rules) in actual {
        if desired
            .owned_prefixes
            .iter()
            .any(|prefix| from.starts_with(prefix))
        {
            continue;
        }
        for rule in rules {
            let Some(target) = target(rule) else { continue };
            let ours = desired
                .owned_prefixes
                .iter()
                .any(|prefix| target.starts_with(prefix));
            if ours
                && !desired
                    .jumps
                    .iter()
                    .any(|jump| jump.from == from && jump.rule == *rule)
            {
                changes.rules.push(format!("-D {from} {rule}"));
            }
        }
    }
}

/// Adds a jump that is not there, or stands where nothing comes by any more.
fn place(actual: &Chains, jump: &Jump, changes: &mut Changes) {
    let Jump { from, rule, first } = jump;
    let rules = actual.get(*from).map_or(&[][..], Vec::as_slice);
    let present = rules.iter().position(|other| other == rule);
    let refused = rules
        .iter()
        .position(|rule| refuses_everything(actual, rule))
        .filter(|_| !first);
    match (present, refused) {
        (Some(at), Some(refused)) if at > refused => {
            changes.rules.push(format!("-D {from} {rule}"));
        }
        (Some(_), _) => return,
        (None, _) => {}
    }
    // Before it: numbers begin with one, and count what goes in before.
    let begin = format!("-I {from} ");
    let inserted = changes.rules.iter().filter(|one| one.starts_with(&begin));
    let number = refused.map(|refused| refused + 1 + inserted.count());
    changes.rules.push(match number.or(first.then_some(1)) {
        Some(number) => format!("-I {from} {number} {rule}"),
        None => format!("-A {from} {rule}"),
    });
}

/// Whether a rule lets nothing come by, as a policy would: by itself, or by a chain that begins
/// with such a rule.
fn refuses_everything(chains: &Chains, rule: &str) -> bool {
    let refuses = |target: &str| matches!(target, "DROP" | "REJECT");
    unconditional(rule).is_some_and(|target| {
        let begin = chains.get(target).and_then(|rules| rules.first());
        refuses(target)
            || begin
                .and_then(|rule| unconditional(rule))
                .is_some_and(refuses)
    })
}

/// Where a rule leads whatever comes to it.
fn unconditional(rule: &str) -> Option<&str> {
    let target = match rule.strip_prefix("-m comment --comment ") {
        None => rule.strip_prefix("-j ")?,
        Some(comment) => match comment.strip_prefix('"') {
            Some(quoted) => quoted.split_once("\" -j ")?.1,
            None => comment.split_once(' ')?.1.strip_prefix("-j ")?,
        },
    };
    target.split(' ').next()
}

/// Where a rule jumps to.
#[must_use]
pub fn target(rule: &str) -> Option<&str> {
    let (_, rest) = rule.rsplit_once("-j ")?;
    rest.split(' ').next()
}

/// The text for `iptables-restore --noflush`; empty if there is nothing to do.
#[must_use]
pub fn transaction(table: &str, changes: &Changes) -> String {
    let mut text = String::new();
    if changes.is_empty() {
        return text;
    }
    let _ = writeln!(text, "*{table}");
    for chain in &changes.declared {
        let _ = writeln!(text, ":{chain} - [0:0]");
    }
    for rule in &changes.rules {
        let _ = writeln!(text, "{rule}");
    }
    for chain in &changes.deleted {
        let _ = writeln!(text, "-X {chain}");
    }
    text.push_str("COMMIT\n");
    text
}

#[cfg(test)]
mod tests;
