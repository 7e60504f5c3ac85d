//! The shape of the code, checked: file and function lengths, headers, one-way dependencies, where
//! `unsafe` is, words that must not occur.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use coracle_tests::workspace;
use proc_macro2::Span;
use syn::{spanned::Spanned, visit::Visit};

#[path = "tidy/circles.rs"]
mod circles;

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
    ("coracle-client", &["coracle-telemetry", "coracle-api"]),
    ("coracle-relay", &[]),
    ("coracle-telemetry", &[]),
    ("coracle-store", &["coracle-telemetry"]),
    (
        "coracle-registry",
        &["coracle-telemetry", "coracle-api", "coracle-store"],
    ),
    (
        "coracle-auth",
        &["coracle-api", "coracle-store", "coracle-registry"],
    ),
    (
        "coracle-admission",
        &[
            "coracle-api",
            "coracle-store",
            "coracle-registry",
            "coracle-auth",
        ],
    ),
    (
        "coracle-apiserver",
        &[
            "coracle-telemetry",
            "coracle-api",
            "coracle-relay",
            "coracle-store",
            "coracle-registry",
            "coracle-auth",
            "coracle-admission",
        ],
    ),
    (
        "coracle-scheduler",
        &["coracle-telemetry", "coracle-api", "coracle-client"],
    ),
    (
        "coracle-controllers",
        &["coracle-telemetry", "coracle-api", "coracle-client"],
    ),
    (
        "coracle-controlplane",
        &[
            "coracle-telemetry",
            "coracle-api",
            "coracle-store",
            "coracle-apiserver",
            "coracle-scheduler",
            "coracle-controllers",
        ],
    ),
    ("coracle-netns", &[]),
    ("coracle-bpf", &[]),
    ("coracle-netfilter", &["coracle-telemetry"]),
    (
        "coracle-cni",
        &[
            "coracle-telemetry",
            "coracle-bpf",
            "coracle-netfilter",
            "coracle-netns",
        ],
    ),
    ("coracle-shim-protocol", &[]),
    ("coracle-shim", &["coracle-bpf", "coracle-shim-protocol"]),
    (
        "coracle-agent",
        &[
            "coracle-telemetry",
            "coracle-api",
            "coracle-client",
            "coracle-relay",
            "coracle-netfilter",
            "coracle-cni",
            "coracle-netns",
            "coracle-shim-protocol",
        ],
    ),
    ("coracle-tests", &[]),
    (
        "coracle-fuzz",
        &[
            "coracle-api",
            "coracle-apiserver",
            "coracle-agent",
            "coracle-shim",
        ],
    ),
    (
        "coracle",
        &["coracle-telemetry", "coracle-controlplane", "coracle-agent"],
    ),
];

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

#[test]
fn files_are_short() {
    let problems = sources()
        .into_iter()
        .filter(|(name, _)| !is_test_file(name))
        .filter_map(|(name, text)| {
            let lines = text.lines().count() - lines_of_tests(&parse(&name, &text));
            let excused = LONG_FILES.iter().any(|(file, _)| *file == name);
            (lines > FILE_LINES_MAX && !excused)
                .then(|| format!("{name}: {lines} lines besides its tests"))
        });
    report(problems.collect());
}

#[test]
fn functions_are_short() {
    let problems = sources()
        .into_iter()
        .filter(|(name, _)| !is_test_file(name))
        .flat_map(|(name, text)| {
            let functions = functions_of(&parse(&name, &text));
            functions.into_iter().filter_map(move |(function, span)| {
                let lines = lines(span);
                let full = format!("{name}: {function}");
                let excused = LONG_FUNCTIONS.iter().any(|(known, _)| *known == full);
                (lines > FUNCTION_LINES_MAX && !excused)
                    .then(|| format!("{full} (line {}) has {lines} lines", span.start().line))
            })
        });
    report(problems.collect());
}

fn parse(name: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn lines(span: Span) -> usize {
    span.end().line - span.start().line + 1
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

fn lines_of_tests(file: &syn::File) -> usize {
    let of_tests = file
        .items
        .iter()
        .filter(|item| is_of_tests(attributes(item)));
    of_tests.map(|item| lines(item.span())).sum()
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

/// Every function with a body outside of tests, namesakes too, and where it is.
fn functions_of(file: &syn::File) -> Vec<(String, Span)> {
    let mut functions = Functions::default();
    functions.visit_file(file);
    functions.0
}

#[derive(Default)]
struct Functions(Vec<(String, Span)>);

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.0.push((item.sig.ident.to_string(), item.block.span()));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.0.push((item.sig.ident.to_string(), item.block.span()));
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.0.extend(
            item.default
                .iter()
                .map(|block| (item.sig.ident.to_string(), block.span())),
        );
        syn::visit::visit_trait_item_fn(self, item);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }
}

/// One tree a crate (`use std::{..}`), in three groups: std, crates, this crate.
#[test]
fn imports_have_one_style() {
    let problems = sources().into_iter().flat_map(|(name, text)| {
        let file = parse(&name, &text);
        let own = file.items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        });
        let own: BTreeSet<String> = own.collect();
        let roots = file.items.iter().filter_map(|item| match item {
            syn::Item::Use(item)
                if item.attrs.is_empty() && item.vis == syn::Visibility::Inherited =>
            {
                root(&item.tree)
            }
            _ => None,
        });
        let roots: Vec<String> = roots.collect();
        let group = |root: &str| match root {
            "std" | "core" | "alloc" => 0,
            "crate" | "self" | "super" => 2,
            root => 1 + u8::from(own.contains(root)),
        };
        let twice = roots.iter().collect::<BTreeSet<_>>().len() < roots.len();
        let unordered = !roots.is_sorted_by_key(|root| group(root));
        let problem = if twice {
            Some("a crate has two trees")
        } else {
            unordered.then_some("the groups are mixed")
        };
        problem.map(|problem| format!("{name}: {problem}: {}", roots.join(", ")))
    });
    report(problems.collect());
}

/// The first name of an import that has one.
fn root(tree: &syn::UseTree) -> Option<String> {
    match tree {
        syn::UseTree::Path(path) => Some(path.ident.to_string()),
        syn::UseTree::Name(name) => Some(name.ident.to_string()),
        syn::UseTree::Rename(name) => Some(name.ident.to_string()),
        syn::UseTree::Glob(_) | syn::UseTree::Group(_) => None,
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

/// What stands for work not done, or for a name that says nothing.
const WORDS: &[(&str, &str)] = &[
    ("TODO", "what is to be done is an issue, or done"),
    ("FIXME", "what is broken is mended"),
    ("XXX", "says nothing"),
    ("HACK", "say why it must be so"),
];
const MODULE_NAMES: &[&str] = &["utils", "util", "helpers", "common", "misc"];

#[test]
fn words_that_must_not_occur_do_not() {
    // This file has to name them.
    let sources = || {
        sources()
            .into_iter()
            .filter(|(name, _)| !name.ends_with("/tidy.rs"))
    };
    let words = sources().flat_map(|(name, text)| {
        let lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.to_owned()))
            .collect::<Vec<_>>();
        lines.into_iter().flat_map(move |(at, line)| {
            let in_line = |word: &str| {
                line.split(|c: char| !c.is_alphanumeric())
                    .any(|part| part == word)
            };
            let found = WORDS.iter().filter(|(word, _)| in_line(word));
            found
                .map(|(word, why)| format!("{name}:{at}: {word}: {why}"))
                .collect::<Vec<_>>()
        })
    });
    let names = sources().filter_map(|(name, _)| {
        let stem = Path::new(&name).file_stem()?.to_str()?;
        MODULE_NAMES
            .contains(&stem)
            .then(|| format!("{name}: the name does not say what is in it"))
    });
    report(words.chain(names).collect());
}

#[test]
fn every_file_says_what_it_is_for() {
    let problems = sources()
        .into_iter()
        .filter(|(name, text)| !text.starts_with("//!") && !is_unit_test(name));
    report(problems.map(|(name, _)| name).collect());
}

#[test]
fn no_module_is_called_mod_rs() {
    report(
        sources()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name.ends_with("/mod.rs"))
            .collect(),
    );
}

#[test]
fn dependencies_point_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("run cargo metadata");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> = EDGES
        .iter()
        .map(|(from, to)| (*from, to.iter().copied().collect()))
        .collect();
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
                problems.push(format!(
                    "{from} must not link libcontainer: only the shim's package may"
                ));
            }
        }
    }
    report(problems);
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

#[test]
fn examples_are_all_applied_by_a_test() {
    let text = fs::read_to_string(workspace().join("tests/tests/examples.rs"))
        .expect("the test of the examples");
    let examples = fs::read_dir(workspace().join("examples")).expect("examples/");
    let manifests = examples
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension() == Some("yaml".as_ref()));
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let forgotten = manifests
        .map(|path: PathBuf| name(&path))
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
