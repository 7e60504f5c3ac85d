//! Circles of files: files of one crate that import each other, one way round and back. Each
//! crate's largest is written down here and may only shrink.
//!
//! Read off the text: `use` trees and paths that begin with `crate`, `super`, `self`, a module that
//! stands below the file or a name that it imports. Tests are no part of it. What a macro's text
//! names is not seen, so a figure is a lower bound.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use syn::visit::Visit;

use super::{attributes, is_of_tests, is_test_file, parse, report, sources};

/// Files in the largest circle of each crate that has one. No number grows; who makes a circle
/// smaller takes its number along.
const LARGEST: &[(&str, usize)] = &[
    ("controlplane/apiserver", 2),
    ("controlplane/controllers", 2),
    ("controlplane/registry", 4),
    ("controlplane/store", 2),
];

#[test]
fn circles_of_files_only_shrink() {
    let bounds: BTreeMap<&str, usize> = LARGEST.iter().copied().collect();
    let sources = sources();
    let problems = crates(&sources).into_iter().filter_map(|(name, files)| {
        let largest = largest_circle(&arrows(&files));
        let (found, bound) = (
            largest.len(),
            bounds.get(name.as_str()).copied().unwrap_or_default(),
        );
        println!("{name}: {found}");
        (found > bound).then(|| {
            format!("{name}: the largest circle has {found} files, not {bound}: {largest:?}")
        })
    });
    report(problems.collect());
}

/// The files of each crate by module path, such as `serve::tls`; the root's is empty.
fn crates(sources: &[(String, String)]) -> BTreeMap<String, BTreeMap<String, syn::File>> {
    let mut crates: BTreeMap<String, BTreeMap<String, syn::File>> = BTreeMap::new();
    for (name, text) in sources.iter().filter(|(name, _)| !is_test_file(name)) {
        let Some((directory, file)) = name
            .split_once("src/")
            .filter(|(_, file)| !file.starts_with("bin/"))
        else {
            continue;
        };
        let module = Path::new(file)
            .with_extension("")
            .to_string_lossy()
            .replace('/', "::");
        let module = if matches!(module.as_str(), "lib" | "main") {
            String::new()
        } else {
            module
        };
        let directory = if directory.is_empty() {
            "."
        } else {
            directory.trim_end_matches('/')
        };
        crates
            .entry(directory.to_owned())
            .or_default()
            .insert(module, parse(name, text));
    }
    crates
}

/// Which module imports which.
fn arrows(files: &BTreeMap<String, syn::File>) -> Arrows<'_> {
    let roots = files
        .get("")
        .map(|root| imports(root, ""))
        .unwrap_or_default();
    let of_file = |(module, file): (&'_ String, &syn::File)| {
        let names = imports(file, module);
        let mut paths = Paths {
            found: names.values().cloned().collect(),
            module,
            names: &names,
            files,
        };
        paths.visit_file(file);
        // What the root hands on is another file's.
        let handed_on = |path: &Vec<String>| match path.as_slice() {
            [name] => roots.get(name).cloned().unwrap_or_else(|| path.clone()),
            _ => path.clone(),
        };
        let found: BTreeSet<String> = paths
            .found
            .iter()
            .map(handed_on)
            .filter_map(|path| place(&path, files))
            .collect();
        (module.clone(), found)
    };
    let found: HashMap<String, BTreeSet<String>> = files.iter().map(of_file).collect();
    files
        .keys()
        .map(|module| {
            let targets = found
                .get(module)
                .into_iter()
                .flatten()
                .filter(|target| *target != module);
            (
                module.as_str(),
                targets
                    .filter_map(|target| files.get_key_value(target))
                    .map(|(key, _)| key.as_str())
                    .collect(),
            )
        })
        .collect()
}

/// The file that a path leads into. The root belongs to nobody: what it only declares is no import.
fn place(path: &[String], files: &BTreeMap<String, syn::File>) -> Option<String> {
    (1..=path.len())
        .rev()
        .map(|length| path[..length].join("::"))
        .find(|module| files.contains_key(module))
}

/// The names that a file imports from its crate, with their paths from the root.
fn imports(file: &syn::File, module: &str) -> HashMap<String, Vec<String>> {
    let mut names = HashMap::new();
    for item in file
        .items
        .iter()
        .filter(|item| !is_of_tests(attributes(item)))
    {
        if let syn::Item::Use(item) = item {
            collect(&item.tree, &mut Vec::new(), &mut |path, name| {
                if let Some(path) = absolute(path, module) {
                    names.insert(name.to_owned(), path);
                } else if file_declares(file, &path[0]) {
                    let below = module
                        .split("::")
                        .filter(|part| !part.is_empty())
                        .map(str::to_owned);
                    names.insert(name.to_owned(), below.chain(path.iter().cloned()).collect());
                }
            });
        }
    }
    names
}

fn file_declares(file: &syn::File, module: &str) -> bool {
    file.items.iter().any(|item| matches!(item, syn::Item::Mod(item) if item.ident == module && item.content.is_none()))
}

/// Calls `found` with the path and the name of each leaf of a `use` tree.
fn collect(tree: &syn::UseTree, path: &mut Vec<String>, found: &mut impl FnMut(&[String], &str)) {
    match tree {
        syn::UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            collect(&tree.tree, path, found);
            path.pop();
        }
        syn::UseTree::Name(tree) if tree.ident == "self" => {
            found(path, path.last().map_or("", String::as_str))
        }
        syn::UseTree::Name(tree) => leaf(
            path,
            &tree.ident.to_string(),
            &tree.ident.to_string(),
            found,
        ),
        syn::UseTree::Rename(tree) => leaf(
            path,
            &tree.ident.to_string(),
            &tree.rename.to_string(),
            found,
        ),
        syn::UseTree::Glob(_) => found(path, "*"),
        syn::UseTree::Group(tree) => tree
            .items
            .iter()
            .for_each(|tree| collect(tree, path, found)),
    }
}

fn leaf(path: &mut Vec<String>, last: &str, name: &str, found: &mut impl FnMut(&[String], &str)) {
    path.push(last.to_owned());
    found(path, name);
    path.pop();
}

/// A path of this crate from its root; `None` if it begins otherwise.
fn absolute(path: &[String], module: &str) -> Option<Vec<String>> {
    let here: Vec<String> = module
        .split("::")
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some(here.into_iter().chain(path[1..].iter().cloned()).collect()),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            let base = here.len().checked_sub(up)?;
            Some(here[..base].iter().chain(&path[up..]).cloned().collect())
        }
        _ => None,
    }
}

/// Collects the paths that stand in code.
struct Paths<'a> {
    module: &'a str,
    names: &'a HashMap<String, Vec<String>>,
    files: &'a BTreeMap<String, syn::File>,
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if let Some(path) = absolute(&parts, self.module) {
            self.found.push(path);
        } else if parts.len() > 1 {
            let below = if self.module.is_empty() {
                parts[0].clone()
            } else {
                format!("{}::{}", self.module, parts[0])
            };
            if let Some(imported) = self.names.get(&parts[0]) {
                self.found
                    .push(imported.iter().chain(&parts[1..]).cloned().collect());
            } else if self.files.contains_key(&below) {
                self.found.push(
                    below
                        .split("::")
                        .map(str::to_owned)
                        .chain(parts.into_iter().skip(1))
                        .collect(),
                );
            }
        }
        syn::visit::visit_path(self, path);
    }
}

type Arrows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The largest circle; empty if there is none. A file and those in its folder may know each other:
/// where all of a circle stand below one of them, that one is left out and the rest looked at
/// again.
fn largest_circle<'a>(arrows: &Arrows<'a>) -> BTreeSet<&'a str> {
    let largest = circles(arrows).into_iter().map(|circle| {
        let is_head = |head: &&&str| {
            circle
                .iter()
                .all(|one| one == *head || one.starts_with(&format!("{head}::")))
        };
        let Some(head) = circle.iter().find(is_head) else {
            return circle;
        };
        let rest = circle.iter().filter(|one| *one != head);
        let below = |one: &&'a str| {
            arrows[one]
                .iter()
                .copied()
                .filter(|to| to != head && circle.contains(to))
                .collect()
        };
        largest_circle(&rest.map(|one| (*one, below(one))).collect())
    });
    largest.max_by_key(BTreeSet::len).unwrap_or_default()
}

/// Sets of modules that reach each other.
///
/// Kosaraju's two walks: once to order by when each is left, once against the arrows.
fn circles<'a>(arrows: &Arrows<'a>) -> Vec<BTreeSet<&'a str>> {
    let mut against: Arrows<'a> = BTreeMap::new();
    for (from, targets) in arrows {
        for to in targets {
            against.entry(to).or_default().insert(from);
        }
    }
    let (mut seen, mut left) = (BTreeSet::new(), Vec::new());
    arrows
        .keys()
        .for_each(|module| walk(module, arrows, &mut seen, &mut left));
    let mut seen = BTreeSet::new();
    let circles = left.iter().rev().map(|module| {
        let mut circle = Vec::new();
        walk(module, &against, &mut seen, &mut circle);
        circle.into_iter().collect::<BTreeSet<_>>()
    });
    circles.filter(|circle| circle.len() > 1).collect()
}

fn walk<'a>(
    module: &'a str,
    arrows: &Arrows<'a>,
    seen: &mut BTreeSet<&'a str>,
    left: &mut Vec<&'a str>,
) {
    if seen.insert(module) {
        arrows
            .get(module)
            .into_iter()
            .flatten()
            .for_each(|next| walk(next, arrows, seen, left));
        left.push(module);
    }
}

#[test]
fn a_circle_is_found_whichever_way_it_is_imported() {
    let circle = |files: &[(&str, &str)]| {
        let parsed = |(module, text): &(&str, &str)| ((*module).to_owned(), parse(module, text));
        let files: BTreeMap<String, syn::File> = files.iter().map(parsed).collect();
        largest_circle(&arrows(&files))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (root, b) = ("mod a; mod b; pub use a::A;", "pub struct B;");
    assert!(circle(&[("", root), ("a", "use crate::b::B;"), ("b", b)]).is_empty());
    assert!(
        circle(&[
            ("", root),
            ("a", "use crate::b::B;"),
            ("b", "#[cfg(test)] use crate::a::A;")
        ])
        .is_empty()
    );
    for back in [
        "use crate::{x, a::{self, A}};",
        "use super::A;",
        "fn f(_: crate::A) {}",
        "use crate::a; fn f(_: a::A) {}",
    ] {
        assert_eq!(
            circle(&[("", root), ("a", "use crate::b::B;"), ("b", back)]),
            ["a", "b"],
            "{back}"
        );
    }
    let (above, below) = (
        ("a", "mod c; mod d; use crate::b::B; fn f() { c::g() }"),
        ("a::c", "use super::f;"),
    );
    assert!(
        circle(&[above, below, ("a::d", ""), ("b", b)]).is_empty(),
        "a folder is one room"
    );
    assert_eq!(
        circle(&[above, below, ("a::d", ""), ("b", "use crate::a::c::g;")]),
        ["a", "a::c", "b"]
    );
    let beside = ("a::c", "use super::{f, d::h};");
    assert_eq!(
        circle(&[above, beside, ("a::d", "use super::{c, f};"), ("b", b)]),
        ["a::c", "a::d"]
    );
}
