//! What literals mean: numbers, and texts with their escapes.

use std::sync::Arc;

use crate::ast::Literal;

/// An int; its text may have a sign.
pub(crate) fn int(text: &str) -> Result<Literal, &'static str> {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text), |digits| (-1, digits));
    let (radix, digits) = radix(digits);
    let value = i128::from_str_radix(digits, radix).ok();
    value
        .and_then(|value| i64::try_from(sign * value).ok())
        .map(Literal::Int)
        .ok_or("invalid int literal")
}

/// A uint, with its `u`.
pub(crate) fn uint(text: &str) -> Result<Literal, &'static str> {
    let (radix, digits) = radix(text.trim_end_matches(['u', 'U']));
    let value = u64::from_str_radix(digits, radix);
    value.map(Literal::Uint).map_err(|_| "invalid uint literal")
}

fn radix(digits: &str) -> (u32, &str) {
    digits
        .strip_prefix("0x")
        .map_or((10, digits), |digits| (16, digits))
}

/// A double.
pub(crate) fn double(text: &str) -> Result<Literal, &'static str> {
    let value: Option<f64> = text.parse().ok();
    value
        .filter(|value| value.is_finite())
        .map(Literal::Double)
        .ok_or("invalid double literal")
}

/// A text in quotes, or bytes in quotes with their prefix.
pub(crate) fn string(text: &str, bytes: bool) -> Result<Literal, &'static str> {
    let body = text.trim_start_matches(['b', 'B', 'r', 'R']);
    let prefix = &text[..text.len() - body.len()];
    let raw = prefix.contains(['r', 'R']);
    let quotes = if body.starts_with("\"\"\"") || body.starts_with("'''") {
        3
    } else {
        1
    };
    // Lines end alike, whatever wrote the text.
    let body = body[quotes..body.len() - quotes]
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    if bytes {
        let bytes = if raw {
            body.into_bytes()
        } else {
            unescape(&body, true)?
        };
        return Ok(Literal::Bytes(bytes.into()));
    }
    if raw {
        return Ok(Literal::String(body.into()));
    }
    let text = String::from_utf8(unescape(&body, false)?);
    text.map(|text| Literal::String(Arc::from(text)))
        .map_err(|_| "invalid UTF-8 string")
}

/// In bytes `\x` and octal escapes are a byte each; in texts they are a code point each.
fn unescape(body: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else {
            return Err("unable to unescape string, found '\\' as last character");
        };
        let simple = match kind {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => u8::try_from(kind).ok(),
            _ => None,
        };
        if let Some(byte) = simple {
            out.push(byte);
            rest = &rest[1..];
            continue;
        }
        let (skip, count, radix) = match kind {
            'x' | 'X' => (1, 2, 16),
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            _ => (0, 3, 8),
        };
        let digits = rest
            .get(skip..skip + count)
            .ok_or("unable to unescape string")?;
        let code = u32::from_str_radix(digits, radix).map_err(|_| "unable to unescape string")?;
        rest = &rest[skip + count..];
        let one_byte = bytes && !matches!(kind, 'u' | 'U');
        match u8::try_from(code) {
            Ok(byte) if one_byte => out.push(byte),
            _ => {
                let c = char::from_u32(code).ok_or("invalid unicode code point")?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}
