//! How long files, functions and lines are.

use proc_macro2::Span;
use syn::{spanned::Spanned, visit::Visit};

use super::{attributes, is_of_tests, is_test_file, parse, report, sources};

/// Lines of a file besides the tests in it. Files of tests have no others: they are measured whole.
const FILE_LINES_MAX: usize = 400;

/// Lines of a function. There are no exceptions.
const FUNCTION_LINES_MAX: usize = 70;

/// Characters of a line of comment, as rustfmt has it for code.
const COMMENT_WIDTH: usize = 100;

#[test]
fn files_are_short() {
    let problems = sources().into_iter().filter_map(|(name, text)| {
        let lines = text.lines().count() - lines_of_tests(&parse(&name, &text));
        (lines > FILE_LINES_MAX).then(|| format!("{name}: {lines} lines besides the tests in it"))
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
                (lines > FUNCTION_LINES_MAX).then(|| {
                    let line = span.start().line;
                    format!("{name}:{line}: {function} has {lines} lines")
                })
            })
        });
    report(problems.collect());
}

/// Tables and what is between fences cannot be wrapped; nor can one long word.
#[test]
fn comments_are_no_wider_than_code() {
    let problems = sources().into_iter().flat_map(|(name, text)| {
        let mut fenced = false;
        let too_wide = text.lines().enumerate().filter_map(|(index, line)| {
            let comment = line.trim_start();
            let said = comment.strip_prefix("//")?;
            let said = said.trim_start_matches(['/', '!']).trim_start();
            if said.starts_with("```") {
                fenced = !fenced;
            }
            let wraps = !fenced && !said.starts_with('|') && said.contains(' ');
            let width = line.chars().count();
            (wraps && width > COMMENT_WIDTH).then(|| format!("{name}:{}: {width}", index + 1))
        });
        too_wide.collect::<Vec<_>>()
    });
    report(problems.collect());
}

fn lines(span: Span) -> usize {
    span.end().line - span.start().line + 1
}

fn lines_of_tests(file: &syn::File) -> usize {
    let of_tests = file
        .items
        .iter()
        .filter(|item| is_of_tests(attributes(item)));
    of_tests.map(|item| lines(item.span())).sum()
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
