//! What the kernel's table says beside its elements.

use std::{collections::BTreeMap, io};

use super::{
    super::{kernel, table::Layout},
    elements::{Order, Vip, parse_endpoint},
    parts::{TABLE, name},
};

/// The rules of each chain as they were just written: the kernel says them in its own words. `None`
/// where somebody has put others beside them meanwhile, or they cannot be read.
pub(super) fn read_rules(layout: &Layout) -> Option<BTreeMap<String, Vec<Vec<u8>>>> {
    let rules = kernel::present(&TABLE).ok()??.chains;
    let counted = |name: &str| rules.get(name).map(Vec::len);
    let mut chains = layout.chains.iter();
    let as_many = chains.all(|(name, _, written)| counted(name) == Some(written.len()));
    as_many.then_some(rules)
}

/// How a predecessor has numbered endpoints.
pub(super) fn inherited_order() -> io::Result<Order> {
    let mut order = Order::new();
    for (set, local) in [(name::ENDPOINTS, false), (name::LOCAL_ENDPOINTS, true)] {
        let mut numbered: BTreeMap<(Vip, u32), _> = BTreeMap::new();
        for (key, data) in kernel::elements(&TABLE, set)? {
            numbered.extend(parse_endpoint(&key, &data));
        }
        for ((vip, _), endpoint) in numbered {
            order.entry((vip, local)).or_default().push(endpoint);
        }
    }
    Ok(order)
}
