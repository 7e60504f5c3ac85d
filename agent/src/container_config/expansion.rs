//! `$(VAR)` references in commands, arguments, values and sub-paths (pure).
//!
//! Upstream's rules (`third_party/forked/golang/expansion`): `$$` is a literal `$`, an unknown
//! variable stays as written.

/// Expands all references in `input`.
pub(crate) fn expand<'a>(input: &str, mut lookup: impl FnMut(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|body| body.split_once(')'))
        {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn references_expand_as_upstream() {
        let lookup = |name: &str| match name {
            "A" => Some("a"),
            "EMPTY" => Some(""),
            _ => None,
        };
        let cases = [
            ("$(A)", "a"),
            ("x$(A)y$(A)", "xaya"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$$$$(A)", "$$(A)"),
            ("$(B)", "$(B)"),
            ("$(EMPTY)-", "-"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("50%$", "50%$"),
            ("", ""),
        ];
        for (input, expected) in cases {
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
    }
}
