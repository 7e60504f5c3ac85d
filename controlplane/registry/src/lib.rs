//! The registry: kinds, where their objects are kept, and what reads and watches are served from.
//!
//! One generic store serves every kind; a kind adds a small pure strategy.
//!
//! ```text
//! create   store::create: prepare (defaults, managed fields) > check (strategy, validation) > one transaction with companions
//! update   store::update: begin > prepare (lock, restore, defaults, managed fields) > check > one transaction; again if lost
//! read     resource > watch_cache, which follows the store
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`resource`] | a served resource, and all of them together |
//! | [`api_resource`] | how a resource is called and what can be done with it |
//! | [`strategy`] | what a kind adds: defaults, validation, columns; the names of built-in ones |
//! | [`kinds`] | the built-in kinds, a folder a group, a strategy a file |
//! | [`custom_resource`], [`json_path`] | the one strategy of kinds that come at run time, and the paths into their objects |
//! | `rules` | their rules in CEL |
//! | [`beside`] | what takes long, beside the runtime's threads |
//! | [`projected`] | kinds that show some of another's objects, each made once for all who watch |
//! | `storage_version`, [`converter`] | kinds of several versions: stored in one, read and written in each, by name alone or by a webhook |
//! | [`store`] | the generic store: create, update, delete, and what is written with an object |
//! | [`part`] | which part of an object a write is about |
//! | [`watch_cache`] | the present state and the latest changes, for reads and watches |
//! | [`managed_fields`] | field managers: who owns which field |
//! | [`object_meta`], `texts`, [`lifecycle`] | what all objects have in common: metadata, generations |
//! | [`encode`], [`stored`] | objects to stored bytes and back, and how their text is laid out |
//! | [`service_allocator`] | addresses and ports of Services: which one gets, and the entries that say whose they are |
//! | [`open_namespaces`], [`open_definitions`] | which namespaces, and which kinds that come and go, take new objects |
//! | [`unenforced`] | warnings about what is kept and has no effect here |
//! | [`scale`] | what the subresource of that name shows and writes |
//! | [`cells`], [`check`], [`fill`] | what strategies share: table cells, validation, defaults |
//! | `go` | values as Go tells them, for upstream's messages |
//! | `testing` | a registry in memory, and what kinds' tests share (feature `testing`) |
//!
//! A write is steps that somebody else takes, who admits between them. Not here: who may write, and
//! what is admitted. Nothing in this crate knows of users or HTTP.
#![forbid(unsafe_code)]

pub mod api_resource;
pub mod beside;
pub mod cells;
pub mod check;
pub mod converter;
pub mod custom_resource;
pub mod encode;
pub mod fill;
mod go;
pub mod json_path;
pub mod kinds;
pub mod lifecycle;
pub mod managed_fields;
pub mod object_meta;
pub mod open_definitions;
pub mod open_namespaces;
pub mod part;
pub mod projected;
pub mod resource;
mod rules;
pub mod scale;
pub mod service_allocator;
mod storage_version;
pub mod store;
pub mod stored;
pub mod strategy;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod texts;
pub mod unenforced;
pub mod value;
pub mod watch_cache;
