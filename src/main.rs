//! The `coracle` binary.
fn main() {}
