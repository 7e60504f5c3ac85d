//! JSON over many lines.

/// JSON with line breaks and two spaces a level, as Go's `json.MarshalIndent` has it; piece by
/// piece.
#[derive(Default)]
pub(super) struct Indenter {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// Right after an opening brace or bracket.
    is_opened: bool,
}

impl Indenter {
    pub(super) fn feed(&mut self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len() * 2);
        for &byte in json {
            if self.in_text {
                out.push(byte);
                self.in_text = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if closes {
                self.depth = self.depth.saturating_sub(1);
            }
            // What is empty stays on its line.
            if std::mem::take(&mut self.is_opened) != closes {
                self.line(&mut out);
            }
            out.push(byte);
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    self.is_opened = true;
                }
                b',' => self.line(&mut out),
                b':' => out.push(b' '),
                b'"' => self.in_text = true,
                _ => {}
            }
        }
        out
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', self.depth * 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_over_lines() {
        for json in [
            r#"{"a":{},"b":[],"c":[1,{"d":"x,{}\"\\"}],"e":null}"#,
            r#"[]"#,
            r#"{"kind":"A","items":[{"a":"b"},{"a":[]}]}"#,
        ] {
            let value: serde_json::Value = serde_json::from_str(json).unwrap();
            // The same but for the order of members, which stays as it is: `c` before `e` here
            // anyway.
            let mut indenter = Indenter::default();
            let text: Vec<u8> = json
                .as_bytes()
                .chunks(3)
                .flat_map(|piece| indenter.feed(piece))
                .collect();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                value
            );
            assert!(!text.ends_with('\n'));
        }
        let text = Indenter::default().feed(br#"{"b":{"a":[1,2]},"c":{}}"#);
        assert_eq!(
            text,
            b"{\n  \"b\": {\n    \"a\": [\n      1,\n      2\n    ]\n  },\n  \"c\": {}\n}"
        );
    }
}
