//! Random histories: each engine against a model that is too simple to be wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeMap, sync::Arc};

use coracle_store::{
    Backend, Compare, EventBatch, KeyValue, Op, RangeRequest, Revision, StoreError, Txn,
    TxnOutcome, memory::MemoryBackend, sqlite::SqliteBackend,
};
use futures::StreamExt;
use proptest::{prelude::*, test_runner::FileFailurePersistence};

const KEYS: [&str; 5] = [
    "/registry/a/1",
    "/registry/a/2",
    "/registry/a/20",
    "/registry/b/1",
    "/registry/ab",
];
const PREFIXES: [&str; 5] = [
    "/registry/",
    "/registry/a/",
    "/registry/a",
    "/registry/a/2",
    "/registry/c",
];

type State = BTreeMap<String, KeyValue>;

/// Every state there ever was.
struct Model {
    states: Vec<State>,
    compacted: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Txn {
        compare: Vec<(usize, Option<u64>)>,
        put: Vec<(usize, u8)>,
        delete: Vec<usize>,
    },
    Range {
        prefix: usize,
        start: Option<usize>,
        limit: Option<usize>,
        back: Option<u64>,
    },
    Watch {
        prefix: usize,
        back: u64,
    },
    Compact {
        back: u64,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let compare = prop::collection::vec((key.clone(), prop::option::of(0_u64..4)), 0..2);
    let put = prop::collection::vec((key.clone(), any::<u8>()), 0..3);
    let delete = prop::collection::vec(key.clone(), 0..2);
    let range = (
        0..PREFIXES.len(),
        prop::option::of(key),
        prop::option::of(0_usize..4),
        prop::option::of(0_u64..12),
    );
    prop_oneof![
        6 => (compare, put, delete).prop_map(|(compare, put, delete)| Step::Txn { compare, put, delete }),
        3 => range.prop_map(|(prefix, start, limit, back)| Step::Range { prefix, start, limit, back }),
        2 => (0..PREFIXES.len(), 0_u64..12).prop_map(|(prefix, back)| Step::Watch { prefix, back }),
        1 => (0_u64..8).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
    ]
}

impl Model {
    fn new() -> Self {
        Self {
            states: vec![State::new()],
            compacted: 0,
        }
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn state(&self) -> &State {
        self.states.last().unwrap()
    }

    fn at(&self, revision: u64) -> &State {
        &self.states[usize::try_from(revision).unwrap()]
    }

    fn txn(&mut self, txn: &Txn) -> TxnOutcome {
        let holds = txn.compare.iter().all(|compare| match compare {
            Compare::Absent(key) => !self.state().contains_key(&**key),
            Compare::Present(key) => self.state().contains_key(&**key),
            Compare::ModRevision(key, revision) => self
                .state()
                .get(&**key)
                .is_some_and(|kv| kv.mod_revision == *revision),
        });
        if !holds {
            let present = txn
                .compare
                .iter()
                .map(|compare| self.state().get(&**compare.key()).cloned());
            return TxnOutcome::Conflict(present.collect());
        }
        let mod_revision = Revision(self.revision() + 1);
        let mut next = self.state().clone();
        let mut changed = false;
        for op in &txn.ops {
            let key = op.key();
            match op {
                Op::Put { value, .. } => {
                    let create_revision = next
                        .get(&**key)
                        .map_or(mod_revision, |kv| kv.create_revision);
                    let kv = KeyValue {
                        key: Arc::clone(key),
                        value: value.clone(),
                        create_revision,
                        mod_revision,
                    };
                    next.insert(key.to_string(), kv);
                    changed = true;
                }
                Op::Delete { .. } => changed |= next.remove(&**key).is_some(),
            }
        }
        if changed {
            self.states.push(next);
        }
        TxnOutcome::Committed(Revision(self.revision()))
    }

    /// What became of each key under `prefix` between two revisions next to each other, by key.
    fn changes(&self, revision: u64, prefix: &str) -> Vec<(String, Option<KeyValue>)> {
        let (before, after) = (self.at(revision - 1), self.at(revision));
        let keys = KEYS
            .iter()
            .filter(|key| key.starts_with(prefix) && before.get(**key) != after.get(**key));
        let mut changes: Vec<_> = keys
            .map(|key| ((*key).to_owned(), after.get(*key).cloned()))
            .collect();
        changes.sort_by(|a, b| a.0.cmp(&b.0));
        changes
    }
}

fn txn_of(
    model: &Model,
    compare: &[(usize, Option<u64>)],
    put: &[(usize, u8)],
    delete: &[usize],
) -> Txn {
    let compare = compare.iter().map(|(key, back)| match back {
        None => Compare::Absent(KEYS[*key].into()),
        Some(3) => Compare::Present(KEYS[*key].into()),
        // Mostly the present revision of the key, so that it often holds.
        Some(back) => {
            let present = model
                .state()
                .get(KEYS[*key])
                .map_or(0, |kv| kv.mod_revision.0);
            Compare::ModRevision(
                KEYS[*key].into(),
                Revision(present.saturating_sub(back / 2)),
            )
        }
    });
    let puts = put.iter().map(|(key, value)| Op::Put {
        key: KEYS[*key].into(),
        value: vec![*value; 5].into(),
    });
    let deletes = delete.iter().map(|key| Op::Delete {
        key: KEYS[*key].into(),
    });
    Txn {
        compare: compare.collect(),
        ops: puts.chain(deletes).collect(),
        ..Txn::default()
    }
}

async fn check_range(store: &dyn Backend, model: &Model, request: RangeRequest) {
    let at = request.at.map_or(model.revision(), |at| at.0);
    let found = store.range(request.clone()).await;
    if at < model.compacted {
        assert!(
            matches!(found, Err(StoreError::Compacted { .. })),
            "{found:?}"
        );
        return;
    }
    let all: Vec<KeyValue> = model
        .at(at)
        .values()
        .filter(|kv| request.covers(&kv.key))
        .cloned()
        .collect();
    let limit = request.limit.unwrap_or(usize::MAX).min(all.len());
    let found = found.unwrap();
    assert_eq!(
        (found.items, found.remaining),
        (all[..limit].to_vec(), all.len() - limit)
    );
    assert_eq!(found.revision, Revision(at));
}

async fn check_watch(store: &dyn Backend, model: &Model, prefix: &str, from: u64) {
    let mut stream = match store.watch(prefix, Revision(from)).await {
        Ok(stream) => stream,
        Err(StoreError::Compacted { .. }) => return assert!(from < model.compacted),
        Err(error) => panic!("{error:?}"),
    };
    assert!(from >= model.compacted);
    let (mut seen, mut events) = (from, Vec::new());
    while seen < model.revision() {
        let EventBatch {
            revision,
            events: more,
        } = stream.next().await.unwrap().unwrap();
        seen = revision.0;
        events.extend(more);
    }
    for revision in from + 1..=model.revision() {
        let mut found: Vec<_> = events
            .iter()
            .filter(|event| event.kv.mod_revision.0 == revision)
            .map(|event| {
                (
                    event.kv.key.to_string(),
                    (!event.deleted).then(|| event.kv.clone()),
                )
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            found,
            model.changes(revision, prefix),
            "revision {revision}"
        );
    }
}

async fn follow(steps: &[Step], open: &dyn Fn() -> Arc<dyn Backend>, durable: bool) {
    let mut store = open();
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Txn {
                compare,
                put,
                delete,
            } => {
                let txn = txn_of(&model, compare, put, delete);
                match store.txn(txn.clone()).await {
                    Ok(outcome) => assert_eq!(outcome, model.txn(&txn)),
                    Err(error) => assert!(txn.check().is_err(), "{error:?}"),
                }
            }
            Step::Range {
                prefix,
                start,
                limit,
                back,
            } => {
                let at = back.map(|back| Revision(model.revision().saturating_sub(back)));
                let start = start.map(|key| KEYS[key].to_owned());
                let request = RangeRequest {
                    prefix: PREFIXES[*prefix].to_owned(),
                    start,
                    limit: *limit,
                    at,
                };
                check_range(&*store, &model, request).await;
            }
            Step::Watch { prefix, back } => {
                let from = model.revision().saturating_sub(*back);
                check_watch(&*store, &model, PREFIXES[*prefix], from).await;
            }
            Step::Compact { back } => {
                let to = model.revision().saturating_sub(*back);
                store.compact(Revision(to)).await.unwrap();
                model.compacted = model.compacted.max(to);
            }
            Step::Reopen if durable => {
                drop(store);
                store = open();
            }
            Step::Reopen => {}
        }
        assert_eq!(store.current_revision().await.unwrap().0, model.revision());
        for key in KEYS {
            assert_eq!(
                store.get(key).await.unwrap().as_ref(),
                model.state().get(key)
            );
        }
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future);
}

/// Found failures are kept beside this file and tried first.
fn config() -> ProptestConfig {
    let kept = FileFailurePersistence::Direct("tests/model.regressions");
    ProptestConfig {
        cases: 64,
        failure_persistence: Some(Box::new(kept)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn memory_engine_agrees_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        block_on(follow(&steps, &|| Arc::new(MemoryBackend::new()), false));
    }

    #[test]
    fn sqlite_engine_agrees_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        block_on(follow(&steps, &|| Arc::new(SqliteBackend::open(dir.path()).unwrap()), true));
    }
}
