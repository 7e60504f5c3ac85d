//! Names that say what they stand for: equal content, equal name, on every node and in every run.

use sha2::{Digest as _, Sha256};

/// 80 bits as hex: short enough for the name of a set, too long to be made to collide.
const BYTES: usize = 10;

/// The hash of `parts`, each with its length so that no two lists look the same.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_string().as_bytes());
        hash.update(b":");
        hash.update(part.as_bytes());
    }
    hex::encode(&hash.finalize()[..BYTES])
}
