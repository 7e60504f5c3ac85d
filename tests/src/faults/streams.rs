//! What watches showed: every change once and in order, the same on every server, and nothing left
//! out. Where a watch had to begin anew, what it listed is what the others had seen until then.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Change, Listed, Object, Record, Seen};

/// Version and name: one change.
type At = (u64, String);

/// All changes of a kind that any server has shown.
pub type Changes = BTreeMap<At, Seen>;

/// What is wrong, and what was looked at.
#[derive(Debug, Default)]
pub struct Verdict {
    /// One sentence each.
    pub problems: Vec<String>,
    /// How many events were looked at.
    pub events: usize,
    /// How often a watch had to begin anew.
    pub gone: usize,
    /// All changes by kind.
    pub changes: BTreeMap<String, Changes>,
    /// The oldest list of each kind.
    pub first: BTreeMap<String, Listed>,
}

/// One server's watches of one kind, one after the other.
#[derive(Default)]
struct Stream {
    /// Uid and version of what is there, by name.
    present: BTreeMap<String, (String, u64)>,
    at: u64,
    /// What was watched without a break: after the first version, up to the second.
    covered: Vec<(u64, u64)>,
    seen: Vec<At>,
    lists: Vec<Listed>,
}

/// Looks at all watches of a history.
pub fn check(records: &[Record]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut streams: BTreeMap<(String, usize), Stream> = BTreeMap::new();
    for record in records {
        let (kind, server) = match record {
            Record::Listed(list) | Record::Compared(list) => (&list.kind, list.server),
            Record::Seen(seen) => (&seen.kind, seen.server),
            Record::Reached(reached) | Record::Gone(reached) => (&reached.kind, reached.server),
            Record::Call(_) | Record::Odd(_) => continue,
        };
        let stream = streams.entry((kind.clone(), server)).or_default();
        match record {
            Record::Listed(list) => {
                stream.begin(list, &mut verdict.problems);
                let first = verdict
                    .first
                    .entry(kind.clone())
                    .or_insert_with(|| list.clone());
                if list.version < first.version {
                    *first = list.clone();
                }
            }
            Record::Compared(list) => stream.lists.push(list.clone()),
            Record::Seen(seen) => {
                stream.apply(seen, &mut verdict.problems);
                verdict.events += 1;
                remember(
                    verdict.changes.entry(kind.clone()).or_default(),
                    seen,
                    &mut verdict.problems,
                );
            }
            Record::Reached(reached) => {
                if reached.version < stream.at {
                    verdict.problems.push(format!(
                        "a bookmark steps back from {}: {reached:?}",
                        stream.at
                    ));
                }
                stream.reach(reached.version);
            }
            _ => verdict.gone += 1,
        }
    }
    let none = Changes::new();
    for ((kind, server), stream) in &streams {
        let changes = verdict.changes.get(kind).unwrap_or(&none);
        let missing = stream.missing(changes);
        if !missing.is_empty() {
            verdict.problems.push(format!(
                "the watch of {kind} on server {server} left out {missing:?}"
            ));
        }
        if let Some(first) = verdict.first.get(kind) {
            let wrong = stream
                .lists
                .iter()
                .filter_map(|list| differs(first, changes, list));
            verdict
                .problems
                .extend(wrong.map(|why| format!("{kind} on server {server}: {why}")));
        }
    }
    verdict
}

/// Keeps a change, which must be the same on every server.
fn remember(changes: &mut Changes, seen: &Seen, problems: &mut Vec<String>) {
    let at = (seen.object.version, seen.object.name.clone());
    let known = changes.entry(at).or_insert_with(|| seen.clone());
    if (known.change, &known.object) != (seen.change, &seen.object) {
        problems.push(format!(
            "two servers show one change differently: {known:?}, {seen:?}"
        ));
    }
}

impl Stream {
    fn begin(&mut self, list: &Listed, problems: &mut Vec<String>) {
        if list.version < self.at {
            problems.push(format!(
                "server {} lists {} at {}, after a watch was at {}",
                list.server, list.kind, list.version, self.at
            ));
        }
        let objects = list.objects.iter();
        self.present = objects
            .map(|object| (object.name.clone(), (object.uid.clone(), object.version)))
            .collect();
        self.at = list.version;
        self.covered.push((list.version, list.version));
        self.lists.push(list.clone());
    }

    fn reach(&mut self, version: u64) {
        self.at = self.at.max(version);
        if let Some((_, to)) = self.covered.last_mut() {
            *to = (*to).max(version);
        }
    }

    fn apply(&mut self, seen: &Seen, problems: &mut Vec<String>) {
        let Object {
            name, uid, version, ..
        } = &seen.object;
        let is_new = *version > self.at || self.is_of_the_same_transaction(*version, name);
        if !is_new {
            problems.push(format!("twice, or a step back from {}: {seen:?}", self.at));
        }
        let before = self.present.get(name).map(|(uid, _)| uid);
        let fits = match seen.change {
            Change::Added => before.is_none(),
            Change::Modified | Change::Deleted => before == Some(uid),
        };
        if !fits {
            problems.push(format!(
                "it does not follow what was shown before ({before:?}): {seen:?}"
            ));
        }
        match seen.change {
            Change::Deleted => self.present.remove(name),
            _ => self.present.insert(name.clone(), (uid.clone(), *version)),
        };
        self.seen.push((*version, name.clone()));
        self.reach(*version);
    }

    /// Objects that are written in one transaction have one version.
    fn is_of_the_same_transaction(&self, version: u64, name: &str) -> bool {
        let mut latest = self
            .seen
            .iter()
            .rev()
            .take_while(|(at, _)| *at == version)
            .peekable();
        version == self.at && latest.peek().is_some() && latest.all(|(_, seen)| seen != name)
    }

    /// Changes that other watches showed, and this one did not although it watched.
    fn missing(&self, changes: &Changes) -> Vec<At> {
        let seen: BTreeSet<&At> = self.seen.iter().collect();
        let was_watching = |version: u64| {
            let mut covered = self.covered.iter();
            covered.any(|(from, to)| (*from < version) && (version <= *to))
        };
        let missing = changes
            .keys()
            .filter(|at| was_watching(at.0) && !seen.contains(at));
        missing.cloned().collect()
    }
}

/// How a list differs from what the first one and all changes up to it make.
fn differs(first: &Listed, changes: &Changes, list: &Listed) -> Option<String> {
    let mut expected: BTreeMap<&str, u64> = names(first);
    let later = changes
        .iter()
        .filter(|((version, _), _)| first.version < *version && *version <= list.version);
    for ((version, name), seen) in later {
        match seen.change {
            Change::Deleted => expected.remove(&**name),
            _ => expected.insert(name, *version),
        };
    }
    let found = names(list);
    (found != expected).then(|| {
        let only = |these: &BTreeMap<&str, u64>, others: &BTreeMap<&str, u64>| -> Vec<String> {
            let odd = these
                .iter()
                .filter(|(name, version)| others.get(*name) != Some(version));
            odd.map(|(name, version)| format!("{name}@{version}"))
                .collect()
        };
        format!(
            "the list at {} has {:?}, and what was watched makes {:?}",
            list.version,
            only(&found, &expected),
            only(&expected, &found)
        )
    })
}

fn names(list: &Listed) -> BTreeMap<&str, u64> {
    let objects = list.objects.iter();
    objects
        .map(|object| (&*object.name, object.version))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::history::{Facts, Reached},
        *,
    };

    fn object(name: &str, version: u64) -> Object {
        Object {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            version,
            facts: Facts::None,
        }
    }

    fn list(server: usize, version: u64, objects: &[Object]) -> Record {
        Record::Listed(Listed {
            server,
            kind: "Pod".to_owned(),
            version,
            objects: objects.to_vec(),
        })
    }

    fn seen(server: usize, change: Change, name: &str, version: u64) -> Record {
        Record::Seen(Seen {
            server,
            kind: "Pod".to_owned(),
            change,
            object: object(name, version),
        })
    }

    fn reached(server: usize, version: u64) -> Reached {
        Reached {
            server,
            kind: "Pod".to_owned(),
            version,
            at: 0,
        }
    }

    /// What server 0 shows without fault.
    fn good() -> Vec<Record> {
        vec![
            list(0, 5, &[]),
            seen(0, Change::Added, "a", 6),
            seen(0, Change::Modified, "a", 8),
            seen(0, Change::Added, "b", 9),
            seen(0, Change::Deleted, "a", 10),
            seen(0, Change::Added, "c", 12),
        ]
    }

    fn problems(more: &[Record]) -> Vec<String> {
        check(&[good(), more.to_vec()].concat()).problems
    }

    #[test]
    fn what_every_server_shows_once_and_in_order_is_accepted() {
        let other = [
            list(1, 7, &[object("a", 6)]),
            seen(1, Change::Modified, "a", 8),
            Record::Reached(reached(1, 8)),
            seen(1, Change::Added, "b", 9),
            seen(1, Change::Deleted, "a", 10),
        ];
        assert_eq!(problems(&other), Vec::<String>::new());
    }

    #[test]
    fn a_gap_is_found_where_another_saw_more() {
        let other = [
            list(1, 7, &[object("a", 6)]),
            seen(1, Change::Modified, "a", 8),
            seen(1, Change::Deleted, "a", 10),
        ];
        let found = problems(&other);
        assert!(
            found.len() == 1 && found[0].contains("left out [(9, \"b\")]"),
            "{found:?}"
        );
        // A bookmark says that there was nothing else.
        let other = [
            list(1, 10, &[object("b", 9)]),
            Record::Reached(reached(1, 12)),
        ];
        assert!(problems(&other)[0].contains("left out [(12, \"c\")]"));
    }

    #[test]
    fn a_gap_is_found_where_the_next_event_does_not_follow() {
        let alone = [list(1, 1, &[]), seen(1, Change::Modified, "a", 8)];
        assert!(check(&alone).problems[0].contains("does not follow"));
    }

    #[test]
    fn a_second_time_and_a_step_back_are_found() {
        for again in [
            seen(0, Change::Added, "c", 12),
            seen(0, Change::Added, "b", 9),
        ] {
            assert!(problems(&[again])[0].contains("twice, or a step back"));
        }
        let back = Record::Reached(reached(0, 3));
        assert!(problems(&[back])[0].contains("a bookmark steps back"));
        let old = list(0, 3, &[]);
        assert!(problems(&[old])[0].contains("after a watch was at 12"));
    }

    #[test]
    fn what_is_listed_anew_is_what_the_others_saw() {
        let gone = Record::Gone(reached(1, 7));
        let good = [
            list(1, 7, &[object("a", 6)]),
            gone.clone(),
            list(1, 11, &[object("b", 9)]),
        ];
        assert_eq!(problems(&good), Vec::<String>::new());
        let stale = [
            list(1, 7, &[object("a", 6)]),
            gone,
            list(1, 11, &[object("a", 8)]),
        ];
        assert!(problems(&stale)[0].contains("the list at 11 has [\"a@8\"]"));
    }

    #[test]
    fn servers_that_differ_are_found() {
        let other = [list(1, 5, &[]), seen(1, Change::Added, "z", 6)];
        // It left out what the other showed, and the other what it shows.
        assert_eq!(problems(&other).len(), 2);
        let other = [
            list(1, 9, &[object("b", 9)]),
            seen(1, Change::Modified, "b", 9),
        ];
        assert!(!problems(&other).is_empty());
    }
}
