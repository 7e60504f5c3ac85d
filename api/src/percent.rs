//! Percent escapes, as URLs and header names have them. A bad one stays as it is.
//!
//! Source: RFC 3986, 2.1; `+` is `application/x-www-form-urlencoded`'s.

use std::borrow::Cow;

/// Decodes a part of a query or of a form: percent escapes, and `+` as a space.
pub fn decode_form(text: &str) -> Cow<'_, str> {
    if !text.contains('+') {
        return decode(text);
    }
    // An escaped plus is still escaped here, and so stays one.
    decode(&text.replace('+', " ")).into_owned().into()
}

/// Decodes percent escapes.
pub fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match (
            byte,
            escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()),
        ) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 2;
            }
            _ => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(
        String::from_utf8(decoded)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_escapes_stay() {
        assert_eq!(decode_form("100%"), "100%");
        assert_eq!(decode("%zz+"), "%zz+");
        assert_eq!(decode("%ff"), "\u{fffd}");
    }

    #[test]
    fn a_plus_is_a_space_in_forms_alone() {
        assert_eq!(decode("a+b%2Bc%20d"), "a+b+c d");
        assert_eq!(decode_form("a+b%2Bc%20d"), "a b+c d");
        assert!(matches!(decode_form("plain"), Cow::Borrowed("plain")));
    }
}
