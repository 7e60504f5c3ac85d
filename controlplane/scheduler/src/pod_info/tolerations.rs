//! What a pod tolerates, so that a taint is looked up and not compared with each toleration.
//!
//! The rule is that of `coracle_api::scheduling::tolerates`.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Sorted, each once: key, value or `None` for every value, effect. An empty key stands for every
/// key, an empty effect for every effect. How long a taint is tolerated is nothing to the
/// scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tolerations(Vec<(String, Option<String>, String)>);

impl Tolerations {
    pub(crate) fn of(tolerations: &[Toleration]) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let known = tolerations.iter().filter_map(|toleration| {
            let value = match toleration.operator.as_deref().unwrap_or_default() {
                "Exists" => None,
                "" | "Equal" => Some(text(&toleration.value)),
                _ => return None,
            };
            Some((text(&toleration.key), value, text(&toleration.effect)))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        known.dedup();
        Self(known)
    }

    pub(crate) fn tolerate(&self, taint: &Taint) -> bool {
        let value = taint.value.as_deref().unwrap_or_default();
        let listed = |key: &str, value: Option<&str>, effect: &str| {
            let sought = (key, value, effect);
            self.0
                .binary_search_by(|(key, value, effect)| {
                    (&**key, value.as_deref(), &**effect).cmp(&sought)
                })
                .is_ok()
        };
        !self.0.is_empty()
            && [taint.key.as_str(), ""].into_iter().any(|key| {
                let effects = |value| listed(key, value, &taint.effect) || listed(key, value, "");
                effects(None) || effects(Some(value))
            })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use coracle_api::scheduling::tolerates_any;
    use proptest::prelude::*;

    use super::*;

    fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
        proptest::option::of(proptest::sample::select(texts).prop_map(str::to_owned))
    }

    proptest! {
        #[test]
        fn a_taint_is_tolerated_as_if_each_toleration_were_asked(
            tolerations in proptest::collection::vec(
                (one_of(&["", "a", "b"]), one_of(&["", "Exists", "Equal", "Gt"]), one_of(&["", "1", "2"]),
                    one_of(&["", "NoSchedule", "NoExecute"])), 0..6),
            taint in (one_of(&["a", "b"]), one_of(&["", "1", "2"]), one_of(&["NoSchedule", "NoExecute"])),
        ) {
            let tolerations: Vec<_> = tolerations.into_iter().map(|(key, operator, value, effect)|
                Toleration { key, operator, value, effect, toleration_seconds: None }).collect();
            let (key, value, effect) = taint;
            let (key, effect) = (key.unwrap_or_default(), effect.unwrap_or_default());
            let taint = Taint { key, value, effect, time_added: None };
            prop_assert_eq!(Tolerations::of(&tolerations).tolerate(&taint), tolerates_any(&tolerations, &taint));
        }
    }
}
