//! Many things by their labels, for who has to ask many selectors about all of them.
//!
//! To ask each of m selectors about each of n things takes m x n questions, and m is for whoever
//! writes a pod to choose. Here a requirement is answered for all things at once, 64 to a word, by
//! what is known of the label and the values that it names: the work goes with what is written,
//! times n / 64 at worst.

use std::collections::{BTreeMap, HashMap};

use coracle_api::selector::{LabelSelector, Operator};

use crate::bits::Bits;

/// Things by label and value, as bit sets. Things are numbered as they were given.
#[derive(Debug)]
pub(crate) struct Postings<'a> {
    len: usize,
    keys: HashMap<&'a str, Key<'a>>,
}

/// Who has a label, and with which value.
#[derive(Debug, Default)]
struct Key<'a> {
    any: Posting,
    values: HashMap<&'a str, Posting>,
}

/// Some of the things: few by number, many as bits, so that none of them takes long.
#[derive(Debug)]
enum Posting {
    Few(Vec<usize>),
    Many(Bits),
}

impl Default for Posting {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Posting {
    fn push(&mut self, number: usize) {
        if let Self::Few(numbers) = self {
            numbers.push(number);
        }
    }

    fn finish(&mut self, len: usize) {
        let Self::Few(numbers) = self else { return };
        if numbers.len() > len / 64 + 1 {
            let mut bits = Bits::none(len);
            numbers.iter().for_each(|number| bits.insert(*number));
            *self = Self::Many(bits);
        }
    }

    fn unite_into(&self, bits: &mut Bits) {
        match self {
            Self::Few(numbers) => numbers.iter().for_each(|number| bits.insert(*number)),
            Self::Many(many) => bits.unite(many),
        }
    }

    fn subtract_from(&self, bits: &mut Bits) {
        match self {
            Self::Few(numbers) => numbers.iter().for_each(|number| bits.remove(*number)),
            Self::Many(many) => bits.subtract(many),
        }
    }
}

impl<'a> Postings<'a> {
    pub(crate) fn of(things: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let (mut len, mut keys) = (0, HashMap::<&str, Key<'_>>::new());
        for (number, labels) in things.enumerate() {
            len = number + 1;
            for (key, value) in labels {
                let key = keys.entry(key).or_default();
                key.any.push(number);
                key.values.entry(value).or_default().push(number);
            }
        }
        for key in keys.values_mut() {
            key.any.finish(len);
            key.values
                .values_mut()
                .for_each(|posting| posting.finish(len));
        }
        Self { len, keys }
    }

    /// Those that a selector selects.
    pub(crate) fn selected(&self, selector: &LabelSelector) -> Bits {
        if *selector == LabelSelector::nothing() {
            return Bits::none(self.len);
        }
        let mut selected = Bits::all(self.len);
        for requirement in selector.requirements() {
            self.narrow(
                &mut selected,
                &requirement.key,
                requirement.operator,
                &requirement.values,
            );
            if selected.is_empty() {
                break;
            }
        }
        selected
    }

    /// Keeps those of which a label is as required.
    pub(crate) fn narrow(
        &self,
        selected: &mut Bits,
        key: &str,
        operator: Operator,
        values: &[String],
    ) {
        #[cfg(test)]
        work::done(1 + values.len());
        let known = self.keys.get(key);
        let listed = || {
            values
                .iter()
                .filter_map(|value| known?.values.get(value.as_str()))
        };
        let mut kept = Bits::none(self.len);
        match operator {
            Operator::NotIn => return listed().for_each(|posting| posting.subtract_from(selected)),
            Operator::DoesNotExist => {
                return known.iter().for_each(|key| key.any.subtract_from(selected));
            }
            Operator::In => listed().for_each(|posting| posting.unite_into(&mut kept)),
            Operator::Exists => known.iter().for_each(|key| key.any.unite_into(&mut kept)),
            Operator::GreaterThan | Operator::LessThan => {
                let asked = values.first().and_then(|value| value.parse::<i64>().ok());
                for (value, posting) in known.iter().flat_map(|key| &key.values) {
                    let compared = value.parse::<i64>().ok().zip(asked);
                    let greater = operator == Operator::GreaterThan;
                    if compared
                        .is_some_and(|(has, asked)| if greater { has > asked } else { has < asked })
                    {
                        posting.unite_into(&mut kept);
                    }
                }
            }
        }
        selected.intersect(&kept);
    }
}

/// What tests count in place of time.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local!(static DONE: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn done(more: usize) {
        DONE.set(DONE.get() + more);
    }

    /// What was done on this thread since this was asked last.
    pub(crate) fn taken() -> usize {
        DONE.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

    /// Operator, key, values.
    fn requirement() -> impl Strategy<Value = Value> {
        (
            0..4_usize,
            0..3_usize,
            proptest::collection::vec(0..4_usize, 1..3),
        )
            .prop_map(|(operator, key, values)| {
                let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
                let values = if operator < 2 {
                    json!(texts)
                } else {
                    json!([])
                };
                json!({"key": format!("k{key}"), "operator": OPERATORS[operator], "values": values})
            })
    }

    proptest! {
        /// Asking all at once has to come to the same as asking each.
        #[test]
        fn the_same_are_selected_as_by_asking_each(
            things in proptest::collection::vec(proptest::collection::btree_map(0..3_usize, 0..4_usize, 0..3), 0..200),
            requirements in proptest::collection::vec(requirement(), 0..4),
            compared in (0..3_usize, any::<bool>(), 0..4_usize),
        ) {
            let labels = |thing: &BTreeMap<usize, usize>| -> BTreeMap<String, String> {
                thing.iter().map(|(key, value)| (format!("k{key}"), value.to_string())).collect()
            };
            let things: Vec<_> = things.iter().map(labels).collect();
            let postings = Postings::of(things.iter());
            for selector in [LabelSelector::from_object(&json!({"matchExpressions": requirements})).expect("a selector"),
                LabelSelector::parse(&format!("k{}{}{}", compared.0, if compared.1 { ">" } else { "<" }, compared.2))
                    .expect("a selector"), LabelSelector::nothing()]
            {
                let expected: Vec<usize> = (0..things.len())
                    .filter(|number| selector.matches(|key| things[*number].get(key).map(String::as_str)))
                    .collect();
                prop_assert_eq!(postings.selected(&selector).iter().collect::<Vec<_>>(), expected, "{}", selector);
            }
        }
    }
}
