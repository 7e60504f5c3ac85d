//! Attributes that no crate has a type for, as the kernel reads them.

/// Appends a netlink attribute: length, kind, value, padding to four bytes.
pub(crate) fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).expect("short values");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
