//! The pods on nodes, all of one namespace with the same labels as one, and which of them terms
//! mean.
//!
//! A few terms ask each kind of pods. Of many, each is answered for all kinds at once: whoever
//! writes a pod chooses how many.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use super::Places;
use crate::{
    bits::Bits,
    label_counts::{LabelGroup, Labels},
    pod_info::{AffinityTerm, PodInfo},
    postings::Postings,
    snapshot::Snapshot,
};

/// How much may be written in terms that ask each kind.
const FEW: usize = 64;

/// The pods on nodes by kind: one namespace, the same labels.
pub(super) struct Kinds<'a> {
    snapshot: &'a Snapshot<'a>,
    list: Vec<Kind<'a>>,
    index: Option<Index<'a>>,
}

struct Kind<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    group: &'a LabelGroup,
}

/// For many terms.
struct Index<'a> {
    labels: Postings<'a>,
    /// By the labels of their namespaces.
    of_namespaces: Postings<'a>,
    by_namespace: HashMap<&'a str, Range<usize>>,
    /// The labels that any node has.
    places: HashSet<&'a str>,
}

impl<'a> Kinds<'a> {
    /// Those that these terms of `pod` may mean.
    pub(super) fn of<'b>(
        pod: &PodInfo,
        mut terms: impl Iterator<Item = &'b AffinityTerm>,
        snapshot: &'a Snapshot<'a>,
    ) -> Self {
        let mut list = Vec::new();
        let mut add = |namespace: &'a str| {
            let start = list.len();
            let kinds = snapshot.label_counts().of(namespace);
            list.extend(kinds.map(|(labels, group)| Kind {
                namespace,
                labels,
                group,
            }));
            (namespace, start..list.len())
        };
        let named = terms.try_fold(BTreeSet::new(), |mut named, term| {
            named.extend(term.only_in()?.iter().map(String::as_str));
            Some(named)
        });
        let is_named =
            |namespace: &&str| named.as_ref().is_none_or(|named| named.contains(namespace));
        let by_namespace = snapshot
            .label_counts()
            .namespaces()
            .filter(is_named)
            .map(&mut add)
            .collect();
        let index = (pod.terms.length() > FEW).then(|| Index::of(&list, by_namespace, snapshot));
        Self {
            snapshot,
            list,
            index,
        }
    }

    pub(super) fn none(&self) -> Bits {
        Bits::none(self.list.len())
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Those that a term means.
    pub(super) fn meant(&self, term: &AffinityTerm) -> Bits {
        if let Some(index) = &self.index {
            return index.meant(term);
        }
        let mut meant = self.none();
        for (number, kind) in self.list.iter().enumerate() {
            if term.matches(kind.namespace, kind.labels, self.snapshot.namespaces()) {
                meant.insert(number);
            }
        }
        meant
    }

    /// Whether it is worth asking who is where by this label.
    pub(super) fn has_places(&self, key: &str) -> bool {
        self.index
            .as_ref()
            .is_none_or(|index| index.places.contains(key))
    }

    /// Adds so much for each pod of a kind, where it is.
    pub(super) fn add(
        &self,
        places: &mut Places,
        key: &str,
        kinds: impl Iterator<Item = (usize, i64)>,
    ) {
        if !self.has_places(key) {
            return;
        }
        for (number, amount) in kinds {
            for (node, count) in self.list[number].group.on() {
                if let Some(node) = self.snapshot.node(node) {
                    places.add(node, key, amount * count);
                }
            }
        }
    }
}

impl<'a> Index<'a> {
    fn of(
        list: &[Kind<'a>],
        by_namespace: HashMap<&'a str, Range<usize>>,
        snapshot: &'a Snapshot<'a>,
    ) -> Self {
        static UNLABELLED: Labels = BTreeMap::new();
        let of_namespace = |kind: &Kind<'a>| {
            snapshot
                .namespaces()
                .labels(kind.namespace)
                .unwrap_or(&UNLABELLED)
        };
        Self {
            labels: Postings::of(list.iter().map(|kind| kind.labels)),
            of_namespaces: Postings::of(list.iter().map(of_namespace)),
            by_namespace,
            places: snapshot
                .nodes()
                .iter()
                .flat_map(|node| node.labels.keys().map(String::as_str))
                .collect(),
        }
    }

    fn meant(&self, term: &AffinityTerm) -> Bits {
        let mut meant = self.labels.selected(&term.selector);
        if meant.is_empty() {
            return meant;
        }
        let mut there = self.of_namespaces.selected(&term.namespace_selector);
        for range in term
            .namespaces
            .iter()
            .filter_map(|namespace| self.by_namespace.get(namespace.as_str()))
        {
            there.insert_range(range.clone());
        }
        meant.intersect(&there);
        meant
    }
}
