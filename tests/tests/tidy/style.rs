//! Imports, headers and names.

use std::{collections::BTreeSet, path::Path};

use super::{is_unit_test, parse, report, sources};

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
    // This test has to name them.
    let sources = || {
        sources()
            .into_iter()
            .filter(|(name, _)| !name.ends_with("/tidy/style.rs"))
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
