//! The kinds of group `events.k8s.io`: the core group's Events in their newer form.

pub mod event;
