//! The program `ccplane-bench` with the built-in algorithms.

fn main() -> std::process::ExitCode {
    ccplane_bench::main_with(ccplane_algorithms::Registry::builtin())
}
