//! Where in an object a value is, and whether it is as it was.

use std::{cell::OnceCell, fmt};

use serde_json::Value;

/// The way to a value, put into words when there is something to tell of it.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// What stands before it; nothing for an object itself.
    Root(&'a str),
    Child(&'a Path<'a>, &'a str),
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

/// A value and what it was before.
pub(super) struct Pair<'a> {
    new: &'a Value,
    old: &'a Value,
    is_same: OnceCell<bool>,
}

/// What is known of a value's past, to leave out what was wrong before.
#[derive(Clone, Copy, Default)]
pub(super) struct Was<'a> {
    /// Of itself, if it is known which value it was.
    current: Option<&'a Pair<'a>>,
    /// Of the next around it of which that is known.
    around: Option<&'a Pair<'a>>,
}

impl Path<'_> {
    /// With a field below it.
    pub(super) fn with(&self, field: &str) -> String {
        match (self, field) {
            (Self::Root(""), "") => "<nil>".to_owned(),
            (Self::Root(""), field) => field.to_owned(),
            (path, "") => path.to_string(),
            (path, field) => format!("{path}.{field}"),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(text) | Self::Child(Self::Root(""), text) => f.write_str(text),
            Self::Child(before, name) => write!(f, "{before}.{name}"),
            Self::Key(before, name) => write!(f, "{before}[{name}]"),
            Self::Index(before, at) => write!(f, "{before}[{at}]"),
        }
    }
}

impl<'a> Pair<'a> {
    pub(super) fn new(new: &'a Value, old: &'a Value) -> Self {
        Self {
            new,
            old,
            is_same: OnceCell::new(),
        }
    }

    fn is_same(&self) -> bool {
        *self.is_same.get_or_init(|| self.new == self.old)
    }
}

impl<'a> Was<'a> {
    /// Of an object.
    pub(super) fn of(pair: Option<&'a Pair<'a>>) -> Self {
        Self {
            current: pair,
            around: None,
        }
    }

    /// What the value itself was.
    pub(super) fn old(self) -> Option<&'a Value> {
        self.current.map(|pair| pair.old)
    }

    /// Whether this is of the object itself.
    pub(super) fn is_root(self) -> bool {
        self.around.is_none()
    }

    /// Of a value in it.
    pub(super) fn within(self, pair: Option<&'a Pair<'a>>) -> Self {
        Self {
            current: pair,
            around: self.current.or(self.around),
        }
    }

    /// Whether the value, or what is around it, is as it was.
    pub(super) fn is_unchanged(self) -> bool {
        let known = self.current.or(self.around);
        known.is_some_and(Pair::is_same)
    }
}
