//! What requests may take at once: seats, bytes of bodies, cores for what is large. Nobody takes
//! what belongs to others.
//!
//! | share | whose | full |
//! |---|---|---|
//! | `nodes` | Leases and status of nodes, before everything else | 429 |
//! | `parts` | controllers, scheduler and whatever else calls from this process | waits |
//! | `masters` | `system:masters` | 429 |
//! | `read_only`, `mutating` | everybody else; one identity a quarter at most | 429 |
//! | `slow` | what has had a place for a second, as it waits for a webhook or a converter, of everybody else; one identity a quarter at most | it keeps its place |
//! | `lasting` | watches, logs, streams of everybody else; one identity a quarter at most | 429 |
//! | `reading` | bodies on their way of everybody else; one identity a quarter at most | 429 |
//! | `copies` | bytes of lists that are read from the store, until they have been sent, of everybody else; one identity a quarter at most | 429 |
//! | `lines` | bytes of long lines that clients have not taken, of everybody else; one identity a quarter at most | the watch ends |
//! | `waiting` | reads of revisions that are not there yet; one identity a quarter at most | 429 |
//!
//! A seat is taken when the body of the request has been read, and kept until the last byte of the
//! answer has gone. Health checks take none.
//!
//! Not here: connections of nobody in particular (`serve`), and queues with fairness as FlowSchemas
//! would ask for.

mod large;
mod share;
mod turns;

use std::{
    hash::{BuildHasher as _, RandomState},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use coracle_api::{meta::NODE_LEASE_NAMESPACE, status::Status};
use coracle_auth::user::{GROUP_MASTERS, GROUP_NODES, UserInfo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use self::share::FlowLocks;
pub(crate) use self::turns::Turns;
pub(crate) use self::{
    share::{Flow, Permit, Share},
    turns::Working,
};
use crate::{
    request_info::{RequestInfo, ResourceRequest, Verb},
    slow::{Step, Timing},
};

/// Most bytes of a request body, and of what a patch makes.
///
/// Source: `k8s.io/apiserver/pkg/server/config.go`, `MaxRequestBodyBytes`.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// For who is told to come back.
pub(crate) const RETRY_SECS: u32 = 1;
/// Requests of nodes about their Leases and status, at once, and of one node.
const NODES: usize = 400;
const OF_A_NODE: usize = 8;
/// Calls from this process at once, enough for the store's group commit. More wait in line, and
/// none passes another: a controller that makes thousands of objects keeps the scheduler waiting
/// for those before it alone.
const PARTS: usize = 192;
/// How long a call from this process waits.
const PARTS_WAIT: Duration = Duration::from_secs(30);
const LASTING: usize = 16_384;
/// Requests that take long, at once. What holds memory of them, their bodies, is counted apart.
const SLOW: usize = 800;
const WAITING: usize = 200;
/// Bytes of lines that are longer than a piece and made for one watch, as those of tables are.
const LINES: usize = 48 << 20;
/// Bytes of objects that lists have for themselves, as the cache has forgotten them.
const COPIES: usize = 64 << 20;
/// Bodies that are on their way at once.
const READING: usize = 4096;
/// Bytes of request bodies held at once, and those of `system:masters`.
const BODY_BYTES: usize = 96 << 20;
/// Tokens looked at at once that were not seen lately; some more wait.
const AUTHENTICATIONS: usize = 64;
const AUTHENTICATIONS_WAITING: usize = 1024;
const AUTHENTICATION_WAIT: Duration = Duration::from_secs(10);
/// What is so large is worked on beside the runtime's threads.
pub(crate) const LARGE: usize = 32 * 1024;
/// Bytes of large requests that wait for a core or have one, of everybody together.
const LARGE_BYTES: usize = 24 << 20;
/// How long that waits for a core.
const LARGE_WAIT: Duration = Duration::from_secs(30);
/// Bodies that nobody wants, read to their end at once.
const UNWANTED: usize = 64;

/// What a server's requests may take together.
pub(crate) struct Limits {
    nodes: Arc<Share>,
    parts: Arc<Semaphore>,
    masters: Arc<Share>,
    read_only: Arc<Share>,
    mutating: Arc<Share>,
    slow: Arc<Share>,
    /// Of administrators and the parts of this process.
    slow_of_ours: Arc<Share>,
    lasting: Arc<Share>,
    lines: Arc<Share>,
    copies: Arc<Share>,
    copies_of_masters: Arc<Share>,
    reading: Arc<Share>,
    waiting: Arc<Share>,
    bytes: Arc<Share>,
    bytes_of_masters: Arc<Share>,
    connections: Arc<Share>,
    authentications: Semaphore,
    strangers: Arc<Share>,
    large: Arc<Semaphore>,
    /// One large request of an identity at a time: the line for a core has as many in it as there
    /// are identities.
    one_large: FlowLocks,
    /// And one piece of an answer under way.
    one_piece: Arc<FlowLocks>,
    /// Of administrators and the parts of this process.
    large_of_ours: Arc<Semaphore>,
    large_bytes: Arc<Share>,
    pub(crate) unwanted: Semaphore,
    /// Nobody can choose whom to share a flow with.
    hasher: RandomState,
}

/// Who asks, as far as limits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) flow: Flow,
    rank: Rank,
    is_node: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// A part of this process.
    Part,
    Master,
    Other,
}

/// A seat, given back when it is dropped.
#[derive(Debug)]
pub(crate) enum Seat {
    Share { _permit: Permit },
    Part { _permit: OwnedSemaphorePermit },
}

impl Limits {
    /// `requests`: of everybody who has no share of their own.
    pub(crate) fn new(requests: usize, connections: usize) -> Self {
        let quarter = |most: usize| Arc::new(Share::new(most, most.div_ceil(4)));
        let whole = |most: usize| Arc::new(Share::new(most, most));
        let read_only = requests - requests / 3;
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            nodes: Arc::new(Share::new(NODES, OF_A_NODE)),
            parts: Arc::new(Semaphore::new(PARTS)),
            masters: whole(requests),
            read_only: quarter(read_only),
            mutating: quarter(requests / 3),
            slow: quarter(SLOW),
            slow_of_ours: whole(SLOW),
            lasting: quarter(LASTING),
            lines: quarter(LINES),
            copies: quarter(COPIES),
            copies_of_masters: whole(COPIES),
            reading: quarter(READING),
            waiting: quarter(WAITING),
            bytes: quarter(BODY_BYTES),
            bytes_of_masters: whole(BODY_BYTES),
            connections: quarter(connections),
            authentications: Semaphore::new(AUTHENTICATIONS),
            strangers: whole(AUTHENTICATIONS_WAITING),
            large: Arc::new(Semaphore::new(cores.saturating_sub(1).max(1))),
            one_large: FlowLocks::new(),
            one_piece: Arc::new(FlowLocks::new()),
            large_of_ours: Arc::new(Semaphore::new(1)),
            large_bytes: quarter(LARGE_BYTES),
            unwanted: Semaphore::new(UNWANTED),
            hasher: RandomState::new(),
        }
    }

    /// Where `user` stands. Accounts of one namespace share a flow: whoever may make one may make a
    /// thousand. Those of `kube-system` have one each.
    pub(crate) fn requester(&self, user: &UserInfo, is_part: bool) -> Requester {
        let who = match UserInfo::service_account_of(&user.name) {
            Some((namespace, _)) if namespace != "kube-system" => namespace,
            _ => &user.name,
        };
        let rank = match (is_part, user.is_in(GROUP_MASTERS)) {
            (true, _) => Rank::Part,
            (false, true) => Rank::Master,
            (false, false) => Rank::Other,
        };
        Requester {
            flow: Flow::of(self.hasher.hash_one(who)),
            rank,
            is_node: user.is_in(GROUP_NODES),
        }
    }

    /// A seat for a request.
    ///
    /// # Errors
    /// 429 when the share is taken.
    pub(crate) async fn seat(
        &self,
        requester: Requester,
        request: &RequestInfo<'_>,
        reads: bool,
    ) -> Result<Seat, Status> {
        let _timing = Timing::of(Step::Queue);
        let share = match request {
            RequestInfo::Resource(info) if requester.is_node && is_heartbeat(info) => &self.nodes,
            _ if requester.rank == Rank::Part => {
                let permit = Arc::clone(&self.parts).acquire_owned();
                return match tokio::time::timeout(PARTS_WAIT, permit).await {
                    Ok(Ok(permit)) => Ok(Seat::Part { _permit: permit }),
                    _ => Err(too_many()),
                };
            }
            _ if requester.rank == Rank::Master => &self.masters,
            _ if reads => &self.read_only,
            _ => &self.mutating,
        };
        share
            .take(requester.flow, 1)
            .map(|permit| Seat::Share { _permit: permit })
            .ok_or_else(too_many)
    }

    /// A seat for a request that takes longer than those for whom there are seats; `None` if none
    /// is left: it keeps what it has.
    pub(crate) fn slow_seat(&self, requester: Requester) -> Option<Seat> {
        let share = match requester.rank {
            Rank::Other => &self.slow,
            Rank::Part | Rank::Master => &self.slow_of_ours,
        };
        let permit = share.take(requester.flow, 1)?;
        Some(Seat::Share { _permit: permit })
    }

    /// A seat for a request that may last; `None` for those who are not bounded.
    ///
    /// # Errors
    /// 429 when the share is taken.
    pub(crate) fn lasting_seat(&self, requester: Requester) -> Result<Option<Seat>, Status> {
        if requester.rank != Rank::Other {
            return Ok(None);
        }
        let permit = self.lasting.take(requester.flow, 1).ok_or_else(too_many)?;
        Ok(Some(Seat::Share { _permit: permit }))
    }

    /// Long lines of a watch, counted until they have been sent.
    ///
    /// # Errors
    /// 429 when the same client has taken too little of what was sent: its watch ends, and resumes
    /// where it was.
    pub(crate) fn long_lines(&self, requester: Requester, lines: Vec<u8>) -> Result<Bytes, Status> {
        if requester.rank != Rank::Other {
            return Ok(lines.into());
        }
        let permit = self.lines.take(requester.flow, lines.len());
        Ok(permit.ok_or_else(too_many)?.kept_with(lines))
    }

    /// Room for so many bytes of a list that is nobody else's; `None` for those who are not
    /// bounded.
    ///
    /// # Errors
    /// 429 when the same client has taken too little of what it asked for before.
    pub(crate) fn copy(
        &self,
        requester: Requester,
        bytes: usize,
    ) -> Result<Option<Permit>, Status> {
        let share = match requester.rank {
            Rank::Part => return Ok(None),
            Rank::Master => &self.copies_of_masters,
            Rank::Other => &self.copies,
        };
        let permit = share.take(requester.flow, bytes).ok_or_else(too_many)?;
        Ok(Some(permit))
    }

    /// Leave to send a body; `None` for those who are not bounded.
    ///
    /// # Errors
    /// 429 when too many are on their way.
    pub(crate) fn reading_seat(&self, requester: Requester) -> Result<Option<Seat>, Status> {
        if requester.rank != Rank::Other {
            return Ok(None);
        }
        let permit = self.reading.take(requester.flow, 1).ok_or_else(too_many)?;
        Ok(Some(Seat::Share { _permit: permit }))
    }

    /// Leave to wait for what is not there yet.
    ///
    /// # Errors
    /// 429 when too many wait.
    pub(crate) fn waiting_seat(&self, requester: Requester) -> Result<Option<Seat>, Status> {
        if requester.rank == Rank::Part {
            return Ok(None);
        }
        let permit = self.waiting.take(requester.flow, 1).ok_or_else(too_many)?;
        Ok(Some(Seat::Share { _permit: permit }))
    }

    /// Room for a body, none taken yet; `None` for those who are not bounded.
    pub(crate) fn room(&self, requester: Requester) -> Option<Permit> {
        match requester.rank {
            Rank::Part => None,
            Rank::Master => self.bytes_of_masters.take(requester.flow, 0),
            Rank::Other => self.bytes.take(requester.flow, 0),
        }
    }

    /// A seat for a connection whose client has said who it is; `None` for those who are not
    /// bounded.
    ///
    /// # Errors
    /// 429 when it has too many.
    pub(crate) fn connection(&self, requester: Requester) -> Result<Option<Permit>, Status> {
        if requester.rank != Rank::Other {
            return Ok(None);
        }
        self.connections
            .take(requester.flow, 1)
            .map(Some)
            .ok_or_else(too_many)
    }

    /// Leave to look at credentials that were not seen lately.
    ///
    /// # Errors
    /// 429 after a while, or when too many wait.
    pub(crate) async fn authentication(&self) -> Result<SemaphorePermit<'_>, Status> {
        let _waiting = self.strangers.take(Flow::of(0), 1).ok_or_else(too_many)?;
        match tokio::time::timeout(AUTHENTICATION_WAIT, self.authentications.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(too_many()),
        }
    }
}

pub(crate) fn too_many() -> Status {
    Status::too_many_requests(RETRY_SECS)
}

/// What a node must get through with, or it is taken for dead.
fn is_heartbeat(info: &ResourceRequest<'_>) -> bool {
    match (info.group, info.resource) {
        ("coordination.k8s.io", "leases") => {
            info.namespace == NODE_LEASE_NAMESPACE && !info.name.is_empty()
        }
        ("", "nodes") => {
            let is_status = info.subresource == "status";
            (is_status || info.subresource.is_empty())
                && matches!(info.verb, Verb::Get | Verb::Update | Verb::Patch)
                && !info.name.is_empty()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
