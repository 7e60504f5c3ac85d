//! What every kind with pods in it shares: defaults and checks of pod specs and pod templates.
//!
//! | module | does |
//! |---|---|
//! | [`defaults`] | fills in what a spec leaves out |
//! | [`volume_defaults`] | the same for volumes |

pub mod defaults;
pub mod volume_defaults;
