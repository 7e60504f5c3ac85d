//! The shape of the code, checked: file and function lengths, headers, one-way dependencies, where
//! `unsafe` is, words that must not occur.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/conformance.rs"]
mod conformance;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/lengths.rs"]
mod lengths;
#[path = "tidy/style.rs"]
mod style;

use std::{collections::BTreeSet, fs, process::Command};

use coracle_tests::workspace;
use syn::visit::Visit;

fn sources() -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(workspace())
        .output()
        .expect("run git");
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let files: Vec<_> = names
        .lines()
        .filter_map(|name| {
            Some((
                name.to_owned(),
                fs::read_to_string(workspace().join(name)).ok()?,
            ))
        })
        .collect();
    assert!(files.len() > 20, "git lists only {} sources", files.len());
    files
}

fn is_test_file(name: &str) -> bool {
    name.starts_with("tests/")
        || name.contains("/tests/")
        || name.ends_with("/tests.rs")
        || name.contains("/benches/")
}

/// Tests of the module that they are named after.
fn is_unit_test(name: &str) -> bool {
    name.contains("/src/") && is_test_file(name)
}

fn report(problems: Vec<String>) {
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

fn parse(name: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Whether an item is there in tests only: `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string())
            .unwrap_or_default();
        attribute.path().is_ident("cfg")
            && (condition == "test" || condition.starts_with("all (test"))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// What `unsafe` may be in: the same files that ARCHITECTURE.md names with their reasons.
#[test]
fn unsafe_is_where_the_architecture_says() {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let listed: BTreeSet<String> = text
        .lines()
        .skip_while(|line| !line.starts_with("| `unsafe` in"))
        .skip(2)
        .map_while(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(file, _)| file.to_owned())
        .collect();
    // This file has to name it.
    let sources = sources()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("/tidy.rs"));
    let found: BTreeSet<String> = sources
        .filter(|(_, text)| has_unsafe(text))
        .map(|(name, _)| name)
        .collect();
    let missing = found
        .difference(&listed)
        .map(|file| format!("{file}: unsafe, and not in ARCHITECTURE.md's table"));
    let stale = listed
        .difference(&found)
        .map(|file| format!("{file}: in ARCHITECTURE.md's table without unsafe"));
    report(missing.chain(stale).collect());
}

fn has_unsafe(text: &str) -> bool {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter().any(|line| {
        line.contains("unsafe {") || line.contains("unsafe fn ") || line.contains("unsafe impl ")
    })
}

#[test]
fn namespaces_are_entered_in_two_places_only() {
    let home = |name: &str| {
        name.starts_with("cni/netns/")
            || name.starts_with("agent/shim/")
            || name.starts_with("tests/")
    };
    let problems = sources()
        .into_iter()
        .filter(|(name, _)| !home(name))
        .flat_map(|(name, text)| {
            // A unit test may make itself a namespace to be in.
            let text = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default()
                .to_owned();
            let lines = text.lines().enumerate().filter(|(_, line)| {
                let code = line.split("//").next().unwrap_or("");
                ["setns(", "unshare("]
                    .iter()
                    .any(|word| code.contains(word))
            });
            lines
                .map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim()))
                .collect::<Vec<_>>()
        });
    report(problems.collect());
}

/// All are applied by `examples.rs`; who reads about none of them does not look for it.
#[test]
fn the_readme_names_each_example() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let examples = fs::read_dir(workspace().join("examples")).expect("examples/");
    let forgotten = examples
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension() == Some("yaml".as_ref()))
        .filter_map(|path| Some(format!("examples/{}", path.file_name()?.display())))
        .filter(|name| !text.contains(name.as_str()));
    report(forgotten.collect());
}

/// docs/security.md promises a test in the last column of each row: one of that name is there.
#[test]
fn tests_that_the_security_table_names_are_there() {
    let text = fs::read_to_string(workspace().join("docs/security.md")).expect("docs/security.md");
    let tests: BTreeSet<String> = sources()
        .iter()
        .flat_map(|(name, text)| tests_of(&parse(name, text)))
        .collect();
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| who"));
    let problems = rows.flat_map(|row| {
        let shown = row
            .trim_end_matches('|')
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        let names: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        let nameless = names.is_empty() && !shown.contains("by reading");
        let missing = names.into_iter().filter(|name| !tests.contains(*name));
        let missing = missing.map(|name| format!("no test is called {name}"));
        nameless
            .then(|| format!("no test: {row}"))
            .into_iter()
            .chain(missing.collect::<Vec<_>>())
            .collect::<Vec<_>>()
    });
    report(problems.collect());
}

/// Functions that are tests.
fn tests_of(file: &syn::File) -> Vec<String> {
    #[derive(Default)]
    struct Tests(Vec<String>);
    impl<'ast> Visit<'ast> for Tests {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            let is_test = |path: &syn::Path| {
                path.segments
                    .last()
                    .is_some_and(|last| last.ident == "test")
            };
            if item.attrs.iter().any(|attribute| is_test(attribute.path())) {
                self.0.push(item.sig.ident.to_string());
            }
            syn::visit::visit_item_fn(self, item);
        }

        // `proptest!` and its like: tests within a macro.
        fn visit_macro(&mut self, item: &'ast syn::Macro) {
            let text = item.tokens.to_string();
            if item.path.is_ident("for_each_engine") {
                let names = text.split(',').map(str::trim);
                let names = names.filter(|name| !name.is_empty());
                self.0.extend(names.map(str::to_owned));
                return;
            }
            let names = text
                .split("fn ")
                .skip(1)
                .filter_map(|rest| rest.split([' ', '(']).next());
            self.0.extend(names.map(str::to_owned));
        }
    }
    let mut tests = Tests::default();
    tests.visit_file(file);
    tests.0
}
