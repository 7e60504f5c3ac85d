//! Query strings: percent-decoding and typed access, strict where upstream is strict.

use std::borrow::Cow;

use coracle_api::status::Status;

/// A parsed query string. Parameters keep their order; the first of a name counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses `raw`, the part after `?`. Never fails: a bad escape stays as it is.
    pub fn parse(raw: &'a str) -> Self {
        if raw.is_empty() {
            return Self::default();
        }
        let pair = |part: &'a str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key, true), decode(value, true))
        };
        Self(raw.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// The first value of `name`, unless it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Every value of `name`, in order.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> + 'q {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// A truth value. As upstream, everything that is not `false` or `0` in some spelling is true, also an empty value.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F"))
    }

    /// An integer.
    ///
    /// # Errors
    /// 400 if it is not one.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

/// Decodes percent escapes, and `+` as a space where `plus` says so.
pub(crate) fn decode(text: &str, plus: bool) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || (plus && byte == b'+')) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, escape.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 2;
            }
            (b'+', _) if plus => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(String::from_utf8(decoded).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_pluses_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch=true&limit=5&command=ls&command=-l&flag");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.integer("limit").unwrap(), Some(5));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["ls", "-l"]);
        assert_eq!(query.flag("flag"), Some(true));
        assert_eq!(query.get("absent"), None);
    }

    #[test]
    fn bad_escapes_stay() {
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz+", false), "%zz+");
        assert_eq!(decode("%ff", false), "\u{fffd}");
    }
}
