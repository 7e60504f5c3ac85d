//! Clients of registers: ConfigMaps with a key and a value that nobody wrote before.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use coracle_tests::faults::{
    history::{Action, Call, Outcome, Record},
    plan::Random,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use tokio::sync::watch;

use crate::{
    Phase,
    recorder::Recorder,
    server::{Answer, Link},
};

/// Where registers are.
pub(crate) const NAMESPACE: &str = "registers";
/// Registers in use at a time.
const SLOTS: u64 = 4;
/// After so many requests others are used: a short history is checked sooner.
const GENERATION: u64 = 2000;

/// What all clients share.
#[derive(Default)]
pub(crate) struct Registers {
    values: Cell<u64>,
    requests: Cell<u64>,
}

impl Registers {
    fn next_value(&self) -> u64 {
        self.values.set(self.values.get() + 1);
        self.values.get()
    }

    fn generation(&self) -> u64 {
        self.requests.set(self.requests.get() + 1);
        self.requests.get() / GENERATION
    }
}

/// A version of an object as a client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    value: u64,
    version: String,
}

/// One client: one request at a time, each to some server.
pub(crate) struct Writer<'a> {
    pub(crate) client: usize,
    pub(crate) servers: Vec<Link>,
    pub(crate) recorder: &'a Recorder,
    pub(crate) random: Random,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) registers: &'a Registers,
}

impl Writer<'_> {
    /// Reads, makes, replaces and deletes the same few objects as others do.
    pub(crate) async fn registers(mut self) {
        let mut known: HashMap<String, Known> = HashMap::new();
        while self.is_working().await {
            let slot = self.random.below(SLOTS);
            let key = format!("r{slot}-{}", self.registers.generation());
            let draw = self.random.below(100);
            let next = match known.remove(&key) {
                _ if draw < 40 => self.get(&key).await,
                None if draw < 60 => self.get(&key).await,
                None => self.create(&key, Some(key.clone())).await,
                Some(known) if draw < 90 => self.update(&key, &known).await,
                Some(known) => self.delete(&key, &known).await,
            };
            if let Some(next) = next {
                known.insert(key, next);
            }
        }
    }

    /// Makes one object after the other, of most the next version, too, and deletes most. The
    /// server gives the name: what is made twice is there twice.
    pub(crate) async fn journal(mut self) {
        let mut number = 0;
        while self.is_working().await {
            number += 1;
            let key = format!("j{}-{number}", self.client);
            let mut known = self.create(&key, None).await;
            if let (Some(made), true) = (&known, self.random.below(10) < 7) {
                known = self.update(&key, &made.clone()).await;
            }
            if let (Some(made), true) = (&known, self.random.below(10) < 7) {
                self.delete(&key, &made.clone()).await;
            }
        }
    }

    /// Whether to go on, after a pause.
    async fn is_working(&mut self) -> bool {
        let pause = Duration::from_millis(20 + self.random.below(60));
        tokio::time::sleep(pause).await;
        *self.phase.borrow() == Phase::Work
    }

    fn some_server(&mut self) -> (usize, Api<ConfigMap>) {
        let index = self.random.index(self.servers.len());
        let client: Client = self.servers[index].client.clone();
        (index, Api::namespaced(client, NAMESPACE))
    }

    async fn get(&mut self, key: &str) -> Option<Known> {
        let (index, maps) = self.some_server();
        let asked = self.recorder.now();
        let answer = self.servers[index].answer(maps.get(key)).await;
        let (read, outcome) = match answer {
            Answer::Done(map) => {
                let read = known(&map);
                let value = read.as_ref().map(|read| read.value);
                (read, Outcome::Read(value))
            }
            Answer::Refused => (None, Outcome::Read(None)),
            other => {
                self.not_answered(&other);
                return None;
            }
        };
        self.keep(index, key, Action::Get, asked, outcome, None);
        read
    }

    async fn create(&mut self, key: &str, name: Option<String>) -> Option<Known> {
        let value = self.registers.next_value();
        let mut map = register(key, value);
        map.metadata.generate_name = name.is_none().then(|| "j-".to_owned());
        map.metadata.name = name;
        let (index, maps) = self.some_server();
        let asked = self.recorder.now();
        let params = PostParams::default();
        let answer = self.servers[index].answer(maps.create(&params, &map)).await;
        self.written(index, key, Action::Create { value }, asked, answer)
    }

    async fn update(&mut self, key: &str, from: &Known) -> Option<Known> {
        let value = self.registers.next_value();
        let mut map = register(key, value);
        map.metadata.name = Some(from.name.clone());
        map.metadata.resource_version = Some(from.version.clone());
        let (index, maps) = self.some_server();
        let asked = self.recorder.now();
        let params = PostParams::default();
        let request = maps.replace(&from.name, &params, &map);
        let answer = self.servers[index].answer(request).await;
        let action = Action::Update {
            from: from.value,
            to: value,
        };
        self.written(index, key, action, asked, answer)
    }

    async fn delete(&mut self, key: &str, from: &Known) -> Option<Known> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: Some(from.version.clone()),
                uid: None,
            }),
            ..DeleteParams::default()
        };
        let (index, maps) = self.some_server();
        let asked = self.recorder.now();
        let request = async {
            maps.delete(&from.name, &params)
                .await
                .map(|_| ConfigMap::default())
        };
        let answer = self.servers[index].answer(request).await;
        let action = Action::Delete { from: from.value };
        self.written(index, key, action, asked, answer)
    }

    /// Keeps what came of a write; what the object is by then, if that is known.
    fn written(
        &self,
        server: usize,
        key: &str,
        action: Action,
        asked: u64,
        answer: Answer<ConfigMap>,
    ) -> Option<Known> {
        let (map, outcome) = match answer {
            Answer::Done(map) => (Some(map), Outcome::Done),
            Answer::Refused => (None, Outcome::Refused),
            // It is none of the register's calls.
            Answer::NotNow => return None,
            other => {
                self.not_answered(&other);
                (None, Outcome::Unknown)
            }
        };
        let known = map.as_ref().and_then(known);
        let version = known.as_ref().and_then(|known| known.version.parse().ok());
        self.keep(server, key, action, asked, outcome, version);
        known
    }

    fn not_answered<T>(&self, answer: &Answer<T>) {
        if let Answer::Odd(what) = answer {
            self.recorder.odd(what.clone());
        }
    }

    fn keep(
        &self,
        server: usize,
        key: &str,
        action: Action,
        asked: u64,
        outcome: Outcome,
        version: Option<u64>,
    ) {
        self.recorder.keep(&Record::Call(Call {
            client: self.client,
            server,
            key: key.to_owned(),
            action,
            asked,
            answered: (outcome != Outcome::Unknown).then(|| self.recorder.now()),
            outcome,
            version,
        }));
    }
}

fn register(key: &str, value: u64) -> ConfigMap {
    let data = BTreeMap::from([
        ("key".to_owned(), key.to_owned()),
        ("value".to_owned(), value.to_string()),
    ]);
    ConfigMap {
        metadata: ObjectMeta::default(),
        data: Some(data),
        ..ConfigMap::default()
    }
}

fn known(map: &ConfigMap) -> Option<Known> {
    Some(Known {
        name: map.metadata.name.clone()?,
        value: map.data.as_ref()?.get("value")?.parse().ok()?,
        version: map.metadata.resource_version.clone()?,
    })
}
