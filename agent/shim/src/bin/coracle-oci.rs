//! `coracle-oci`: makes one container or one more process in it, and ends. Everything is in the
//! library's `oci` module.

fn main() -> std::process::ExitCode {
    coracle_shim::oci::main()
}
