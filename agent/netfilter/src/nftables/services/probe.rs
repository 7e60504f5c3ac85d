//! Whether the kernel has what the table of Services needs.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        batch::{Data, Key},
        expression::Verdict,
        kernel,
        table::Table,
        transition::{Wanted, transition},
        vip::{Vip, endpoint_value},
    },
    error::NftablesError,
    layout::layout,
    parts::{TABLE, name},
    pick::{Branch, Pick},
};
use crate::service::{Protocol, ServiceNetwork};

/// Asks the kernel for a table like that of Services with one element of each kind, and to remove
/// it, in one transaction: nobody sees it, and nothing is left of it whatever happens.
///
/// # Errors
/// [`NftablesError::Write`]: what the kernel says.
pub fn probe(network: &ServiceNetwork) -> Result<(), NftablesError> {
    let pick = |local, sticky_secs| Pick {
        count: 1,
        local,
        masquerade: true,
        of_node: local,
        sticky_secs,
    };
    let sticky = pick(true, Some(1));
    let memory = sticky.memory().map(Branch::Memory);
    let picks = [Branch::Pick(pick(false, None)), Branch::Pick(sticky)];
    let branches: BTreeSet<Branch> = picks.into_iter().chain(memory).collect();
    let mut layout = layout(&network.clone().ipv4(), &branches);
    layout.table = Table {
        name: "coracle-probe".into(),
        ..TABLE
    };
    let vip = Vip {
        address: [192, 0, 2, 1].into(),
        protocol: Protocol::Tcp,
        port: 1,
    };
    let one = Key::one(vip.key());
    let numbered = Key::one([vip.key(), vec![0; 4]].concat());
    let range = |last| [vip.key(), vec![192, 0, 2, last]].concat();
    let range = Key::between(range(0), range(255));
    let goes = Data::Verdict(Verdict::Goto(pick(false, None).chain()));
    let endpoint = Data::Value(endpoint_value(&([192, 0, 2, 2], 2).into()));
    let wanted: Wanted<'_, ()> = BTreeMap::from([
        (name::SERVICES, BTreeMap::from([(&one, (&goes, None))])),
        (
            name::ENDPOINTS,
            BTreeMap::from([(&numbered, (&endpoint, None))]),
        ),
        (
            name::ALLOWED,
            BTreeMap::from([(&range, (&Data::None, None))]),
        ),
    ]);
    let (mut batch, _) = transition(&layout, None, &wanted).into_parts();
    batch.delete_table(&layout.table);
    Ok(kernel::commit(batch)?)
}
