//! Tests on real packets, in one binary.

mod common;

mod emu;
mod full_stderr;
mod gateway_run;
mod transfer;
