//! What a predecessor has left in the kernel's table.

use std::{collections::BTreeMap, io};

use super::{
    super::{kernel, vip::Vip},
    elements::{Order, parse_endpoint},
    parts::{TABLE, name},
};

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
