//! Cases after upstream's tests, retold as tables.

mod keywords;
mod rules;
mod update;
mod values;

use crate::{Violation, Violations, Wrong};

/// As an API server would print it.
fn shown(found: Violations) -> Vec<String> {
    found.into_iter().map(|one| line(&one)).collect()
}

fn line(Violation { path, what }: &Violation) -> String {
    let (title, value, detail) = match what {
        Wrong::Required { detail } => ("Required value", None, detail.clone()),
        Wrong::Invalid { value, detail } | Wrong::TypeInvalid { value, detail } => {
            ("Invalid value", Some(value.to_string()), detail.clone())
        }
        Wrong::NotSupported { value, supported } => {
            let quoted: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
            let detail = format!("supported values: {}", quoted.join(", "));
            ("Unsupported value", Some(value.to_string()), detail)
        }
        Wrong::TooLong { max } => ("Too long", None, format!("at most {max}")),
        Wrong::TooMany { actual, max } => {
            let detail = format!("must have at most {max} items");
            ("Too many", Some(actual.to_string()), detail)
        }
        Wrong::Duplicate { value } => ("Duplicate value", Some(value.to_string()), String::new()),
        Wrong::Forbidden { detail } => ("Forbidden", None, detail.clone()),
    };
    let value = value.map(|value| format!(": {value}")).unwrap_or_default();
    let detail = if detail.is_empty() {
        detail
    } else {
        format!(": {detail}")
    };
    format!("{path}: {title}{value}{detail}")
}
