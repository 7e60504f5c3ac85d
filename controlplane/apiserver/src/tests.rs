//! Component tests: a whole server in memory, called through `kube::Client` as its real clients do, and over TLS.

mod apply;
mod authorization;
mod bad_input;
mod connections;
mod crud;
mod deletion;
mod evictions;
mod floods;
mod forms;
mod full_store;
mod lists;
mod nodes;
mod pod_admission;
mod quota;
mod raw;
mod reads;
mod routes;
mod services;
mod streams;
mod subresources;
mod tls;
mod tokens;
mod updates;
mod upgrades;
mod warnings;
mod watches;
