//! The controllers against the real API server: what a user of the cluster sees.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    missing_docs,
    reason = "tests"
)]

mod certificates;
mod cluster;
mod crashes;
mod cron_jobs;
mod daemon_sets;
mod disruptions;
mod endpoints;
mod garbage;
mod garbage_kinds;
mod job_adoption;
mod job_policies;
mod jobs;
mod lifecycle;
mod load_balancers;
mod node_roles;
mod nodes;
mod own_writes;
mod pod_autoscalers;
mod quotas;
mod replication_controllers;
mod service_cidrs;
mod services;
mod stateful_set_claims;
mod stateful_set_faults;
mod stateful_sets;
mod volumes;
mod workloads;
