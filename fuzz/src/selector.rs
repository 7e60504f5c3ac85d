//! Label and field selectors: what is parsed, printed and parsed again is the same and selects the
//! same.

use coracle_api::selector::{FieldSelector, LabelSelector};

const VALUES: [Option<&str>; 5] = [None, Some(""), Some("a"), Some("5"), Some("b.c-d")];

/// `labelSelector`.
pub(crate) fn label(text: &str) {
    let Ok(selector) = LabelSelector::parse(text) else {
        return;
    };
    let again = LabelSelector::parse(&selector.to_string()).expect("its own text");
    assert_eq!(again, selector, "{selector}");
    for value in VALUES {
        assert_eq!(again.matches(|_| value), selector.matches(|_| value));
    }
    assert!(!selector.is_everything() || VALUES.iter().all(|value| selector.matches(|_| *value)));
}

/// `fieldSelector`.
pub(crate) fn field(text: &str) {
    let Ok(selector) = FieldSelector::parse(text) else {
        return;
    };
    let again = FieldSelector::parse(&selector.to_string()).expect("its own text");
    assert_eq!(again, selector, "{selector}");
    for value in VALUES {
        assert_eq!(again.matches(|_| value), selector.matches(|_| value));
    }
    for requirement in selector
        .requirements()
        .iter()
        .filter(|requirement| requirement.equals)
    {
        assert!(selector.exact(&requirement.field).is_some());
    }
}
