//! Quantities as people write them.
/// Why a quantity could not be read.
pub enum ParseError {}
