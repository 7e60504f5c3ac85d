//! What a process before this one has left in the kernel, while this one has no plan yet.
//!
//! Who the rules select is known from the kernel, and from what that process has remembered; what
//! they say is not: if somebody takes the rules away, those pods are shut off until there is a
//! plan.

use std::{collections::BTreeMap, io, net::IpAddr};

use super::{
    super::{
        batch::{Data, Key},
        expression::Verdict,
        kernel::{self, Present},
        table::Table,
    },
    NodeNetwork, Policies, PoliciesError,
    names::{MAPS, name},
    rules::Packets,
};
use crate::{
    generation::Generation,
    netlink::Family,
    policy::{Plan, Selected},
};

/// Watches over it.
#[derive(Debug)]
pub struct Left {
    node: NodeNetwork,
    found: Found,
    /// When it was found to be as it was.
    verified: Generation,
    /// Once it was not any more.
    shut: Option<Policies>,
}

impl Left {
    /// Looks what there is. `node` as for [`Policies::new`]; `remembered` were selected when the
    /// other process was there: if they are not any more, that counts as removed.
    ///
    /// # Errors
    /// [`PoliciesError::List`].
    pub fn find(node: NodeNetwork, remembered: Selected) -> Result<Self, PoliciesError> {
        let mut verified = Generation::now();
        let mut found = Found::look().map_err(PoliciesError::List)?;
        let there = found.selected.clone();
        found.selected.extend(remembered);
        if found.selected != there {
            verified = Generation::default();
        }
        Ok(Self {
            node,
            found,
            verified,
            shut: None,
        })
    }

    /// Whether it selects any pod.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.found.selected.is_empty()
    }

    /// Lets nothing through; `None` as long as all is still there.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.shut.as_ref().map(Policies::plan)
    }

    /// Sees whether it is still there. If not, shuts off those that were selected. Says whether
    /// that had to be done, or done again.
    ///
    /// # Errors
    /// [`PoliciesError`].
    pub fn keep(&mut self) -> Result<bool, PoliciesError> {
        if let Some(shut) = &mut self.shut {
            return shut.reconcile();
        }
        if !self.is_any() || self.verified.is_current() {
            return Ok(false);
        }
        let verified = Generation::now();
        let now = Found::look().map_err(PoliciesError::List)?;
        if now == self.found {
            self.verified = verified;
            return Ok(false);
        }
        let mut shut = Policies::new(self.node.clone());
        shut.apply(&self.found.selected.shut())?;
        self.shut = Some(shut);
        Ok(true)
    }
}

/// What decides on packets. Who is in a group does not count: an emptied one lets less through.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    tables: BTreeMap<Family, Present>,
    selected: Selected,
}

impl Found {
    fn look() -> io::Result<Self> {
        let mut found = Self::default();
        for family in Family::ALL {
            let table = Packets(family).table();
            let present = kernel::present(&table)?;
            let Some(present) = present.filter(|present| !present.is_dormant) else {
                continue;
            };
            found.tables.insert(family, present);
            let selected = &mut found.selected;
            for (map, into) in MAPS.iter().zip([&mut selected.to, &mut selected.from]) {
                into.extend(decided_on(&table, map)?);
            }
        }
        Ok(found)
    }
}

fn decided_on(table: &Table, map: &str) -> io::Result<impl Iterator<Item = IpAddr>> {
    let elements = kernel::elements(table, map)?.into_iter();
    Ok(elements.filter_map(|(key, data)| match data {
        Data::Verdict(Verdict::Jump(chain)) if chain != name::OPEN => address(&key),
        _ => None,
    }))
}

fn address(key: &Key) -> Option<IpAddr> {
    let octets = &*key.first;
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{super::names::member, *};

    #[test]
    fn members_are_read_as_they_are_written() {
        for text in ["10.1.0.5", "fd00::5"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(address(&member(ip)), Some(ip));
        }
        assert_eq!(address(&Key::one(vec![1, 2, 3])), None);
    }
}
