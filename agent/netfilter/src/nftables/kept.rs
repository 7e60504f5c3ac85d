//! A table beside what this process has written into it.

use std::{collections::BTreeMap, io};

use super::{
    kernel,
    table::{Layout, Table},
    transition::Held,
};

/// The rules of each chain, in the kernel's own words.
type Rules = BTreeMap<String, Vec<Vec<u8>>>;

/// Knows a table's rules as they were written, so that they can be told from others'.
#[derive(Debug)]
pub(super) struct Kept {
    table: Table,
    rules: Option<Rules>,
}

impl Kept {
    /// Nothing is written yet.
    pub(super) fn new(table: Table) -> Self {
        Self { table, rules: None }
    }

    /// What the table is, but for elements that rules have put into `remembered`. `None`: it is not
    /// there.
    pub(super) fn held(&self, remembered: Option<&str>) -> io::Result<Option<Held>> {
        let Some(present) = kernel::present(&self.table)? else {
            return Ok(None);
        };
        let is_right = |chain: &String, rules: &Vec<Vec<u8>>| {
            let known = self.rules.as_ref();
            known.is_some_and(|known| known.get(chain) == Some(rules))
        };
        let chains = present.chains.iter();
        let chains = chains.map(|(name, rules)| (name.clone(), is_right(name, rules)));
        let sets = present.sets.keys();
        let sets = sets.filter(|set| Some(&***set) != remembered);
        let elements = sets.map(|set| Ok((set.clone(), kernel::elements(&self.table, set)?)));
        Ok(Some(Held {
            is_dormant: present.is_dormant,
            chains: chains.collect(),
            hooks: present.hooks,
            elements: elements.collect::<io::Result<_>>()?,
            sets: present.sets,
        }))
    }

    /// Remembers the rules as they were just written; none of them where somebody has put others
    /// beside them meanwhile, or they cannot be read.
    pub(super) fn learn(&mut self, layout: &Layout) {
        self.rules = self.read(layout);
    }

    fn read(&self, layout: &Layout) -> Option<Rules> {
        let rules = kernel::present(&self.table).ok()??.chains;
        let counted = |name: &str| rules.get(name).map(Vec::len);
        let mut chains = layout.chains.iter();
        let as_many = chains.all(|(name, _, written)| counted(name) == Some(written.len()));
        as_many.then_some(rules)
    }
}
