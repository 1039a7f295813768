//! Conversion of a scenario's transport options to the configuration of `ccplane-transport`, shared
//! by the simulator and real packets over UDP.

use ccplane_datapath::Capabilities;
use ccplane_qdisc::Ecn;
use ccplane_transport::{Native, Rc3, TransportConfig};

use crate::error::Error;
use crate::scenario::{self, TransportOptions};

/// Returns the transport's configuration: the scenario's options, with the transport's defaults.
pub fn config(options: &TransportOptions) -> TransportConfig {
    let own = TransportConfig::default();
    TransportConfig {
        mss: options.mss.unwrap_or(own.mss),
        header_bytes: options.header_bytes.unwrap_or(own.header_bytes),
        ack_every: options.ack_every.unwrap_or(own.ack_every),
        ack_delay: options.ack_delay.unwrap_or(own.ack_delay),
        quick_acks: options.quick_acks.unwrap_or(own.quick_acks),
        growth_limit: options.growth_limit.unwrap_or(own.growth_limit),
        ecn: options
            .ecn
            .map_or(own.ecn, |ecn| if ecn { Ecn::Ect0 } else { Ecn::NotEct }),
        pacing: options.pacing.unwrap_or(own.pacing),
        pacing_quantum: options.pacing_quantum.unwrap_or(own.pacing_quantum),
        initial_window: options.initial_window.unwrap_or(own.initial_window),
        jump_start: options.jump_start.unwrap_or(own.jump_start),
        restart_after_idle: options.restart_after_idle.unwrap_or(own.restart_after_idle),
        initial_rto: options.initial_rto.unwrap_or(own.initial_rto),
        min_rto: options.min_rto.unwrap_or(own.min_rto),
        rc3: options.rc3.map(rc3),
        discard: true,
        ..own
    }
}

/// Returns the transport's options of RC3's second loop.
pub fn rc3(wanted: scenario::Rc3) -> Rc3 {
    const { assert!(scenario::Rc3::LEVELS_MAX == Rc3::LEVELS_MAX) };
    let own = Rc3::default();
    Rc3 {
        levels: wanted.levels.unwrap_or(own.levels),
        verify: wanted.verify,
        ..own
    }
}

/// Enables the capabilities that an algorithm requires: ECN, time stamps, or a window that is kept
/// over idle times.
pub fn switched_on(config: TransportConfig, wants: Capabilities) -> TransportConfig {
    let config = if wants.contains(Capabilities::ONE_WAY_DELAY) {
        config.stamped()
    } else {
        config
    };
    let ecn = if wants.contains(Capabilities::ECN) {
        Ecn::Ect0
    } else {
        config.ecn
    };
    TransportConfig {
        ecn,
        restart_after_idle: config.restart_after_idle
            && !wants.contains(Capabilities::KEEPS_WINDOW),
        ..config
    }
}

/// Returns the transport's own congestion control of this name.
pub fn native(name: &str) -> Result<Native, Error> {
    name.parse().map_err(|_| Error::UnknownControl {
        name: name.to_owned(),
        known: Native::NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        near: crate::suggestions(name, Native::NAMES.iter().copied())
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenarios_packets_have_the_transports_size() {
        let own = TransportConfig::default();
        assert_eq!(own.mss, TransportOptions::MSS_BYTES_DEFAULT);
        assert_eq!(own.header_bytes, TransportOptions::HEADER_BYTES_DEFAULT);
    }
}
