//! Component tests: a whole server in memory, called through `kube::Client` as its real clients do.

mod crud;
