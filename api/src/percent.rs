//! Percent escapes, as URLs and header names have them. A bad one stays as it is.
//!
//! Source: RFC 3986, 2.1; `+` is `application/x-www-form-urlencoded`'s.

use std::borrow::Cow;

/// Decodes percent escapes, and `+` as a space where `plus` says so.
pub fn decode(text: &str, plus: bool) -> Cow<'_, str> {
    if !text
        .bytes()
        .any(|byte| byte == b'%' || (plus && byte == b'+'))
    {
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
            (b'+', _) if plus => decoded.push(b' '),
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
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz+", false), "%zz+");
        assert_eq!(decode("%ff", false), "\u{fffd}");
    }
}
