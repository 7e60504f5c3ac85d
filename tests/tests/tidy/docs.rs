//! What the documents and the comments say of the code: that what they name is there, and that a
//! comment is a sentence.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use coracle_tests::workspace;
use syn::visit::Visit;

use super::{parse, report, sources, tests_of};

/// Comments that say nothing by themselves, by crate. No number grows; who mends some takes the
/// number along.
const RIDDLES: &[(&str, usize)] = &[
    ("agent", 39),
    ("agent/netfilter", 6),
    ("agent/shim", 3),
    ("agent/shim/protocol", 10),
    ("api/client", 6),
    ("api/telemetry", 3),
    ("cni", 4),
    ("cni/netns", 8),
];

#[test]
fn comments_that_say_nothing_only_shrink() {
    let bounds: BTreeMap<&str, usize> = RIDDLES.iter().copied().collect();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, text) in sources() {
        let directory = ["src/", "tests/", "benches/", "examples/"]
            .iter()
            .filter_map(|part| name.find(part))
            .min()
            .map_or("", |at| name[..at].trim_end_matches('/'))
            .to_owned();
        let lines = text.lines().enumerate();
        let riddles = lines.filter(|(_, line)| is_riddle(line));
        found
            .entry(directory)
            .or_default()
            .extend(riddles.map(|(at, _)| format!("{name}:{}", at + 1)));
    }
    let problems = found.into_iter().filter_map(|(directory, found)| {
        let bound = bounds.get(&*directory).copied().unwrap_or_default();
        println!("{directory}: {}", found.len());
        (found.len() > bound).then(|| {
            format!(
                "{directory:?}: {} comments say nothing, not {bound}: {found:?}",
                found.len()
            )
        })
    });
    report(problems.collect());
}

/// A doc that is a question without its answer, or sends the reader away.
fn is_riddle(line: &str) -> bool {
    let Some(said) = line.trim_start().strip_prefix("///") else {
        return false;
    };
    let said = said.trim();
    said.starts_with("See the module")
        || matches!(
            said,
            "Which." | "Why." | "Where." | "What." | "Who." | "How." | "When."
        )
}

/// Names such as `Store::create` in the architecture and its records are those of the sources.
#[test]
fn what_the_records_name_is_there() {
    let records = fs::read_dir(workspace().join("docs/adr")).expect("docs/adr");
    let records = records.map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = records
        .chain([workspace().join("ARCHITECTURE.md")])
        .collect();
    let mut known = Members::default();
    for (name, text) in sources() {
        known.visit_file(&parse(&name, &text));
    }
    let problems = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).expect("a record");
        let missing = members_named(&text)
            .into_iter()
            .filter(|member| !known.0.contains(member));
        missing
            .map(|(of, member)| format!("{}: no {of}::{member}", file.display()))
            .collect::<Vec<_>>()
    });
    report(problems.collect());
}

/// The table of controllers names each by upstream's name, once, and only files that are there.
#[test]
fn the_table_of_controllers_names_what_is_there() {
    let text = fs::read_to_string(workspace().join("docs/controllers.md")).expect("the table");
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for row in &rows {
        let mut quoted = row.split('`').skip(1).step_by(2);
        let name = quoted.next().unwrap_or_default();
        if !name.ends_with("-controller") || !names.insert(name) {
            problems.push(format!("{name:?} is no controller, or there twice"));
        }
        let paths: Vec<&str> = quoted.collect();
        let is_missing = |path: &&&str| {
            let path = match path.strip_prefix('/') {
                Some(elsewhere) => elsewhere.to_owned(),
                None => format!("controlplane/controllers/{path}"),
            };
            !workspace().join(path).is_file()
        };
        let missing = paths.iter().filter(is_missing);
        problems.extend(missing.map(|path| format!("{name}: no {path}")));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, _, here, place, tests, ..] = cells.as_slice() else {
            problems.push(format!("{name}: a row has five columns"));
            continue;
        };
        let is_said = !place.is_empty() && !tests.is_empty();
        if is_said != matches!(*here, "yes" | "in part") {
            problems.push(format!(
                "{name}: where it is and what tests it is said of what is here"
            ));
        }
    }
    assert!(rows.len() >= 50, "only {} controllers", rows.len());
    report(problems);
}

/// The table of plugins names only files that are there.
#[test]
fn the_table_of_plugins_names_what_is_there() {
    let text = fs::read_to_string(workspace().join("docs/scheduler.md")).expect("the table");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let paths: Vec<&str> = quoted.filter(|text| text.ends_with(".rs")).collect();
    assert!(paths.len() >= 20, "only {} files", paths.len());
    let missing = paths.iter().filter(|path| {
        let file = match path.strip_prefix('/') {
            Some(elsewhere) => elsewhere.to_owned(),
            None => format!("controlplane/scheduler/src/plugins/{path}"),
        };
        !workspace().join(file).is_file()
    });
    report(missing.map(|path| format!("no {path}")).collect());
}

/// Each row of a feature of the network names files and at least one test, and these are there.
#[test]
fn files_and_tests_that_the_network_names_are_there() {
    let tests: BTreeSet<String> = sources()
        .iter()
        .flat_map(|(name, text)| tests_of(&parse(name, text)))
        .collect();
    let (mut problems, mut rows) = (Vec::new(), 0);
    for document in ["docs/network.md", "docs/dns.md"] {
        let text = fs::read_to_string(workspace().join(document)).expect("a document");
        for line in text.lines() {
            let spans = || line.split('`').skip(1).step_by(2);
            let files = spans().filter(|span| span.ends_with(".rs"));
            let absent = files.filter(|file| !workspace().join(file).is_file());
            problems.extend(absent.map(|file| format!("{document}: no file {file}")));
            let unknown = spans().filter(|span| is_claim(span) && !tests.contains(*span));
            problems.extend(unknown.map(|name| format!("{document}: no test {name}")));
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
            if let [_, files, shown] = cells.as_slice()
                && files.contains(".rs`")
            {
                rows += 1;
                let mut names = shown.split('`').skip(1).step_by(2);
                if !names.any(|name| tests.contains(name)) {
                    problems.push(format!("{document}: no test in {line}"));
                }
            }
        }
    }
    assert!(rows >= 50, "only {rows} features");
    report(problems);
}

/// Whether this is named as tests are.
fn is_claim(span: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    span.chars().all(is_name) && span.matches('_').count() >= 3
}

/// Each `Type::member` between backticks. What comes from elsewhere (`reflector::Store`) has a
/// module before it.
fn members_named(text: &str) -> Vec<(String, String)> {
    let is_type = |name: &str| {
        name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric)
    };
    let is_member =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter_map(|code| code.trim_end_matches("()").split_once("::"))
        .filter(|(of, member)| is_type(of) && is_member(member))
        .map(|(of, member)| (of.to_owned(), member.to_owned()))
        .collect()
}

/// What types have: functions, constants, variants.
#[derive(Default)]
struct Members(BTreeSet<(String, String)>);

impl Members {
    fn add(&mut self, of: &syn::Ident, member: &syn::Ident) {
        self.0.insert((of.to_string(), member.to_string()));
    }
}

impl<'ast> Visit<'ast> for Members {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let syn::Type::Path(of) = &*item.self_ty
            && let Some(of) = of.path.segments.last()
        {
            for member in &item.items {
                match member {
                    syn::ImplItem::Fn(member) => self.add(&of.ident, &member.sig.ident),
                    syn::ImplItem::Const(member) => self.add(&of.ident, &member.ident),
                    _ => {}
                }
            }
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for member in &item.items {
            if let syn::TraitItem::Fn(member) = member {
                self.add(&item.ident, &member.sig.ident);
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            self.add(&item.ident, &variant.ident);
        }
    }
}

#[test]
fn names_are_told_from_other_code() {
    let text = "`Store::create`, `a::b`, `Tasks::add()`, `reflector::Store`, `A::b::c`, x";
    let named = members_named(text);
    let named: Vec<_> = named
        .iter()
        .map(|(of, member)| format!("{of}::{member}"))
        .collect();
    assert_eq!(named, ["Store::create", "Tasks::add"]);
    assert!(is_claim("names_are_what_they_are") && !is_claim("br_netfilter"));
    for (line, expected) in [
        ("    /// Why.", true),
        ("/// See the module.", true),
        ("/// Why it cannot be read.", false),
        ("// Why.", false),
    ] {
        assert_eq!(is_riddle(line), expected, "{line}");
    }
}
