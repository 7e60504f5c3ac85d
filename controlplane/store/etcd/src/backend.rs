//! [`EtcdBackend`]: the store's promises, kept by etcd.

mod full;

use std::{fs::File, sync::Arc, time::Duration};

use coracle_store::{
    Backend, KeyValue, RangeRequest, RangeResponse, Revision, StoreError, Txn, TxnOutcome,
    WatchStream,
};
use coracle_telemetry::ErrorChain;
use etcd_client::GetOptions;
use parking_lot::Mutex;

use crate::{
    back::Highest,
    config::EtcdConfig,
    error::{CallError, Cause, OpenError, read_failed, write_failed},
    follow::{Follower, Followers, Need},
    keys::Keys,
    members::{Members, Repeat},
    record::{self, Record},
    request,
    revision::Coalesced,
    watch::{self, Following},
};

/// Before anything is done for a watch that is behind: mostly the event is on its way.
const GRACE: Duration = Duration::from_millis(10);
/// Between one thing that is done and the next.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a compaction waits for our own watches. They need what is before a deletion.
const BEFORE_COMPACTION: Duration = Duration::from_secs(1);

/// The engine on etcd. Cloning is not offered: share it behind an `Arc`.
pub struct EtcdBackend {
    keys: Keys,
    members: Arc<Members>,
    followers: Followers,
    newest: Coalesced<Result<Revision, CallError>>,
    writing: Coalesced<()>,
    highest: Arc<Highest>,
    /// What the last transaction failed with.
    failure: Mutex<Option<String>>,
    /// The record of a copy that is under way.
    copying: Option<Record>,
}

impl EtcdBackend {
    /// Connects, and sees that what is under the prefix is the data of `owner` (a fingerprint of
    /// what all servers of a cluster share) or nothing. Waits up to 10 s for a member that can be
    /// used.
    ///
    /// # Errors
    /// One sentence about what is in the way. Nothing was changed then.
    pub async fn open(config: &EtcdConfig, owner: &str) -> Result<Self, OpenError> {
        config.validate()?;
        let mut backend = Self::connected(config).await?;
        let record = record::claim(&backend.keys, &config.prefix, &backend.members, owner).await?;
        backend.keys = backend.keys.counted_from(Revision(record.past));
        Ok(backend)
    }

    /// As [`EtcdBackend::open`], and takes every member's word on how far it is, whatever its
    /// version is.
    ///
    /// # Errors
    /// As [`EtcdBackend::open`].
    #[cfg(feature = "testing")]
    pub async fn open_believing(config: &EtcdConfig, owner: &str) -> Result<Self, OpenError> {
        let backend = Self::open(config, owner).await?;
        backend.members.believe();
        Ok(backend)
    }

    /// Connects to look at what is under the prefix, whosever it is. Its revisions are etcd's.
    ///
    /// # Errors
    /// [`OpenError::Config`] for flags that cannot work.
    pub async fn reading(config: &EtcdConfig) -> Result<Self, OpenError> {
        config.validate()?;
        Self::connected(config).await
    }

    /// Connects to fill an empty prefix with what another store holds. Revisions go on after
    /// `past`, its last one. Until [`EtcdBackend::finish_copy`] nobody can open it.
    ///
    /// # Errors
    /// As [`EtcdBackend::open`]; [`OpenError::NotEmpty`].
    pub async fn begin_copy(
        config: &EtcdConfig,
        owner: &str,
        past: Revision,
    ) -> Result<Self, OpenError> {
        config.validate()?;
        let mut backend = Self::connected(config).await?;
        // Whose etcd it is, is part of the record.
        backend.newest().await?;
        let record = Record {
            past: past.0,
            is_copying: true,
            ..Record::new(&backend.members, owner)
        };
        record::begin_copy(&backend.keys, &config.prefix, &backend.members, &record).await?;
        backend.keys = backend.keys.counted_from(past);
        backend.copying = Some(record);
        Ok(backend)
    }

    /// Says that the copy is whole.
    ///
    /// # Errors
    /// If etcd does not answer: the copy has to be made again.
    pub async fn finish_copy(&self) -> Result<(), OpenError> {
        if let Some(copying) = &self.copying {
            let whole = Record {
                is_copying: false,
                ..copying.clone()
            };
            record::write(&self.keys, &self.members, &whole, Some(copying)).await?;
        }
        Ok(())
    }

    async fn connected(config: &EtcdConfig) -> Result<Self, OpenError> {
        let members = Members::new(&config.endpoints, &config.tls).await?;
        Ok(Self {
            keys: Keys::under(&config.prefix),
            members: Arc::new(members),
            followers: Followers::default(),
            newest: Coalesced::default(),
            writing: Coalesced::default(),
            highest: Arc::default(),
            failure: Mutex::default(),
            copying: None,
        })
    }

    async fn newest(&self) -> Result<Revision, CallError> {
        let (members, keys) = (Arc::clone(&self.members), self.keys.clone());
        let highest = Arc::clone(&self.highest);
        self.newest
            .ask(move || async move {
                let known = highest.known();
                // Linearizable: the member asks the others how far they are.
                let key = keys.record();
                let response = members
                    .call(Repeat::Harmless, |member| {
                        let (mut kv, key) = (member.kv.clone(), key.clone());
                        let options = GetOptions::new().with_count_only();
                        async move { kv.get(key, Some(options)).await }
                    })
                    .await?;
                let header = response.header();
                let newest = keys.revision(header.map_or(0, etcd_client::ResponseHeader::revision));
                highest.judge(known, newest);
                Ok(newest)
            })
            .await
    }

    /// Makes an event under the prefix.
    async fn write_progress(&self) {
        let (members, key) = (Arc::clone(&self.members), self.keys.progress());
        self.writing
            .ask(move || async move {
                let written = members
                    .call(Repeat::Harmless, |member| {
                        let (mut kv, key) = (member.kv.clone(), key.clone());
                        async move { kv.put(key, "", None).await }
                    })
                    .await;
                if let Err(error) = written {
                    tracing::debug!(error = %ErrorChain(&error), "could not bring the watches on");
                }
            })
            .await;
    }

    /// What the store says of a revision that etcd does not serve.
    async fn cannot_serve(&self, asked: Revision, error: CallError) -> StoreError {
        match error.cause() {
            Cause::Compacted => match self.oldest(asked).await {
                Ok(oldest) => StoreError::Compacted { asked, oldest },
                Err(error) => read_failed(error),
            },
            Cause::Future => match self.newest().await {
                Ok(current) => StoreError::Future { asked, current },
                Err(error) => read_failed(error),
            },
            _ => read_failed(error),
        }
    }

    /// The oldest revision there is, after `asked` was found to be none: only a watch is told.
    async fn oldest(&self, asked: Revision) -> Result<Revision, CallError> {
        let opened = watch::open(&self.keys, &self.members, self.keys.asked(asked)).await?;
        Ok(opened
            .oldest(&self.keys)
            .await
            .unwrap_or(Revision(asked.0 + 1)))
    }

    /// Whether the state at `at` can be served.
    async fn check(&self, at: Revision) -> Result<(), StoreError> {
        let key = self.keys.record();
        let checked = self
            .members
            .call(Repeat::Harmless, |member| {
                let (mut kv, key) = (member.kv.clone(), key.clone());
                let options = GetOptions::new()
                    .with_count_only()
                    .with_revision(self.keys.asked(at));
                async move { kv.get(key, Some(options)).await }
            })
            .await;
        match checked {
            Ok(_) => Ok(()),
            Err(error) => Err(self.cannot_serve(at, error).await),
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Engine {
        what: "read etcd's answer".to_owned(),
        source: "it lacks what every answer has".into(),
    }
}

#[async_trait::async_trait]
impl Backend for EtcdBackend {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        txn.check()?;
        if self.highest.gone_back().is_some() {
            return Err(StoreError::Closed);
        }
        let known = self.highest.known();
        let answer = self
            .members
            .call(Repeat::IfUnsent, |member| {
                let (mut kv, request) = (member.kv.clone(), request::txn(&self.keys, &txn));
                async move { kv.txn(request).await }
            })
            .await;
        let answer = match answer {
            Err(error) if *error.cause() == Cause::Full => {
                *self.failure.lock() = None;
                return self.without_room(&txn, known, error).await;
            }
            answer => answer.map_err(write_failed),
        };
        let failure = answer.as_ref().err().and_then(|error| match error {
            StoreError::Unavailable { .. } | StoreError::Unsure { .. } => {
                Some(ErrorChain(error).to_string())
            }
            _ => None,
        });
        *self.failure.lock() = failure;
        let answer = answer?;
        if let Some(header) = answer.header() {
            self.highest
                .judge(known, self.keys.revision(header.revision()));
        }
        request::outcome(&self.keys, &answer).ok_or_else(no_answer)
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let key = self.keys.full(key);
        let mut response = self
            .members
            .call(Repeat::Harmless, |member| {
                let (mut kv, key) = (member.kv.clone(), key.clone());
                async move { kv.get(key, None).await }
            })
            .await
            .map_err(read_failed)?;
        let found = response.take_kvs().into_iter().next();
        Ok(found.and_then(|kv| self.keys.entry(kv)))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        let (first, options) = request::range(&self.keys, &request);
        let answer = self
            .members
            .call(Repeat::Harmless, |member| {
                let (mut kv, first) = (member.kv.clone(), first.clone());
                let options = options.clone();
                async move { kv.get(first, Some(options)).await }
            })
            .await;
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                let asked = request.at.unwrap_or_default();
                return Err(self.cannot_serve(asked, error).await);
            }
        };
        let newest = response.header().ok_or_else(no_answer)?.revision();
        let kvs = response.take_kvs();
        let count = usize::try_from(response.count()).unwrap_or_default();
        Ok(RangeResponse {
            remaining: count.saturating_sub(kvs.len()),
            revision: request.at.unwrap_or_else(|| self.keys.revision(newest)),
            items: kvs
                .into_iter()
                .filter_map(|kv| self.keys.entry(kv))
                .collect(),
        })
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        let current = self.current_revision().await?;
        if from > current {
            return Err(StoreError::Future {
                asked: from,
                current,
            });
        }
        // A compaction to the very revision where a watch of the past begins takes the deletions
        // there: etcd says nothing. So such a watch begins one before, which it does say.
        let start = match from == current {
            true => self.keys.asked(Revision(from.0 + 1)),
            false => self.keys.asked(from),
        };
        let opened = watch::open(&self.keys, &self.members, start)
            .await
            .map_err(read_failed)?;
        if from < current {
            self.check(from).await?;
        }
        let follower = Follower::new(from, opened.tells_progress(&self.members));
        self.followers.add(&follower);
        let following = Following {
            keys: self.keys.clone(),
            members: Arc::clone(&self.members),
            follower,
            prefix: prefix.to_owned(),
            from,
            history: current.max(opened.revision),
        };
        Ok(following.stream(opened))
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.followers.wait(to, BEFORE_COMPACTION).await;
        let of_etcd = self.keys.of_etcd(to);
        let compacted = self
            .members
            .call(Repeat::Harmless, |member| {
                let mut kv = member.kv.clone();
                async move { kv.compact(of_etcd, None).await }
            })
            .await;
        match compacted {
            Ok(_) => Ok(()),
            // By somebody else, or before.
            Err(error) if *error.cause() == Cause::Compacted => Ok(()),
            Err(error) => Err(self.cannot_serve(to, error).await),
        }
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.newest().await.map_err(read_failed)
    }

    async fn hasten(&self, revision: Revision) {
        tokio::time::sleep(GRACE).await;
        loop {
            if self.followers.ask(revision) == Need::Write {
                self.write_progress().await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn backup(&self) -> Result<File, StoreError> {
        Err(StoreError::NoBackup {
            advice: "its objects are in etcd: back up with `etcdctl snapshot save`",
        })
    }

    fn failure(&self) -> Option<String> {
        let gone_back = self.highest.gone_back().map(|back| back.to_string());
        gone_back.or_else(|| self.failure.lock().clone())
    }

    async fn closed(&self) {
        self.highest.has_gone_back().await;
    }
}
