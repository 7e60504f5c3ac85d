//! SPDY/3.1, as far as kubectl speaks it: frames, header blocks, and a connection's streams.
//!
//! Only the server's side, and only below an upgrade that has been agreed on elsewhere. Nothing
//! here knows what the streams are for.

pub(crate) mod error;
pub(crate) mod frame;
mod headers;
pub(super) mod session;

#[cfg(test)]
mod tests;
