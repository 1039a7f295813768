//! Time stamp errors in a simulation; every host has its own clock.

use ccplane_sim::{JitterShape, NodeId, SimError, StampModel, World};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::scenario::{self, StampErrors};

/// Random number stream of clock errors.
const CLOCK_STREAM: u128 = 0x63_6c6f_636b << 32;

/// Sets the time stamp errors of these hosts. A host's clock depends only on the simulation's seed
/// and the host.
pub fn put_stamps(
    stamps: &StampErrors,
    sim: &mut World,
    hosts: impl Iterator<Item = NodeId>,
) -> Result<(), SimError> {
    for host in hosts {
        sim.set_stamps(host, stamp_model(stamps, sim.seed(), host.index()))?;
    }
    Ok(())
}

/// Returns the error model of the time stamps of the host with this index.
pub fn stamp_model(stamps: &StampErrors, seed: u64, host: usize) -> StampModel {
    let mut draw = Pcg64::new(u128::from(seed), CLOCK_STREAM + host as u128);
    // Uniform from -1 to 1.
    let mut drawn = || (draw.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
    StampModel {
        jitter: stamps.jitter,
        shape: match stamps.shape {
            scenario::JitterShape::Exponential => JitterShape::Exponential,
            scenario::JitterShape::Normal => JitterShape::Normal,
        },
        batch: stamps.batch,
        offset_ns: (stamps.offset.as_nanos() as f64 * drawn()) as i64,
        drift_ppb: (f64::from(stamps.drift_ppb) * drawn()) as i64,
        calibrate: stamps.calibrate,
    }
}
