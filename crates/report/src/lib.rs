//! What a person looks at: pages, tables, charts, verdicts, and where figures come from.
//!
//! This crate knows how things are shown, and not what they are. A page's contents stand beside
//! their data, built on these parts: [`Page`] is the shell of every page, [`Table`] a table for
//! terminal and page, [`chart`] draws, [`Aim`] judges a figure, and [`Provenance`] says which
//! program, machine and day made it.
#![forbid(unsafe_code)]

mod aim;
pub mod chart;
pub mod html;
mod page;
pub mod provenance;
mod table;

pub use aim::{Aim, Verdict};
pub use page::Page;
pub use provenance::Provenance;
pub use table::{Column, Table, plus_minus, wrap};
