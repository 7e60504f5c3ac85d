//! Sets that are kept as long as a chain uses them, and what changed in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_netfilter::policy::{PortElement, SetChange};

use crate::{
    objects::{Labels, PodView},
    policy::{GroupSpec, PortGroupSpec},
};

/// What says which elements a pod has in a set.
pub(crate) trait SetSpec: Clone {
    type Element: Ord + Copy;

    fn group(&self) -> &GroupSpec;
    fn elements(&self, pod: &PodView) -> Vec<Self::Element>;
}

impl SetSpec for GroupSpec {
    type Element = IpAddr;

    fn group(&self) -> &GroupSpec {
        self
    }

    fn elements(&self, pod: &PodView) -> Vec<IpAddr> {
        pod.addresses.clone()
    }
}

impl SetSpec for PortGroupSpec {
    type Element = PortElement;

    fn group(&self) -> &GroupSpec {
        &self.group
    }

    fn elements(&self, pod: &PodView) -> Vec<PortElement> {
        self.elements(pod)
    }
}

#[derive(Debug, Clone)]
struct Live<S: SetSpec> {
    spec: S,
    chains: usize,
    /// How many pods have the element: an address may pass to the next pod before the last one
    /// is seen to be gone.
    elements: BTreeMap<S::Element, usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Pool<I, S: SetSpec> {
    live: BTreeMap<I, Live<S>>,
    /// Whether what was touched since the last change was there then.
    had_set: BTreeMap<I, bool>,
    had_element: BTreeMap<(I, S::Element), bool>,
}

impl<I, S: SetSpec> Default for Pool<I, S> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            had_set: BTreeMap::new(),
            had_element: BTreeMap::new(),
        }
    }
}

impl<I: Ord + Clone, S: SetSpec> Pool<I, S> {
    /// One more chain uses the set. `pods`: all there are, with the labels of their namespaces.
    pub(crate) fn acquire<'a>(
        &mut self,
        id: &I,
        spec: &S,
        pods: impl Iterator<Item = (&'a PodView, Option<&'a Labels>)>,
    ) {
        if let Some(live) = self.live.get_mut(id) {
            live.chains += 1;
            return;
        }
        self.had_set.entry(id.clone()).or_insert(false);
        let mut elements = BTreeMap::new();
        for (pod, namespace) in pods {
            if spec.group().selects(pod, namespace) {
                for element in spec.elements(pod) {
                    *elements.entry(element).or_insert(0) += 1;
                }
            }
        }
        for element in elements.keys() {
            let touched = (id.clone(), *element);
            self.had_element.entry(touched).or_insert(false);
        }
        let live = Live {
            spec: spec.clone(),
            chains: 1,
            elements,
        };
        self.live.insert(id.clone(), live);
    }

    /// One chain less uses the set.
    pub(crate) fn release(&mut self, id: &I) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        live.chains -= 1;
        if live.chains > 0 {
            return;
        }
        self.had_set.entry(id.clone()).or_insert(true);
        for (element, _) in self
            .live
            .remove(id)
            .into_iter()
            .flat_map(|live| live.elements)
        {
            self.had_element
                .entry((id.clone(), element))
                .or_insert(true);
        }
    }

    /// A pod came.
    pub(crate) fn add(&mut self, pod: &PodView, namespace: Option<&Labels>) {
        for (id, live) in &mut self.live {
            if live.spec.group().selects(pod, namespace) {
                live.add(id, pod, &mut self.had_element);
            }
        }
    }

    /// A pod went.
    pub(crate) fn remove(&mut self, pod: &PodView, namespace: Option<&Labels>) {
        for (id, live) in &mut self.live {
            if live.spec.group().selects(pod, namespace) {
                live.remove(id, pod, &mut self.had_element);
            }
        }
    }

    /// The labels of a namespace changed from `old` to `new`; `pods` are its pods.
    pub(crate) fn relabel<'a>(
        &mut self,
        old: Option<&Labels>,
        new: Option<&Labels>,
        pods: impl Iterator<Item = &'a PodView> + Clone,
    ) {
        for (id, live) in &mut self.live {
            for pod in pods.clone() {
                let group = live.spec.group();
                match (group.selects(pod, old), group.selects(pod, new)) {
                    (false, true) => live.add(id, pod, &mut self.had_element),
                    (true, false) => live.remove(id, pod, &mut self.had_element),
                    _ => {}
                }
            }
        }
    }

    /// All sets.
    pub(crate) fn sets(&self) -> BTreeMap<I, BTreeSet<S::Element>> {
        let set = |live: &Live<S>| live.elements.keys().copied().collect();
        self.live
            .iter()
            .map(|(id, live)| (id.clone(), set(live)))
            .collect()
    }

    /// What changed since the last call.
    pub(crate) fn changes(&mut self) -> SetChange<I, S::Element> {
        let mut change = SetChange::default();
        for (id, had) in std::mem::take(&mut self.had_set) {
            match (had, self.live.contains_key(&id)) {
                (false, true) => change.made.insert(id),
                (true, false) => change.removed.insert(id),
                _ => false,
            };
        }
        for ((id, element), had) in std::mem::take(&mut self.had_element) {
            let Some(live) = self.live.get(&id) else {
                continue;
            };
            let side = match (had, live.elements.contains_key(&element)) {
                (false, true) => &mut change.added,
                (true, false) => &mut change.dropped,
                _ => continue,
            };
            side.entry(id).or_default().insert(element);
        }
        change
    }
}

impl<S: SetSpec> Live<S> {
    fn add<I: Ord + Clone>(
        &mut self,
        id: &I,
        pod: &PodView,
        had: &mut BTreeMap<(I, S::Element), bool>,
    ) {
        for element in self.spec.elements(pod) {
            let count = self.elements.entry(element).or_insert(0);
            if *count == 0 {
                had.entry((id.clone(), element)).or_insert(false);
            }
            *count += 1;
        }
    }

    fn remove<I: Ord + Clone>(
        &mut self,
        id: &I,
        pod: &PodView,
        had: &mut BTreeMap<(I, S::Element), bool>,
    ) {
        for element in self.spec.elements(pod) {
            let Some(count) = self.elements.get_mut(&element) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.elements.remove(&element);
                had.entry((id.clone(), element)).or_insert(true);
            }
        }
    }
}
