//! etcd's members: which of them is used, with a deadline for every call.
//!
//! One member is used until it fails: then the next one is, and watches that run on the old one end
//! so that they go on there. A member is looked at before its first use: of another etcd, or too
//! old, it is not used.

use std::{collections::BTreeSet, future::Future, sync::OnceLock, time::Duration};

use coracle_telemetry::{Backoff, ErrorChain};
use etcd_client::{Client, ConnectOptions, KvClient, MaintenanceClient, WatchClient};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    config::EtcdTls,
    error::{CallError, Cause, OpenError},
    version::{OLDEST, Version},
};

/// How long a call may take with all its tries. etcd itself gives up after 7 s.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long one member gets to answer a read, while there are others.
const READ: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);
/// Members refuse clients that ask more often than every 5 s (`--grpc-keepalive-min-time`).
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(4));
/// Pauses between rounds over all members.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Whether a call may be carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A second time changes nothing.
    Harmless,
    /// Only if the first was certainly not carried out.
    IfUnsent,
}

/// All members of one etcd.
pub(crate) struct Members {
    all: Vec<Member>,
    /// Which one is used.
    current: watch::Sender<usize>,
    /// What they all belong to: of the first one that answered.
    cluster: OnceLock<u64>,
}

/// One member.
pub(crate) struct Member {
    pub(crate) url: String,
    /// It is shown no certificate, although there could be one.
    is_anonymous: bool,
    pub(crate) kv: KvClient,
    pub(crate) watch: WatchClient,
    maintenance: MaintenanceClient,
    /// Once it was looked at and found good.
    version: OnceLock<Version>,
    /// Whatever its version is.
    #[cfg(feature = "testing")]
    is_believed: std::sync::atomic::AtomicBool,
}

/// What a member says of itself.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) cluster: u64,
    pub(crate) is_leader: bool,
    pub(crate) size_bytes: u64,
    pub(crate) alarms: Vec<String>,
}

impl Members {
    /// Connects lazily: no member need be there.
    pub(crate) async fn new(urls: &[String], tls: &EtcdTls) -> Result<Self, OpenError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            // Members refuse that, too.
            .with_keep_alive_while_idle(false)
            .with_require_leader(true);
        let is_anonymous = tls.cert.is_none();
        if let Some(tls) = tls.read()? {
            options = options.with_tls(tls);
        }
        let mut all = Vec::with_capacity(urls.len());
        for url in urls {
            let url = url.trim_end_matches('/').to_owned();
            let client = Client::connect([&url], Some(options.clone()))
                .await
                .map_err(|error| CallError::new(&url, Cause::Failed(error.to_string())))?;
            all.push(Member {
                is_anonymous: is_anonymous && url.starts_with("https:"),
                url,
                // What etcd sends has its own bounds: a page of large objects, 1,000 revisions.
                kv: client.kv_client().max_decoding_message_size(usize::MAX),
                watch: client.watch_client().max_decoding_message_size(usize::MAX),
                maintenance: client.maintenance_client(),
                version: OnceLock::new(),
                #[cfg(feature = "testing")]
                is_believed: false.into(),
            });
        }
        Ok(Self {
            all,
            current: watch::Sender::new(0),
            cluster: OnceLock::new(),
        })
    }

    /// Takes every member's word on how far it is.
    #[cfg(feature = "testing")]
    pub(crate) fn believe(&self) {
        for member in &self.all {
            member
                .is_believed
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(crate) fn all(&self) -> &[Member] {
        &self.all
    }

    /// The etcd they belong to, as far as one has answered.
    pub(crate) fn cluster(&self) -> Option<u64> {
        self.cluster.get().copied()
    }

    /// Says when another member is used than this one.
    pub(crate) fn moves(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// Carries out `call` on the member that is used; on others if that fails and it may be
    /// repeated.
    pub(crate) async fn call<T, F>(
        &self,
        repeat: Repeat,
        call: impl Fn(&Member) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        Ok(self.call_one(repeat, call).await?.1)
    }

    /// The same, and the number of the member that answered.
    pub(crate) async fn call_one<T, F>(
        &self,
        repeat: Repeat,
        call: impl Fn(&Member) -> F,
    ) -> Result<(usize, T), CallError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut tries = Tries::new(self, repeat);
        loop {
            let (number, patience) = tries.next().await?;
            let member = &self.all[number];
            match member.answer(patience, call(member)).await {
                Ok(answer) => return Ok((number, answer)),
                Err(error) => tries.failed(number, error).await?,
            }
        }
    }

    /// Uses the next member, unless somebody else has left this one already.
    pub(crate) fn leave(&self, number: usize, why: &CallError) {
        let next = (number + 1) % self.all.len();
        let is_left = self.current.send_if_modified(|current| {
            let is_mine = *current == number && next != number;
            if is_mine {
                *current = next;
            }
            is_mine
        });
        if is_left {
            tracing::warn!(error = %ErrorChain(why), next = self.all[next].url, "using another member of etcd");
        }
    }

    /// The version of a member that can be used.
    pub(crate) async fn look_at(
        &self,
        member: &Member,
        patience: Duration,
    ) -> Result<Version, CallError> {
        if let Some(version) = member.version.get() {
            return Ok(*version);
        }
        let about = member.about(patience).await?;
        let wrong = |cause| Err(CallError::new(&member.url, cause));
        if *self.cluster.get_or_init(|| about.cluster) != about.cluster {
            return wrong(Cause::OtherCluster);
        }
        let version = Version::parse(&about.version).filter(|version| *version >= OLDEST);
        let Some(version) = version else {
            return wrong(Cause::TooOld(about.version));
        };
        Ok(*member.version.get_or_init(|| version))
    }
}

impl Member {
    /// What it says of itself, and the alarms that it knows of. None of it needs the others.
    pub(crate) async fn about(&self, patience: Duration) -> Result<About, CallError> {
        let mut maintenance = self.maintenance.clone();
        let status = self.answer(patience, maintenance.status()).await?;
        let header = status.header();
        Ok(About {
            version: status.version().to_owned(),
            cluster: header.map_or(0, etcd_client::ResponseHeader::cluster_id),
            is_leader: header.is_some_and(|header| header.member_id() == status.leader()),
            size_bytes: u64::try_from(status.db_size()).unwrap_or_default(),
            alarms: alarms(status.errors()),
        })
    }

    /// Whether its word on how far it is can be taken.
    pub(crate) fn tells_progress(&self) -> bool {
        #[cfg(feature = "testing")]
        if self.is_believed.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        self.version
            .get()
            .is_some_and(|version| version.tells_progress())
    }

    async fn answer<T>(
        &self,
        patience: Duration,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, CallError> {
        match timeout(patience, call).await {
            Ok(answered) => answered.map_err(|error| {
                let error = CallError::of(&self.url, &error);
                if self.is_anonymous {
                    error.of_nobody()
                } else {
                    error
                }
            }),
            Err(_) => Err(CallError::new(&self.url, Cause::Silent(patience))),
        }
    }
}

/// Of what a member says is wrong, such as `memberID:10276657743932975437 alarm:NOSPACE `.
fn alarms(errors: &[String]) -> Vec<String> {
    let words = errors.iter().flat_map(|error| error.split_whitespace());
    let alarms = words.filter_map(|word| word.strip_prefix("alarm:"));
    let alarms: BTreeSet<&str> = alarms.collect();
    alarms.into_iter().map(str::to_owned).collect()
}

/// The tries of one call.
struct Tries<'a> {
    members: &'a Members,
    repeat: Repeat,
    deadline: Instant,
    retry: Backoff,
    count: usize,
}

impl<'a> Tries<'a> {
    fn new(members: &'a Members, repeat: Repeat) -> Self {
        Self {
            members,
            repeat,
            deadline: Instant::now() + DEADLINE,
            retry: RETRY,
            count: 0,
        }
    }

    /// A member that can be used, and how long it may take.
    async fn next(&mut self) -> Result<(usize, Duration), CallError> {
        loop {
            let number = *self.members.current.borrow();
            let member = &self.members.all[number];
            let left = self.deadline.saturating_duration_since(Instant::now());
            let error = match self.members.look_at(member, READ.min(left)).await {
                Ok(_) if self.repeat == Repeat::Harmless && self.members.all.len() > 1 => {
                    return Ok((number, READ.min(left)));
                }
                Ok(_) => return Ok((number, left)),
                // The call itself was not sent.
                Err(error) => error.before_the_call(),
            };
            self.failed(number, error).await?;
        }
    }

    /// Turns to the next member; after all of them, with a pause.
    ///
    /// # Errors
    /// The one given, if there is no point in another try, or no time for it.
    async fn failed(&mut self, number: usize, error: CallError) -> Result<(), CallError> {
        if !error.cause().may_pass() {
            return Err(error);
        }
        self.members.leave(number, &error);
        self.count += 1;
        let may_repeat = self.repeat == Repeat::Harmless || error.cause().is_unsent();
        if !may_repeat {
            return Err(error);
        }
        let is_round = self.count.is_multiple_of(self.members.all.len());
        if is_round && error.cause().is_lasting() {
            return Err(error);
        }
        let pause = if is_round {
            self.retry.pause()
        } else {
            Duration::ZERO
        };
        if Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_told_once_each() {
        let errors = [
            "etcdserver: no leader",
            "memberID:10276657743932975437 alarm:NOSPACE ",
            "memberID:10501334649042878790 alarm:NOSPACE ",
            "memberID:10276657743932975437 alarm:CORRUPT ",
        ]
        .map(str::to_owned);
        assert_eq!(alarms(&errors), ["CORRUPT", "NOSPACE"]);
        assert_eq!(alarms(&[]), [""; 0]);
    }
}
