//! What clients did and saw, as they wrote it down.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub type Micros = u64;

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Record {
    /// A request for one register.
    Call(Call),
    /// A list, with which a watch begins.
    Listed(Listed),
    /// A list beside a watch that goes on.
    Compared(Listed),
    /// An event of a watch.
    Seen(Seen),
    /// A bookmark of a watch.
    Reached(Reached),
    /// The version to go on from was too old.
    Gone(Reached),
    /// An answer that nobody should get.
    Odd(String),
}

/// A request for one register: a ConfigMap that has a key and a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Who asked: one request at a time.
    pub client: usize,
    /// Which server was asked.
    pub server: usize,
    /// Which register.
    pub key: String,
    /// What was asked for.
    pub action: Action,
    /// When the request was sent.
    pub asked: Micros,
    /// When its answer was there; `None` if none came that says what happened.
    pub answered: Option<Micros>,
    /// What the answer said.
    pub outcome: Outcome,
    /// The resourceVersion in the answer to a write.
    pub version: Option<u64>,
}

/// What is asked of a register. No value is written twice, so a value stands for a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Reads it, with no resourceVersion: the newest.
    Get,
    /// Makes it.
    Create {
        /// Its first value.
        value: u64,
    },
    /// Replaces it if it still is what was read.
    Update {
        /// What was read.
        from: u64,
        /// The next value.
        to: u64,
    },
    /// Deletes it if it still is what was read.
    Delete {
        /// What was read.
        from: u64,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// This was read; `None` if there is no such object.
    Read(Option<u64>),
    /// It was written.
    Done,
    /// It is there already, is not there, or has changed.
    Refused,
    /// Perhaps it was written, perhaps it will be.
    Unknown,
}

/// An object, as far as a check looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Namespace and name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// What else is of interest of its kind.
    pub facts: Facts,
}

/// What is of interest of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Facts {
    /// Nothing.
    None,
    /// Of a ConfigMap that is a register.
    Register {
        /// Its key.
        key: String,
        /// Its value.
        value: u64,
    },
    /// Of a Lease.
    Lease(LeaseFacts),
    /// Of a pod.
    Pod {
        /// The uid of its controller.
        owner: String,
        /// Whether it is being deleted.
        is_going: bool,
        /// Where it is bound to; empty before that.
        node: String,
        /// Its containers that have been started, by their IDs.
        containers: Vec<String>,
        /// How often one was started again.
        restarts: u64,
    },
    /// Of a node: whether it is Ready.
    Node {
        /// As its condition says: `True`, `False`, `Unknown`.
        ready: String,
    },
    /// Of a Service: what no other may have.
    Service(Vec<String>),
}

/// What a Lease says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFacts {
    /// Who holds it; empty after it was given back.
    pub holder: String,
    /// When its holder last renewed it.
    pub renewed: Micros,
    /// When its holder got it.
    pub acquired: Micros,
    /// For how long it is good after that.
    pub seconds: u64,
    /// How often it has changed hands.
    pub transitions: i64,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Of which server.
    pub server: usize,
    /// Of which kind.
    pub kind: String,
    /// The list's resourceVersion.
    pub version: u64,
    /// What is in it.
    pub objects: Vec<Object>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Of which server.
    pub server: usize,
    /// Of which kind.
    pub kind: String,
    /// What happened to it.
    pub change: Change,
    /// The object, with the version at which that happened.
    pub object: Object,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It was made.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// How far a watch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Of which server.
    pub server: usize,
    /// Of which kind.
    pub kind: String,
    /// Which version.
    pub version: u64,
    /// When that was.
    pub at: Micros,
}

/// A clock that never goes back and that other processes of this machine read alike.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    since_epoch: Duration,
}

impl Clock {
    /// Starts it.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            started: Instant::now(),
            since_epoch: since_epoch.unwrap_or_default(),
        }
    }

    /// The time.
    pub fn now(&self) -> Micros {
        let passed = self.since_epoch + self.started.elapsed();
        u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Reads a history.
///
/// # Errors
/// The file cannot be read, or a line is none of a history.
pub fn read(path: &Path) -> io::Result<Vec<Record>> {
    let file = io::BufReader::new(std::fs::File::open(path)?);
    let lines = file.lines();
    lines
        .map(|line| serde_json::from_str(&line?).map_err(io::Error::other))
        .collect()
}

/// The calls of each register.
pub fn by_key(records: &[Record]) -> BTreeMap<&str, Vec<&Call>> {
    let mut keys: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for record in records {
        if let Record::Call(call) = record {
            keys.entry(&call.key).or_default().push(call);
        }
    }
    keys
}

/// Writes whose resourceVersions are not in the order in which they happened: one that began after
/// another was answered has a higher one, and no two have the same.
pub fn versions_out_of_order(records: &[Record]) -> Vec<String> {
    let calls = records.iter().filter_map(|record| match record {
        Record::Call(call) => Some((call, call.version?, call.answered?)),
        _ => None,
    });
    let mut by_answer: Vec<_> = calls.collect();
    let mut by_asking = by_answer.clone();
    by_answer.sort_by_key(|(_, _, answered)| *answered);
    by_asking.sort_by_key(|(call, _, _)| call.asked);
    let mut problems = Vec::new();
    let (mut answers, mut highest) = (by_answer.iter().peekable(), 0);
    for (call, version, _) in by_asking {
        while let Some((_, answered, _)) = answers.next_if(|(_, _, at)| *at < call.asked) {
            highest = highest.max(*answered);
        }
        if version <= highest {
            problems.push(format!("after version {highest} was answered: {call:?}"));
        }
    }
    by_answer.sort_by_key(|(_, version, _)| *version);
    for pair in by_answer.windows(2) {
        if pair[0].1 == pair[1].1 {
            problems.push(format!(
                "one version twice: {:?}, {:?}",
                pair[0].0, pair[1].0
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(asked: Micros, answered: Micros, version: u64) -> Record {
        Record::Call(Call {
            client: 0,
            server: 0,
            key: "a".to_owned(),
            action: Action::Create { value: version },
            asked,
            answered: Some(answered),
            outcome: Outcome::Done,
            version: Some(version),
        })
    }

    #[test]
    fn versions_grow_with_time() {
        let good = [written(0, 10, 5), written(5, 20, 4), written(11, 30, 6)];
        assert_eq!(versions_out_of_order(&good), Vec::<String>::new());
        let back = [written(0, 10, 5), written(11, 20, 4)];
        assert_eq!(versions_out_of_order(&back).len(), 1);
        let twice = [written(0, 10, 5), written(0, 10, 5)];
        assert_eq!(versions_out_of_order(&twice).len(), 1);
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let record = written(0, 1, 7);
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
