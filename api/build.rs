//! Derives the schema table of the built-in types from published crates.
//!
//! `k8s-openapi` has JSON names, types, required fields and descriptions, generated from
//! Kubernetes' OpenAPI document; `k8s-pb` has protobuf tags and, in its doc comments, the markers
//! of the Go types. Both are read as text: nothing of them is linked, and `k8s-pb` is not even
//! compiled. `build/supplement.txt` holds the facts that are newer than `k8s-pb`.
//!
//! Result: `schema.bin` (the table) and `schema_layout.rs` (where its sections begin) in `OUT_DIR`.

#[path = "build/emit.rs"]
mod emit;
#[path = "build/join.rs"]
mod join;
#[path = "build/openapi.rs"]
mod openapi;
#[path = "build/protobuf.rs"]
mod protobuf;
#[path = "build/source.rs"]
mod source;
#[path = "build/supplement.rs"]
mod supplement;

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let target = std::env::var("TARGET").expect("cargo sets TARGET");
    let openapi_dir = source::crate_dir("k8s-openapi", &target).join("src/v1_37");
    let protobuf_dir = source::crate_dir("k8s-pb", source::NOWHERE).join("src");
    let definitions = openapi::read(&openapi_dir);
    let messages = protobuf::read(&protobuf_dir);
    let facts = supplement::read(include_str!("build/supplement.txt"));
    let types = join::join(&definitions, &messages, &facts);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    emit::write(&types, &out);
}
