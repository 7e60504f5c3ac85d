//! What is wrong with a JSON text, in the words of Go's `encoding/json`. Only bodies that failed to
//! decode come here.

use super::TypeMeta;

/// Go's limit.
const MAX_DEPTH: usize = 10_000;

/// `apiVersion` and `kind` of a JSON object.
pub(super) fn type_meta(body: &[u8]) -> Option<(String, String)> {
    let meta: TypeMeta = serde_json::from_slice(body).ok()?;
    Some((meta.api_version, meta.kind))
}

/// Go's text for the first syntax error; `None` for well-formed JSON.
pub(crate) fn syntax_error(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { body, at: 0 };
    let found = scanner.value().and_then(|()| {
        scanner.space();
        match scanner.peek() {
            None => Ok(()),
            Some(_) => scanner.invalid("after top-level value"),
        }
    });
    found.err()
}

#[derive(Clone, Copy)]
enum Collection {
    Object,
    Array,
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn invalid(&self, context: &str) -> Result<(), String> {
        let Some(byte) = self.peek() else {
            return Err("unexpected end of JSON input".to_owned());
        };
        let shown = match byte {
            b'\'' => r"'\''".to_owned(),
            b'"' => r#"'"'"#.to_owned(),
            byte => {
                let quoted = crate::status::quote(&char::from(byte).to_string());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        Err(format!("invalid character {shown} {context}"))
    }

    /// One value. No recursion: a text may be deeper than a stack.
    fn value(&mut self) -> Result<(), String> {
        let mut open: Vec<Collection> = Vec::new();
        loop {
            if open.len() > MAX_DEPTH {
                return Err("exceeded max depth".to_owned());
            }
            self.space();
            match self.peek() {
                Some(b'{') if !self.is_empty(b'}') => {
                    open.push(Collection::Object);
                    self.key()?;
                    continue;
                }
                Some(b'[') if !self.is_empty(b']') => {
                    open.push(Collection::Array);
                    continue;
                }
                // Empty ones: read already.
                Some(b'{' | b'[') => {}
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return self.invalid("looking for beginning of value"),
            }
            if !self.end_of_value(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Past the brackets of an empty collection, or past the opening one of another.
    fn is_empty(&mut self, close: u8) -> bool {
        self.at += 1;
        self.space();
        let is_empty = self.peek() == Some(close);
        self.at += usize::from(is_empty);
        is_empty
    }

    /// After a value: closes what ends with it; whether another value follows.
    fn end_of_value(&mut self, open: &mut Vec<Collection>) -> Result<bool, String> {
        while let Some(collection) = open.last() {
            self.space();
            match (collection, self.peek()) {
                (Collection::Object, Some(b',')) => {
                    self.at += 1;
                    self.space();
                    return self.key().map(|()| true);
                }
                (Collection::Array, Some(b',')) => {
                    self.at += 1;
                    return Ok(true);
                }
                (Collection::Object, Some(b'}')) | (Collection::Array, Some(b']')) => {
                    self.at += 1;
                    open.pop();
                }
                (Collection::Object, _) => {
                    return self.invalid("after object key:value pair").map(|()| false);
                }
                (Collection::Array, _) => {
                    return self.invalid("after array element").map(|()| false);
                }
            }
        }
        Ok(false)
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), String> {
        if self.peek() != Some(b'"') {
            return self.invalid("looking for beginning of object key string");
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return self.invalid("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {
                            self.at += 1
                        }
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return self.invalid("in \\u hexadecimal character escape");
                                }
                                self.at += 1;
                            }
                        }
                        _ => return self.invalid("in string escape code"),
                    }
                }
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return self.invalid("in string literal"),
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else if !self.digits() {
            return self.invalid("in numeric literal");
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.digits() {
                return self.invalid("after decimal point in numeric literal");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.digits() {
                return self.invalid("in exponent of numeric literal");
            }
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return self.invalid(&format!(
                    "in literal {word} (expecting '{}')",
                    char::from(expected)
                ));
            }
            self.at += 1;
        }
        Ok(())
    }
}
