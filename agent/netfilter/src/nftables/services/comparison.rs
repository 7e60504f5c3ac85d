//! The kernel's table beside what it should be: takes a predecessor's over, repairs what others
//! changed, sets aside what the kernel refuses.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    super::{
        kernel::{self, CommitError},
        transition::transition,
    },
    Services,
    elements::ServiceElements,
    error::NftablesError,
    parts::name,
};
use crate::{generation::Generation, service::ServiceKey};

/// Services set aside are tried again this often: somebody may have loaded a module.
const RETRY_REFUSED: Duration = Duration::from_secs(300);
/// Comparisons for one request: each sets aside what the kernel has refused.
const ROUNDS: usize = 4;

/// What a comparison came to.
enum Compared {
    /// The kernel's table is right.
    Same,
    Written,
    /// Nothing is written, because of these.
    Refused(BTreeMap<ServiceKey, String>),
}

impl Services {
    /// Makes the kernel's table right, unless nobody has changed anything since it was. Returns
    /// whether anything was written.
    pub(super) fn write_all(&mut self) -> Result<bool, NftablesError> {
        self.retry_refused();
        if !self.suspect && self.verified.is_current() {
            return Ok(self.iptabled.ensure_uncounted(&self.beside));
        }
        for _ in 0..ROUNDS {
            match self.compare()? {
                Compared::Same => {
                    self.suspect = false;
                    return Ok(self.iptabled.ensure(&self.beside));
                }
                Compared::Written => {
                    self.suspect = false;
                    let services = self.book.services();
                    let sticky = services.flat_map(ServiceElements::sticky).collect();
                    self.forget_clients(&sticky);
                    self.iptabled.ensure(&self.beside);
                    return Ok(true);
                }
                Compared::Refused(services) => self.set_aside(services),
            }
        }
        Err(NftablesError::Write {
            why: "the kernel refuses one Service after the other".to_owned(),
        })
    }

    /// Compares the kernel's table with what it should be, and writes the difference.
    fn compare(&mut self) -> Result<Compared, NftablesError> {
        self.suspect = true;
        self.verified = Generation::now();
        let layout = self.book.layout();
        let held = self.kept.held(Some(name::STICKY));
        let held = held.map_err(NftablesError::List)?;
        let hairpins = self.book.hairpins();
        let wanted = self.book.wanted(&hairpins);
        let (batch, blame) = transition(&layout, held.as_ref(), &wanted).into_parts();
        if batch.is_empty() {
            return Ok(Compared::Same);
        }
        match self.verified.change(|| kernel::commit(batch)) {
            Ok(()) => {
                self.kept.learn(&layout);
                self.book.forget_predecessor();
                Ok(Compared::Written)
            }
            Err(CommitError::Refused(refused)) => {
                let whose = |message: &u32| {
                    let at = blame.partition_point(|(last, _)| last < message);
                    blame.get(at).and_then(|(_, owner)| *owner)
                };
                let culprits = refused
                    .iter()
                    .map(|(message, why)| Some((whose(message)?.clone(), why.to_string())));
                let culprits: Option<BTreeMap<ServiceKey, String>> = culprits.collect();
                let nobodys = || NftablesError::Write {
                    why: CommitError::Refused(refused).to_string(),
                };
                culprits.map(Compared::Refused).ok_or_else(nobodys)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The others go on without them.
    fn set_aside(&mut self, services: BTreeMap<ServiceKey, String>) {
        for (key, why) in services {
            tracing::error!(service = %key, why, "the kernel refuses this Service: it has no rules here");
            self.news.extend(self.book.set_aside(&key, why));
            self.refused_at.get_or_insert_with(Instant::now);
        }
    }

    fn retry_refused(&mut self) {
        let is_due = |at: Instant| at.elapsed() >= RETRY_REFUSED;
        if self.refused_at.is_some_and(is_due) {
            self.refused_at = None;
            self.suspect |= self.book.take_refused_back();
        }
    }
}
