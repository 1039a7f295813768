//! Agent: runs congestion-control algorithms outside the datapath.
//!
//! [`Agent`] is a state machine: [`Event`](ccplane_wire::WireEvent)s of datapaths go in,
//! [`Command`](ccplane_wire::WireCommand)s for them come out, and the driver passes the time. An
//! algorithm implements [`Algorithm`].
#![forbid(unsafe_code)]

mod agent;
mod algorithm;
mod ccp;
mod ccp_client;
mod control;
pub mod datapath;
mod fields;
mod flows;
mod gauges;
mod log_budget;
mod program;
mod program_tables;
mod report;
pub mod rng;

pub use agent::{AddError, Agent, AgentOptions, AlgorithmStats, UnknownAlgorithm};
pub use algorithm::{Algorithm, DynAlgorithm, StandaloneProgram, box_algorithm};
pub use ccp::{CcpDatapath, DatagramContents, ccp_datapath, check_datagram};
pub use ccp_client::CcpV1Client;
pub use ccplane_agent_derive::Fields;
pub use ccplane_wire::{DatapathInfo, FlowInfo, FlowStats, Offer, Refusal, Tag, Tags};
pub use control::Control;
pub use fields::Fields;
pub use flows::{DatapathId, FlowId};
pub use log_budget::LogPermit;
pub use program::{HostedAlgorithm, HostedProgram, Programs};
pub use program_tables::{FLOW_VARS_MAX, PROGRAMS_MAX, ProgramTables, TableId};
pub use report::{Report, ReportBatch};
