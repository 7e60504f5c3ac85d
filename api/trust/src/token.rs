//! What tokens have in common (pure): `K10<hex SHA-256 of the CA's certificate>::<rest>`, as k3s
//! writes them. What the rest is depends on whose token it is.

use std::{fmt, str::FromStr};

use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "K10";

/// SHA-256 of the certificate of a cluster's authority. Displayed as lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaHash([u8; 32]);

/// Why it is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No `K10`, or no `::`.
    #[error("it does not look like K10<64 hex digits>::<rest>")]
    Form,
    /// Between the two are no 64 hex digits.
    #[error("the part before `::` is not K10 and 64 hex digits")]
    Hash,
}

impl CaHash {
    /// Of this certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CaHash {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let mut hash = [0; 32];
        let decoded = hex::decode_to_slice(text, &mut hash);
        decoded.map(|()| Self(hash)).map_err(|_| SplitError::Hash)
    }
}

/// The hash and the rest of a token, around which may be white space.
///
/// # Errors
/// [`SplitError`].
pub fn split(text: &str) -> Result<(CaHash, &str), SplitError> {
    let (hash, rest) = text
        .trim()
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once("::"))
        .ok_or(SplitError::Form)?;
    Ok((hash.parse()?, rest))
}

/// The whole token.
#[must_use]
pub fn join(hash: CaHash, rest: &str) -> String {
    format!("{PREFIX}{hash}::{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_split_and_joined_again() {
        let text = format!("K10{}::server:a::b", "ab".repeat(32));
        let padded = format!("  {text}\n");
        let (hash, rest) = split(&padded).unwrap();
        assert_eq!((hash.to_string(), rest), ("ab".repeat(32), "server:a::b"));
        assert_eq!(join(hash, rest), text);
        let upper = format!("K10{}::x", "AB".repeat(32));
        assert_eq!(split(&upper), Ok((hash, "x")));
        for (text, expected) in [
            (String::new(), SplitError::Form),
            ("abcdef.0123456789abcdef".to_owned(), SplitError::Form),
            (format!("K10{}", "ab".repeat(32)), SplitError::Form),
            ("K10ab::x".to_owned(), SplitError::Hash),
            (format!("K10{}::x", "zz".repeat(32)), SplitError::Hash),
            (format!("K10{}::x", "ab".repeat(33)), SplitError::Hash),
        ] {
            assert_eq!(split(&text), Err(expected), "{text}");
        }
    }
}
