//! Numbers with a check, identifiers, colours.

use std::sync::LazyLock;

use regex::Regex;

fn digits(text: &str) -> Vec<u32> {
    text.chars()
        .filter_map(|letter| letter.to_digit(10))
        .collect()
}

pub(super) fn is_object_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The 32 digits of a UUID, with a hyphen or without at each of its places.
fn uuid(text: &str) -> Option<[u8; 32]> {
    let mut found = Vec::with_capacity(32);
    for byte in text.bytes() {
        match byte {
            b'-' if matches!(found.len(), 8 | 12 | 16 | 20) => {}
            byte if byte.is_ascii_hexdigit() => found.push(byte.to_ascii_lowercase()),
            _ => return None,
        }
    }
    let is_once = !text.contains("--") && !text.ends_with('-');
    found.try_into().ok().filter(|_| is_once)
}

pub(super) fn is_uuid(text: &str) -> bool {
    uuid(text).is_some()
}

pub(super) fn is_uuid3(text: &str) -> bool {
    uuid(text).is_some_and(|uuid| uuid[12] == b'3')
}

pub(super) fn is_uuid4(text: &str) -> bool {
    is_of_variant(text, b'4')
}

pub(super) fn is_uuid5(text: &str) -> bool {
    is_of_variant(text, b'5')
}

fn is_of_variant(text: &str, version: u8) -> bool {
    uuid(text)
        .is_some_and(|uuid| uuid[12] == version && matches!(uuid[16], b'8' | b'9' | b'a' | b'b'))
}

pub(super) fn is_isbn(text: &str) -> bool {
    is_isbn10(text) || is_isbn13(text)
}

fn without_separators(text: &str) -> String {
    text.chars()
        .filter(|letter| !matches!(letter, ' ' | '-'))
        .collect()
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let (Some(front), Some(last)) = (text.get(..9), text.get(9..)) else {
        return false;
    };
    if !front.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let check = match last {
        "X" => 10,
        last if last.len() == 1 => match last.parse::<u32>() {
            Ok(digit) => digit,
            Err(_) => return false,
        },
        _ => return false,
    };
    let sum: u32 = digits(front)
        .iter()
        .zip(1..)
        .map(|(digit, times)| digit * times)
        .sum();
    (sum + 10 * check).is_multiple_of(11)
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let text = without_separators(text);
    if text.len() != 13 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let weighed = digits(&text).into_iter().enumerate();
    let sum: u32 = weighed
        .map(|(at, digit)| if at % 2 == 0 { digit } else { 3 * digit })
        .sum();
    sum.is_multiple_of(10) && (text.starts_with("978") || text.starts_with("979"))
}

static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$",
    )
    .expect("a constant")
});

pub(super) fn is_credit_card(text: &str) -> bool {
    let digits = digits(text);
    let plain: String = digits
        .iter()
        .filter_map(|digit| char::from_digit(*digit, 10))
        .collect();
    let doubled = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, twice) if twice > 9 => twice - 9,
            (_, twice) => twice,
        });
    CREDIT_CARD.is_match(&plain) && doubled.sum::<u32>().is_multiple_of(10)
}

static SSN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").expect("a constant"));

pub(super) fn is_ssn(text: &str) -> bool {
    SSN.is_match(text)
}

pub(super) fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let part = "[ ]*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])[ ]*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).expect("a constant")
});

pub(super) fn is_rgb_color(text: &str) -> bool {
    RGB.is_match(text)
}

/// Standard base64 with its padding, and not nothing.
pub(super) fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=');
    let padding = text.len() - letters.len();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && letters.bytes().all(is_letter)
}
