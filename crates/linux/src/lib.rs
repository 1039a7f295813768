//! ccplane linux.

pub mod asm;
pub mod codegen;
#[cfg(test)]
mod oracle;
pub mod pad;
