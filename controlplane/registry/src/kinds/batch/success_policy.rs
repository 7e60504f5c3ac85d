//! Checks of a Job's `successPolicy`: of which indexes, and of how many, the success is enough.
//!
//! Source: `validateSuccessPolicy`, `validateIndexesFormat`, `parseIndexInterval` in
//! `pkg/apis/batch/validation/validation.go` at v1.37: the messages are its own.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    check,
    value::{items, number},
};

const MAX_RULES: usize = 20;
/// Bytes of a rule's indexes.
const MAX_INDEXES_LEN: usize = 64 << 10;

/// The policy at `path` of a Job of so many completions.
pub(super) fn check(errors: &mut FieldErrors, path: &str, policy: &Value, completions: &Value) {
    let rules = items(&policy["rules"]);
    let path = format!("{path}.rules");
    if rules.is_empty() {
        errors.required(
            &path,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        success_rule(errors, &format!("{path}[{index}]"), rule, completions);
    }
}

/// What may be asked for of a Job of so many completions, if it says how many.
fn success_rule(errors: &mut FieldErrors, path: &str, rule: &Value, completions: &Value) {
    let (count, text) = (&rule["succeededCount"], &rule["succeededIndexes"]);
    if count.is_null() && text.is_null() {
        errors.required(
            path,
            "at least one of succeededCount or succeededIndexes must be specified",
        );
    }
    let count_path = format!("{path}.succeededCount");
    check::not_negative(errors, &count_path, count);
    let Some(completions) = completions.as_i64() else {
        return;
    };
    let mut most = |most: i64, what: &str| {
        if number(count) > most {
            let message = format!("must be less than or equal to {most} ({what})");
            errors.invalid(&count_path, count, message);
        }
    };
    most(completions, "the number of specified completions");
    let Some(indexes) = text.as_str() else { return };
    let counted = count_indexes(indexes, completions);
    if let Ok(total) = counted {
        let what = "the number of indexes in the specified succeededIndexes field";
        most(total, what);
    }
    let path = format!("{path}.succeededIndexes");
    if indexes.len() > MAX_INDEXES_LEN {
        errors.too_long(&path, text, MAX_INDEXES_LEN);
    }
    if let Err(why) = counted {
        errors.invalid(
            &path,
            text,
            format!("error parsing succeededIndexes: {why}"),
        );
    }
}

/// How many indexes a text names, or why it names none.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut count, mut before) = (0, None);
    if text.is_empty() {
        return Ok(count);
    }
    for piece in text.split(',') {
        let (first, last) = interval(piece, completions)?;
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(not_increasing(before, first));
        }
        count += last - first + 1;
        before = Some(last);
    }
    Ok(count)
}

fn interval(piece: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut limits = piece.split('-');
    let first = index(limits.next().unwrap_or_default(), completions);
    let last = limits.next();
    if limits.next().is_some() {
        return Err(format!(
            "the fragment {piece:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let first = first?;
    let last = last.map(|last| index(last, completions)).transpose()?;
    match last {
        Some(last) if first >= last => Err(not_increasing(first, last)),
        Some(last) => Ok((first, last)),
        None => Ok((first, first)),
    }
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(index) if index < completions => Ok(index),
        Ok(_) => Err(format!("too large index: {text:?}")),
        Err(_) => Err(format!(
            "cannot convert string to integer for index: {text:?}"
        )),
    }
}

fn not_increasing(before: i64, now: i64) -> String {
    format!("non-increasing order, previous: {before}, current: {now}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestValidateIndexesString`.
    #[test]
    fn indexes_are_in_order_and_of_the_job() {
        let table = [
            ("", 6, Ok(0)),
            ("5-9", 15, Ok(5)),
            ("0,2-4,7", 8, Ok(5)),
            ("1,3-5,6", 8, Ok(5)),
            (
                "x",
                6,
                Err("cannot convert string to integer for index: \"x\""),
            ),
            (
                "1,",
                6,
                Err("cannot convert string to integer for index: \"\""),
            ),
            ("6", 6, Err("too large index: \"6\"")),
            ("3-6", 6, Err("too large index: \"6\"")),
            (
                "2-1",
                6,
                Err("non-increasing order, previous: 2, current: 1"),
            ),
            (
                "4,3",
                6,
                Err("non-increasing order, previous: 4, current: 3"),
            ),
            (
                "0-1-2",
                6,
                Err(
                    "the fragment \"0-1-2\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
        ];
        for (text, completions, expect) in table {
            let expect = expect.map_err(str::to_owned);
            assert_eq!(count_indexes(text, completions), expect, "{text}");
        }
    }
}
