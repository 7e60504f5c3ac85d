//! Names as settings have them.

pub use hickory_proto::rr::Name;

/// A name from the root on, such as `example.org`, with or without its last dot; `None` for what is
/// none.
pub fn whole(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text.trim_end_matches('.')).ok()?;
    name.set_fqdn(true);
    (!name.is_root()).then_some(name)
}
