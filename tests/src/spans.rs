//! What a process told of its spans as they closed: lines of its log with `--log-format json`.

use std::{process::Command, time::Duration};

use serde_json::Value;

/// A span that has closed.
#[derive(Debug)]
pub struct Span {
    /// Such as `RunPodSandbox`.
    pub name: String,
    /// From its beginning to its end.
    pub took: Duration,
    /// Its fields.
    pub fields: Value,
    /// The spans around it, the outermost first, with their fields.
    pub around: Vec<Value>,
}

impl Span {
    /// A field of it, or of the nearest span around it that has such a one.
    pub fn text(&self, field: &str) -> Option<&str> {
        let mut nearest = [&self.fields].into_iter().chain(self.around.iter().rev());
        nearest.find_map(|fields| fields[field].as_str())
    }

    /// The names of the spans around it and its own, the outermost first:
    /// `syncPod/RunPodSandbox/network`.
    pub fn path(&self) -> String {
        let names = self
            .around
            .iter()
            .filter_map(|fields| fields["name"].as_str());
        names
            .chain([self.name.as_str()])
            .collect::<Vec<_>>()
            .join("/")
    }

    /// Of a request, or what is directly within one: such as `create pods/binding`.
    pub fn request(&self) -> Option<String> {
        let fields = if self.name == "KubernetesAPI" {
            &self.fields
        } else {
            self.around.last()?
        };
        let text = |field: &str| fields[field].as_str();
        let subresource = text("subresource")
            .map(|subresource| format!("/{subresource}"))
            .unwrap_or_default();
        Some(format!(
            "{} {}{subresource}",
            text("verb")?,
            text("resource")?
        ))
    }
}

/// Makes the process tell of its spans, and of nothing else that it would not tell.
pub fn listen(command: &mut Command) -> &mut Command {
    command
        .env("CORACLE_LOG", "coracle::trace=debug")
        .args(["--log-format", "json"])
}

/// Those in `log`, in the order of their ends.
pub fn closed(log: &str) -> Vec<Span> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.filter_map(|line: Value| span(&line)).collect()
}

fn span(line: &Value) -> Option<Span> {
    if line["target"] != "coracle::trace" || line["fields"]["message"] != "close" {
        return None;
    }
    let time = |name: &str| duration(line["fields"][name].as_str()?);
    Some(Span {
        name: line["span"]["name"].as_str()?.to_owned(),
        took: time("time.busy")? + time("time.idle")?,
        fields: line["span"].clone(),
        around: line["spans"].as_array().cloned().unwrap_or_default(),
    })
}

/// `417ns`, `1.23ms`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let seconds_each = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds_each).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_from_the_log() {
        let log = r#"{"level":"INFO","fields":{"message":"ready"},"target":"coracle"}
            not JSON
            {"level":"DEBUG","fields":{"message":"close","time.busy":"417ns","time.idle":"1.20ms"},"target":"coracle::trace",
            "#
        .to_owned()
            + r#"
{"fields":{"message":"close","time.busy":"500µs","time.idle":"1.20ms"},"target":"coracle::trace","span":{"name":"network"},"spans":[{"pod":"default/web","name":"syncPod"},{"name":"RunPodSandbox"}]}
{"fields":{"message":"close","time.busy":"1.5s","time.idle":"417ns"},"target":"coracle::trace","span":{"verb":"create","resource":"pods","subresource":"binding","name":"KubernetesAPI"},"spans":[]}"#;
        let spans = closed(&log);
        let seen: Vec<_> = spans
            .iter()
            .map(|span| (span.path(), span.took, span.text("pod"), span.request()))
            .collect();
        let took = [
            Duration::from_micros(1700),
            Duration::from_nanos(1_500_000_417),
        ];
        let request = Some("create pods/binding".to_owned());
        assert_eq!(
            seen,
            [
                (
                    "syncPod/RunPodSandbox/network".to_owned(),
                    took[0],
                    Some("default/web"),
                    None
                ),
                ("KubernetesAPI".to_owned(), took[1], None, request)
            ]
        );
    }
}
