//! docs/conformance.md: its rows name tests that are there, and each of upstream's tests of its
//! groups has a row.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use coracle_tests::workspace;

use super::{parse, report, tests_of};

/// Of the lists of upstream's names: what the document is about.
const GROUPS: [&str; 14] = [
    "[sig-api-machinery] AdmissionWebhook ",
    "[sig-api-machinery] AggregatedDiscovery ",
    "[sig-api-machinery] CustomResourceConversionWebhook ",
    "[sig-api-machinery] CustomResourceDefinition ",
    "[sig-api-machinery] CustomResourceFieldSelectors ",
    "[sig-api-machinery] CustomResourcePublishOpenAPI ",
    "[sig-api-machinery] FieldValidation ",
    "[sig-api-machinery] MutatingAdmissionPolicy ",
    "[sig-api-machinery] ValidatingAdmissionPolicy ",
    "[sig-apps] ",
    "[sig-autoscaling] ",
    "[sig-network] ",
    "[sig-scheduling] ",
    "[sig-storage] ",
];

/// A row: upstream's name, whether it holds, and what of ours shows it.
struct Row {
    name: String,
    holds: String,
    shown: String,
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(workspace().join("docs/conformance.md"));
    let text = text.expect("docs/conformance.md");
    let cells = text.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let (rest, shown) = line.rsplit_once(" | ")?;
        let (name, holds) = rest.rsplit_once(" | ")?;
        Some((name, holds, shown))
    });
    let rows = cells.filter(|(name, ..)| name.starts_with("[sig-"));
    let rows = rows.map(|(name, holds, shown)| Row {
        name: name.to_owned(),
        holds: holds.to_owned(),
        shown: shown.to_owned(),
    });
    rows.collect()
}

/// What holds is shown by a test: of that name, in that file.
#[test]
fn tests_that_the_conformance_table_names_are_there() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut problems = Vec::new();
    let rows = rows();
    for row in &rows {
        let spans: Vec<&str> = row.shown.split('`').skip(1).step_by(2).collect();
        let is_told = match &*row.holds {
            "yes" => spans.len() > 1,
            "no" => !row.shown.is_empty(),
            _ => false,
        };
        if !is_told {
            problems.push(format!("{}: neither a test nor why not", row.name));
        }
        let mut path = "";
        for span in spans {
            if span.contains('/') {
                path = span;
                continue;
            }
            let tests = files.entry(path.to_owned()).or_insert_with(|| {
                let text = fs::read_to_string(workspace().join(path)).unwrap_or_default();
                tests_of(&parse(path, &text))
            });
            if !tests.iter().any(|test| test == span) {
                problems.push(format!("{}: no test {span} in {path}", row.name));
            }
        }
    }
    assert!(rows.len() > 100, "{} rows", rows.len());
    problems.sort();
    problems.dedup();
    report(problems);
}

/// The names lie beside the project (`$CORACLE_GOLDEN`, else `../shared/golden`); without them this
/// is skipped.
#[test]
fn each_of_upstreams_tests_has_a_row_in_the_conformance_table() {
    let beside = || workspace().join("../shared/golden");
    let dir = std::env::var_os("CORACLE_GOLDEN").map_or_else(beside, PathBuf::from);
    let file = dir.join("conformance-1.37.tsv");
    let Ok(text) = fs::read_to_string(&file) else {
        eprintln!("SKIPPED: {} is not there", file.display());
        return;
    };
    let names = text.lines().filter_map(|line| line.split('\t').nth(4));
    let names = names.filter(|name| GROUPS.iter().any(|group| name.starts_with(group)));
    let wanted: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(wanted.len() > 100, "{} names", wanted.len());
    let mut shown: Vec<String> = rows().into_iter().map(|row| row.name).collect();
    let count = shown.len();
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), count, "a name has two rows");
    let shown: BTreeSet<String> = shown.into_iter().collect();
    let missing = wanted
        .difference(&shown)
        .map(|name| format!("{name}: no row"));
    let stale = shown
        .difference(&wanted)
        .map(|name| format!("{name}: not one of upstream's"));
    report(missing.chain(stale).collect());
}
