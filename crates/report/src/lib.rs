//! Presentation of results: HTML pages, tables, charts, verdicts and provenance.
//!
//! The crate renders results and does not interpret them; each page is assembled next to the data
//! it shows. [`Page`] is the common page shell, [`Table`] renders to terminal and HTML, [`chart`]
//! draws SVG, [`TargetRange`] compares a result with its target, and [`Provenance`] records the
//! program, machine and day of a measurement.
#![forbid(unsafe_code)]

pub mod chart;
pub mod html;
mod page;
pub mod provenance;
mod table;
mod target;

pub use page::Page;
pub use provenance::Provenance;
pub use table::{Column, Table, csv_cell, plus_minus, wrap};
pub use target::{TargetRange, Verdict};
