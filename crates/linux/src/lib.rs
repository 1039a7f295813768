//! ccplane linux.

pub mod asm;
pub mod codegen;
#[cfg(test)]
mod oracle;
pub mod pad;
#[cfg(test)]
mod oracle_kernel;
#[cfg(test)]
mod testing;
