//! The shape of the code, checked: file and function lengths, headers, one-way dependencies, words that must not occur.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use coracle_tests::workspace;
use syn::{spanned::Spanned, visit::Visit};

/// Lines of a file before its tests.
const FILE_LINES_MAX: usize = 400;
/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Longer than the rule allows, with the reason.
const LONG_FILES: &[(&str, &str)] = &[];
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// What a crate may depend on, besides crates of others. Everything else is a forbidden edge.
const EDGES: &[(&str, &[&str])] = &[
    ("coracle-api", &[]),
    ("coracle-relay", &[]),
    ("coracle-store", &["coracle-api"]),
    ("coracle-apiserver", &["coracle-api", "coracle-relay", "coracle-store"]),
    ("coracle-scheduler", &["coracle-api"]),
    ("coracle-controllers", &["coracle-api"]),
    (
        "coracle-controlplane",
        &["coracle-api", "coracle-store", "coracle-apiserver", "coracle-scheduler", "coracle-controllers"],
    ),
    ("coracle-netns", &[]),
    ("coracle-cni", &["coracle-netns"]),
    ("coracle-shim-protocol", &[]),
    ("coracle-shim", &["coracle-shim-protocol"]),
    ("coracle-agent", &["coracle-api", "coracle-relay", "coracle-cni", "coracle-netns", "coracle-shim-protocol"]),
    ("coracle-tests", &[]),
    ("coracle-fuzz", &["coracle-api", "coracle-apiserver", "coracle-agent", "coracle-shim"]),
    ("coracle", &["coracle-controlplane", "coracle-agent"]),
];

fn sources() -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "*.rs"]).current_dir(workspace()).output().expect("run git");
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let files: Vec<_> = names
        .lines()
        .filter_map(|name| Some((name.to_owned(), fs::read_to_string(workspace().join(name)).ok()?)))
        .collect();
    assert!(files.len() > 20, "git lists only {} sources", files.len());
    files
}

fn is_test_file(name: &str) -> bool {
    name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("/tests.rs") || name.contains("/benches/")
}

/// Tests of the module that they are named after.
fn is_unit_test(name: &str) -> bool {
    name.contains("/src/") && is_test_file(name)
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn files_are_short() {
    let problems = sources().into_iter().filter_map(|(name, text)| {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        let excused = is_test_file(&name) || LONG_FILES.iter().any(|(file, _)| *file == name);
        (lines > FILE_LINES_MAX && !excused).then(|| format!("{name}: {lines} lines before its tests"))
    });
    report(problems.collect());
}

#[test]
fn functions_are_short() {
    let problems = sources().into_iter().filter(|(name, _)| !is_test_file(name)).flat_map(|(name, text)| {
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut lengths = Lengths::default();
        lengths.visit_file(&file);
        lengths.0.into_iter().filter_map(move |(function, lines)| {
            let full = format!("{name}: {function}");
            let excused = LONG_FUNCTIONS.iter().any(|(known, _)| *known == full);
            (lines > FUNCTION_LINES_MAX && !excused).then(|| format!("{full} has {lines} lines"))
        })
    });
    report(problems.collect());
}

#[derive(Default)]
struct Lengths(BTreeMap<String, usize>);

fn lines(block: &syn::Block) -> usize {
    let span = block.span();
    span.end().line - span.start().line + 1
}

impl<'ast> Visit<'ast> for Lengths {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.0.insert(item.sig.ident.to_string(), lines(&item.block));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.0.insert(item.sig.ident.to_string(), lines(&item.block));
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|l| l.tokens.to_string() == "test")
        });
        if !is_test {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    let problems = sources().into_iter().filter(|(name, text)| !text.starts_with("//!") && !is_unit_test(name));
    report(problems.map(|(name, _)| name).collect());
}

#[test]
fn no_module_is_called_mod_rs() {
    report(sources().into_iter().map(|(name, _)| name).filter(|name| name.ends_with("/mod.rs")).collect());
}

#[test]
fn dependencies_point_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("run cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        EDGES.iter().map(|(from, to)| (*from, to.iter().copied().collect())).collect();
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let from = package["name"].as_str().expect("a name");
        let Some(allowed) = allowed.get(from) else {
            problems.push(format!("{from} is not in this test's table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"].as_str().expect("a name");
            // A test may lean on the real thing: dev-dependencies are no edge of the house.
            let dev = dependency["kind"] == "dev";
            if to.starts_with("coracle") && !dev && !allowed.contains(to) {
                problems.push(format!("{from} must not depend on {to}"));
            }
            if to == "libcontainer" && from != "coracle-shim" {
                problems.push(format!("{from} must not link libcontainer: only the shim's package may"));
            }
        }
    }
    report(problems);
}

#[test]
fn namespaces_are_entered_in_two_places_only() {
    let home =
        |name: &str| name.starts_with("cni/netns/") || name.starts_with("agent/shim/") || name.starts_with("tests/");
    let problems = sources().into_iter().filter(|(name, _)| !home(name)).flat_map(|(name, text)| {
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let code = line.split("//").next().unwrap_or("");
            ["setns(", "unshare("].iter().any(|word| code.contains(word))
        });
        lines.map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim())).collect::<Vec<_>>()
    });
    report(problems.collect());
}

#[test]
fn examples_are_all_applied_by_a_test() {
    let text = fs::read_to_string(workspace().join("tests/tests/examples.rs")).expect("the test of the examples");
    let examples = fs::read_dir(workspace().join("examples")).expect("examples/");
    let manifests =
        examples.map(|entry| entry.expect("entry").path()).filter(|path| path.extension() == Some("yaml".as_ref()));
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let forgotten = manifests.map(|path: PathBuf| name(&path)).filter(|name| !text.contains(name.as_str()));
    report(forgotten.collect());
}
