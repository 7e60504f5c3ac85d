//! Query strings (pure).

/// Decoded names and values, in order.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// `true` and `1`, under any of these names.
    pub(super) fn flag(&self, names: &[&str]) -> bool {
        names
            .iter()
            .any(|name| matches!(self.get(name), Some("true" | "1")))
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], code) {
            (_, Some(code)) => {
                out.push(code);
                at += 3;
            }
            (b'+', None) => {
                out.push(b' ');
                at += 1;
            }
            (byte, None) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse(Some(
            "command=sh&command=-c&command=echo+a%20%2Fb%&output=1&tty=true&x=",
        ));
        assert_eq!(query.all("command"), ["sh", "-c", "echo a /b%"]);
        assert!(
            query.flag(&["stdout", "output"])
                && query.flag(&["tty"])
                && !query.flag(&["stdin", "x"])
        );
        assert_eq!(query.get("x"), None);
    }
}
