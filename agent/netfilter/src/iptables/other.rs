//! Rules that an earlier run wrote with the other variant of iptables.
//!
//! An administrator may choose the other variant on a running node (`update-alternatives`). The
//! kernel then follows both, and the old rules lead to endpoints that are no more.

use std::fs;

use super::{Iptables, IptablesError, plan::Desired};

/// Which tables the legacy variant has ever used in the calling thread's namespace. Absent where it
/// has none.
const LEGACY_TABLES: &str = "/proc/thread-self/net/ip_tables_names";

/// Whether the legacy variant has this table: asking itself would load its modules.
pub(crate) fn is_in_legacy(table: &str) -> bool {
    let tables = fs::read_to_string(LEGACY_TABLES).unwrap_or_default();
    tables.lines().any(|name| name == table)
}

impl Iptables {
    /// Removes every chain whose name starts with `prefix`, and the ways there, from the other
    /// variant's `tables`. Returns whether there were any. Does nothing where the other variant is
    /// not installed.
    ///
    /// # Errors
    /// [`IptablesError`].
    pub fn clean_other_variant(
        &self,
        tables: &[&str],
        prefix: &'static str,
    ) -> Result<bool, IptablesError> {
        let Ok(other) = Self::variant(!self.nft) else {
            return Ok(false);
        };
        let used = |table: &str| other.nft || is_in_legacy(table);
        let nothing = Desired {
            owned_prefixes: vec![prefix],
            ..Desired::default()
        };
        let mut found = false;
        for table in tables.iter().filter(|table| used(table)) {
            found |= other.ensure(table, &nothing)?;
        }
        Ok(found)
    }
}
