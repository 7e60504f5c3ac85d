//! The join token of a node (pure): `K10<hex SHA-256 of the CA's certificate>::<id>.<secret>`.

use coracle_trust::{
    CaHash,
    token::{self, SplitError},
};

/// What the token says.
pub(crate) struct Token {
    pub(crate) ca_hash: CaHash,
    /// `<id>.<secret>`, the bearer token.
    pub(crate) bearer: String,
}

/// Why it is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No `K10`, or no `::`.
    #[error(
        "must look like K10<64 hex digits>::<id>.<secret>, as printed by `coracle token create`"
    )]
    Form,
    /// The hash is not 64 hex digits.
    #[error("the part before `::` must be K10 and 64 hex digits")]
    Hash,
    /// The rest is not a bootstrap token.
    #[error("the part after `::` must be 6 characters, a dot, and 16 characters of a-z and 0-9")]
    Bearer,
}

/// Parses a token.
pub(crate) fn parse(text: &str) -> Result<Token, TokenError> {
    let (ca_hash, bearer) = token::split(text).map_err(|error| match error {
        SplitError::Form => TokenError::Form,
        SplitError::Hash => TokenError::Hash,
    })?;
    let plain = |text: &str, len: usize| {
        text.len() == len
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    match bearer.split_once('.') {
        Some((id, secret)) if plain(id, 6) && plain(secret, 16) => Ok(Token {
            ca_hash,
            bearer: bearer.to_owned(),
        }),
        _ => Err(TokenError::Bearer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_tokens_are_refused() {
        let hash = "ab".repeat(32);
        let cases = [
            (format!("K10{hash}::abcdef.0123456789abcdef"), None),
            (format!("  K10{hash}::abcdef.0123456789abcdef\n"), None),
            ("abcdef.0123456789abcdef".to_owned(), Some(TokenError::Form)),
            (format!("K10{hash}"), Some(TokenError::Form)),
            (
                "K10abc::abcdef.0123456789abcdef".to_owned(),
                Some(TokenError::Hash),
            ),
            (format!("K10{hash}::abcdef"), Some(TokenError::Bearer)),
            (
                format!("K10{hash}::ABCDEF.0123456789abcdef"),
                Some(TokenError::Bearer),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(&text).err(), expected, "{text}");
        }
    }
}
