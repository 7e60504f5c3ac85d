//! Alternatives: of several that do not fit, what is wrong with the best is told.
//!
//! Nothing in them is compared with what was before: an update is told all of it.

use serde_json::Value;

use super::Outcome;
use crate::{
    schema::{Junctors, Node},
    violation::Violations,
};

impl Junctors {
    pub(super) fn check(&self, value: &Value, path: &str, out: &mut Outcome) {
        self.check_any(value, path, out);
        self.check_one(value, path, out);
        self.check_all(value, path, out);
        if let Some(not) = &self.not
            && not.check(value, None, path).is_valid()
        {
            tell(
                &mut out.violations,
                path,
                "must not validate the schema (not)",
            );
        }
    }

    fn check_any(&self, value: &Value, path: &str, out: &mut Outcome) {
        if self.any_of.is_empty() {
            return;
        }
        let mut best = Best::default();
        for node in &self.any_of {
            let found = node.check(value, None, path);
            if found.is_valid() {
                return out.merge(found);
            }
            best.take(found);
        }
        tell(
            &mut out.violations,
            path,
            "must validate at least one schema (anyOf)",
        );
        out.merge(best.0.unwrap_or_default());
    }

    fn check_one(&self, value: &Value, path: &str, out: &mut Outcome) {
        if self.one_of.is_empty() {
            return;
        }
        let (mut fit, mut best) = (Vec::new(), Best::default());
        for node in &self.one_of {
            let found = node.check(value, None, path);
            if found.is_valid() {
                fit.push(found);
            } else if fit.is_empty() {
                best.take(found);
            }
        }
        let count = fit.len();
        match fit.into_iter().next() {
            Some(found) if count == 1 => out.merge(found),
            Some(_) => {
                let what = format!(
                    "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                );
                tell(&mut out.violations, path, &what);
            }
            None => {
                let what = "must validate one and only one schema (oneOf). Found none valid";
                tell(&mut out.violations, path, what);
                out.merge(best.0.unwrap_or_default());
            }
        }
    }

    fn check_all(&self, value: &Value, path: &str, out: &mut Outcome) {
        let check = |node: &Node| node.check(value, None, path);
        let found: Vec<Outcome> = self.all_of.iter().map(check).collect();
        let fit = found.iter().filter(|found| found.is_valid()).count();
        let all = found.len();
        for one in found {
            out.merge(one);
        }
        if fit != all {
            let none = if fit == 0 { ". None validated" } else { "" };
            let what = format!("must validate all the schemas (allOf){none}");
            tell(&mut out.violations, path, &what);
        }
    }
}

/// The alternative of which most was fit, the first of several.
#[derive(Default)]
struct Best(Option<Outcome>);

impl Best {
    fn take(&mut self, found: Outcome) {
        let is_better = |best: &Outcome| found.matches > best.matches;
        if self.0.as_ref().is_none_or(is_better) {
            self.0 = Some(found);
        }
    }
}

/// Upstream loses the path on the way: it stands in the text alone.
fn tell(violations: &mut Violations, path: &str, what: &str) {
    violations.invalid("", &"".into(), format!("{path:?} {what}"));
}
