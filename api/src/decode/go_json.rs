//! What is wrong with a JSON text, in the words of Go's `encoding/json`. Only bodies that failed to decode come here.

use serde::Deserialize;

/// Go's limit.
const MAX_DEPTH: usize = 10_000;

/// `apiVersion` and `kind` of a JSON object.
pub(super) fn type_meta(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct TypeMeta {
        #[serde(default, rename = "apiVersion")]
        api_version: String,
        #[serde(default)]
        kind: String,
    }
    let meta: TypeMeta = serde_json::from_slice(body).ok()?;
    Some((meta.api_version, meta.kind))
}

/// Go's text for the first syntax error; `None` for well-formed JSON.
pub(crate) fn syntax_error(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { body, at: 0 };
    let found = scanner.value(0).and_then(|()| {
        scanner.space();
        match scanner.peek() {
            None => Ok(()),
            Some(_) => scanner.invalid("after top-level value"),
        }
    });
    found.err()
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
        let Some(byte) = self.peek() else { return Err("unexpected end of JSON input".to_owned()) };
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

    fn value(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => self.invalid("looking for beginning of value"),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.invalid("looking for beginning of object key string");
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.invalid("after object key");
            }
            self.at += 1;
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.invalid("after object key:value pair"),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.invalid("after array element"),
            }
        }
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
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
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
                return self.invalid(&format!("in literal {word} (expecting '{}')", char::from(expected)));
            }
            self.at += 1;
        }
        Ok(())
    }
}
