//! A reliable byte-stream transport as a state machine.
#![forbid(unsafe_code)]
