//! All tests of the crate that need no process of their own, in one binary.

mod book;
#[path = "support/compiling.rs"]
mod compiling;
mod diagnostics;
mod extensions;
#[path = "support/generate.rs"]
mod generate;
#[path = "support/machine.rs"]
mod machine;
mod published;
mod quirks;
#[path = "support/render.rs"]
mod render;
mod robustness;
mod seeds;
mod semantics;
mod warnings;
