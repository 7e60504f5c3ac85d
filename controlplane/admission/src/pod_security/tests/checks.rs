//! Each check: what it lets in, what not, in which words, since which release.

mod confinement;
mod host;
mod privileges;
mod volumes;

use serde_json::{Value, json};

use super::{
    super::{pod::Pod, standard::in_force},
    asked, container, good, pod,
};

/// One check of a level, and at which minors it is asked.
#[derive(Clone, Copy)]
struct Check<'a> {
    level: &'a str,
    id: &'a str,
    reason: &'a str,
    minors: &'a [u64],
}

impl Check<'_> {
    /// What it says of a pod with these fields of its spec: one sentence, or nothing.
    fn spec(&self, spec: Value, expect: &str) {
        self.whole(&pod(spec), expect);
    }

    /// Of one whose only container besides that for debugging has this context.
    fn context(&self, context: Value, expect: &str) {
        self.spec(json!({"containers": [container("c", context)]}), expect);
    }

    fn whole(&self, pod: &Value, expect: &str) {
        for minor in self.minors {
            let asked = asked(&format!("{}:v1.{minor}", self.level));
            let found = in_force(asked).find(|(id, _)| *id == self.id);
            let (_, look) =
                found.unwrap_or_else(|| panic!("{} is in force at v1.{minor}", self.id));
            let found = look(Pod::of(pod));
            let told = found.map_or_else(String::new, |violation| {
                assert_eq!(
                    violation.reason, self.reason,
                    "{} at v1.{minor}: {pod}",
                    self.id
                );
                violation.detail
            });
            assert_eq!(told, expect, "{} at v1.{minor}: {pod}", self.id);
        }
    }

    fn at(&self, minors: &'static [u64]) -> Self {
        Check { minors, ..*self }
    }
}

fn baseline<'a>(id: &'a str, reason: &'a str) -> Check<'a> {
    Check {
        level: "baseline",
        id,
        reason,
        minors: &[0, 18, 34, 37, 99],
    }
}

fn restricted<'a>(id: &'a str, reason: &'a str, minors: &'a [u64]) -> Check<'a> {
    Check {
        level: "restricted",
        id,
        reason,
        minors,
    }
}

/// Of all kinds, in the order in which they are told.
fn three(context: Value) -> Value {
    json!({"initContainers": [container("i", context.clone())], "containers": [good("g"), container("c", context.clone())],
        "ephemeralContainers": [container("e", context)]})
}
