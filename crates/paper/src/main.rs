//! The program `ccplane-paper` with the built-in algorithms.

fn main() -> std::process::ExitCode {
    ccplane_paper::main_with(ccplane_algorithms::Registry::builtin())
}
