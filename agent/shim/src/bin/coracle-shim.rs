//! `coracle-shim`: keeps one pod's containers. Everything is in the library's `shim` module.

fn main() -> std::process::ExitCode {
    coracle_shim::shim::main()
}
