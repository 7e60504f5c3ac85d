//! The kinds of group `autoscaling`: one, in two versions.

pub mod horizontalpodautoscaler;
pub mod horizontalpodautoscaler_v1;
