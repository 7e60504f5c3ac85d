//! The kernel's table beside what it should be: takes a predecessor's over, repairs what others
//! changed, sets aside what the kernel refuses.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;

use super::{
    super::{
        kernel::{self, CommitError, Present},
        transition::{Held, transition},
    },
    Services,
    elements::ServiceElements,
    error::NftablesError,
    parts::{TABLE, name},
    reading::read_rules,
};
use crate::{generation, service::ServiceKey};

/// Services set aside are tried again this often: somebody may have loaded a module.
const RETRY_REFUSED: Duration = Duration::from_secs(300);
/// Comparisons for one request: each sets aside what the kernel has refused.
const ROUNDS: usize = 4;

/// What a comparison came to.
enum Compared {
    /// The kernel's table is right; it was at this count of changes.
    Same(Option<u32>),
    Written,
    /// Nothing is written, because of these.
    Refused(BTreeMap<ServiceKey, String>),
}

impl Services {
    /// Makes the kernel's table right, unless nobody has changed anything since it was. Returns
    /// whether anything was written.
    pub(super) fn write_all(&mut self) -> Result<bool, NftablesError> {
        self.retry_refused();
        let now = generation::read().ok();
        if !self.suspect && now.is_some() && now == self.verified {
            return Ok(self.beside.ensure_uncounted());
        }
        for _ in 0..ROUNDS {
            match self.compare()? {
                Compared::Same(generation) => {
                    self.verified = generation;
                    self.suspect = false;
                    return Ok(self.beside.ensure());
                }
                Compared::Written => {
                    self.suspect = false;
                    let services = self.book.services();
                    let sticky = services.flat_map(ServiceElements::sticky).collect();
                    self.forget_clients(&sticky);
                    self.beside.ensure();
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
        let generation = generation::read().ok();
        let layout = self.book.layout();
        let present = kernel::present(&TABLE).map_err(NftablesError::List)?;
        let held = present.map(|present| self.held(present)).transpose();
        let held = held.map_err(NftablesError::List)?;
        let hairpins = self.book.hairpins();
        let wanted = self.book.wanted(&hairpins);
        let (batch, blame) = transition(&layout, held.as_ref(), &wanted).into_parts();
        if batch.is_empty() {
            return Ok(Compared::Same(generation));
        }
        self.verified = None;
        match kernel::commit(batch) {
            Ok(()) => {
                // Of nobody else's since it was listed, or it is compared again.
                self.verified = generation.map(|before| before.wrapping_add(1));
                self.rules = read_rules(&layout);
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
            Err(error) => Err(NftablesError::Write {
                why: ErrorChain(&error).to_string(),
            }),
        }
    }

    fn held(&self, present: Present) -> io::Result<Held> {
        let known = self.rules.as_ref();
        let is_right =
            |chain: &String, rules| known.is_some_and(|known| known.get(chain) == Some(rules));
        let chains = present.chains.iter();
        let chains = chains.map(|(name, rules)| (name.clone(), is_right(name, rules)));
        let sets = present.sets.keys().filter(|set| *set != name::STICKY);
        let elements = sets.map(|set| Ok((set.clone(), kernel::elements(&TABLE, set)?)));
        Ok(Held {
            chains: chains.collect(),
            hooks: present.hooks,
            elements: elements.collect::<io::Result<_>>()?,
            sets: present.sets,
        })
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
