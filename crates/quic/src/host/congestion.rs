//! Who decides the windows of a host's connections.

use std::str::FromStr;
use std::sync::Arc;

use noq_proto::TransportConfig;
use noq_proto::congestion::{Bbr3Config, CubicConfig, NewRenoConfig};

use crate::{Plane, PlaneError};

/// What decides a connection's window.
#[derive(Clone, Debug)]
pub enum Congestion {
    /// One of noq's own.
    Native(Native),
    /// A plane.
    Steered(Plane),
}

/// noq's own congestion controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// NewReno, as RFC 9002 has it.
    NewReno,
    /// Cubic (RFC 9438).
    Cubic,
    /// BBR version 3.
    Bbr3,
}

/// A name that is none of noq's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("noq has no congestion control `{0}`; it has reno, cubic and bbr3")]
pub struct UnknownNative(String);

impl FromStr for Native {
    type Err = UnknownNative;

    fn from_str(name: &str) -> Result<Native, UnknownNative> {
        match name {
            "reno" => Ok(Native::NewReno),
            "cubic" => Ok(Native::Cubic),
            "bbr3" => Ok(Native::Bbr3),
            _ => Err(UnknownNative(name.to_owned())),
        }
    }
}

impl Congestion {
    pub(super) fn put_into(&self, config: &mut TransportConfig) -> Result<(), PlaneError> {
        match self {
            Congestion::Native(Native::NewReno) => {
                config.congestion_controller_factory(Arc::new(NewRenoConfig::default()));
            }
            Congestion::Native(Native::Cubic) => {
                config.congestion_controller_factory(Arc::new(CubicConfig::default()));
            }
            Congestion::Native(Native::Bbr3) => {
                config.congestion_controller_factory(Arc::new(Bbr3Config::default()));
            }
            Congestion::Steered(plane) => {
                config.congestion_controller_factory(plane.noq()?);
            }
        }
        Ok(())
    }
}
