//! Values in errors, as upstream prints them, but not without end.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde_json::Value;

use super::{MOST_OF_ONE, quote};

/// What stands for the rest.
const REST: &str = "...";

/// A bad value: text quoted, everything else as JSON.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(&cut(text)),
        Value::Null => "\"null\"".to_owned(),
        other => {
            let mut out = Cut(String::new());
            // It ends with an error where it is cut.
            if write!(out, "{other}").is_err() {
                out.0.push_str(REST);
            }
            out.0
        }
    }
}

/// A text that is not too long.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_OF_ONE {
        return text.into();
    }
    format!("{}{REST}", &text[..text.floor_char_boundary(MOST_OF_ONE)]).into()
}

/// Takes text up to the most.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST_OF_ONE - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_to_a_length() {
        assert_eq!(value(&json!({"a": [1, "x"]})), r#"{"a":[1,"x"]}"#);
        assert_eq!(value(&json!("a\"b")), r#""a\"b""#);
        for long in [
            json!("\u{e9}".repeat(1 << 20)),
            json!(vec!["\u{e9}"; 1 << 20]),
        ] {
            let printed = value(&long);
            assert!(
                printed.len() <= MOST_OF_ONE + 5 && printed.contains(REST),
                "{}",
                printed.len()
            );
        }
    }
}
