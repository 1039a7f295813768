//! Experiments on real packets: orchestration, metrics, result files, the report page, published figures.
#![forbid(unsafe_code)]
mod diag;
pub mod metrics;
pub mod report;
pub mod result;
pub mod table;
pub mod traffic;
