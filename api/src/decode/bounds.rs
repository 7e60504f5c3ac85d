//! How many values a body may hold: what a value takes in memory is a hundred times what an empty
//! one takes in a body.

use std::cell::Cell;

/// Most scalars, lists, objects and their keys of one body. A reader, defaults and validation hold
/// some hundreds of bytes for each. The largest manifests that are published, definitions of 1 MB,
/// have a third of them.
pub(super) const MAX_NODES: usize = 200_000;

/// Whether a JSON text, good or bad, may be given to a reader.
///
/// # Errors
/// Why not.
pub(super) fn check_json(body: &[u8]) -> Result<(), String> {
    Nodes::new().add_json(body)
}

fn count_json(body: &[u8]) -> usize {
    let (mut nodes, mut in_scalar) = (0, false);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        let was_in_scalar = std::mem::replace(&mut in_scalar, false);
        match byte {
            b'"' => {
                skip_string(&mut bytes);
                nodes += 1;
            }
            b'{' | b'[' => nodes += 1,
            b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                in_scalar = true;
                nodes += usize::from(!was_in_scalar);
            }
        }
    }
    nodes
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// In the words of YAML's reader.
pub(super) fn too_many() -> String {
    format!("document contains more than {MAX_NODES} nodes")
}

/// Counts values as they are made.
pub(super) struct Nodes(Cell<usize>);

impl Nodes {
    pub(super) fn new() -> Self {
        Self(Cell::new(0))
    }

    /// One more.
    ///
    /// # Errors
    /// It is one too many.
    pub(super) fn add(&self) -> Result<(), String> {
        self.add_many(1)
    }

    /// Those of a JSON text, good or bad.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn add_json(&self, text: &[u8]) -> Result<(), String> {
        self.add_many(count_json(text))
    }

    fn add_many(&self, more: usize) -> Result<(), String> {
        self.0.set(self.0.get() + more);
        if self.0.get() > MAX_NODES {
            Err(too_many())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_json_are_counted_and_what_strings_hold_is_not() {
        let many = |item: &str, nodes: usize| format!("[{}0]", format!("{item},").repeat(nodes));
        for (item, nodes) in [
            ("0", 1),
            ("{}", 1),
            ("\"a\"", 1),
            ("-1.5e3 ", 1),
            ("{\"a\" : null}", 3),
            ("[[]]", 2),
        ] {
            let fits = (MAX_NODES - 2) / nodes;
            assert_eq!(check_json(many(item, fits).as_bytes()), Ok(()), "{item}");
            assert!(
                check_json(many(item, fits + 1).as_bytes()).is_err(),
                "{item}"
            );
        }
        let text = format!("[\"{}\"]", r#"{[,\",1 "#.repeat(MAX_NODES));
        assert_eq!(check_json(text.as_bytes()), Ok(()));
        assert_eq!(
            check_json("\"".repeat(MAX_NODES).as_bytes()),
            Ok(()),
            "half of them end a string"
        );
    }
}
