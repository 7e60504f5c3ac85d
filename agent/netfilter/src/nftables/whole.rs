//! Keeps a table that is small enough to be listed and compared each time.

use std::io;

use super::{
    kept::Kept,
    kernel::{self, CommitError},
    table::{Layout, Table},
    transition::{Elements, batch_to},
};
use crate::generation::Generation;

/// Why a table could not be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum WholeError {
    #[error("list it")]
    List(#[source] io::Error),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// One table beside what this process has written into it.
#[derive(Debug)]
pub(super) struct Whole {
    table: Table,
    kept: Kept,
}

impl Whole {
    /// Nothing is written yet.
    pub(super) fn new(table: Table) -> Self {
        Self {
            kept: Kept::new(table.clone()),
            table,
        }
    }

    /// Compares the kernel's table with what it shall be, and writes what differs in one
    /// transaction, which `verified` counts. Says whether there was anything.
    pub(super) fn ensure(
        &mut self,
        layout: &Layout,
        elements: &Elements,
        verified: &mut Generation,
    ) -> Result<bool, WholeError> {
        let held = self.kept.held(None).map_err(WholeError::List)?;
        let batch = batch_to(layout, held.as_ref(), elements);
        if batch.is_empty() {
            return Ok(false);
        }
        verified.change(|| kernel::commit(batch))?;
        self.kept.learn(layout);
        Ok(true)
    }

    /// Removes it. Says whether it was there.
    pub(super) fn remove(&mut self, verified: &mut Generation) -> Result<bool, WholeError> {
        let removal = kernel::removal(&self.table).map_err(WholeError::List)?;
        if removal.is_empty() {
            return Ok(false);
        }
        self.kept = Kept::new(self.table.clone());
        verified.change(|| kernel::commit(removal))?;
        Ok(true)
    }
}
