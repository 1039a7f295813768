//! The command `ccplane` with the built-in algorithms.

fn main() -> std::process::ExitCode {
    ccplane::main_with(ccplane::Registry::builtin())
}
