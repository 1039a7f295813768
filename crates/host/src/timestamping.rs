//! Timestamping capabilities and settings of a network interface.

use std::mem;
use std::net::IpAddr;

use nix::sys::socket::AddressFamily;

use crate::Error;
use crate::interface::{ifreq, ioctl};

/// Flags of `so_timestamping`, linux/net_tstamp.h.
const SOF_TIMESTAMPING_TX_HARDWARE: u32 = 1;
const SOF_TIMESTAMPING_TX_SOFTWARE: u32 = 1 << 1;
const SOF_TIMESTAMPING_RX_HARDWARE: u32 = 1 << 2;
const SOF_TIMESTAMPING_RX_SOFTWARE: u32 = 1 << 3;
/// Values `HWTSTAMP_TX_ON` and `HWTSTAMP_FILTER_ALL`.
const HWTSTAMP_TX_ON: libc::c_int = 1;
const HWTSTAMP_FILTER_ALL: u32 = 1;

/// Timestamping of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping {
    /// Outgoing packets are stamped in software, if the driver supports it.
    pub sends_software: bool,
    /// Incoming packets are stamped in software.
    pub receives_software: bool,
    /// Outgoing packets can be stamped in hardware.
    pub sends_hardware: bool,
    /// Incoming packets can be stamped in hardware: all packets, not only PTP.
    pub receives_hardware: bool,
    /// Hardware timestamping is enabled in both directions.
    pub hardware_on: bool,
}

/// Mirrors `struct ethtool_ts_info` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct TsInfo {
    cmd: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

/// The requests `ETHTOOL_GET_TS_INFO` and `SIOCGHWTSTAMP`.
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const SIOCGHWTSTAMP: libc::c_ulong = 0x89b1;

/// Mirrors `struct hwtstamp_config` of linux/net_tstamp.h.
#[repr(C)]
#[derive(Default)]
struct HwtstampConfig {
    flags: libc::c_int,
    tx_type: libc::c_int,
    rx_filter: libc::c_int,
}

/// Returns the timestamping of an interface of the calling thread's namespace.
pub fn timestamping(interface: &str) -> Result<Timestamping, Error> {
    let mut info = TsInfo {
        cmd: ETHTOOL_GET_TS_INFO,
        ..TsInfo::default()
    };
    let mut ask = ifreq(interface)?;
    ask.ifr_ifru.ifru_data = (&raw mut info).cast();
    ioctl(AddressFamily::Inet, libc::SIOCETHTOOL, &mut ask).map_err(|e| {
        Error::system(
            format!(
                "query the timestamping capabilities of \
            {interface}"
            ),
            e,
        )
    })?;
    let mut config = HwtstampConfig::default();
    let mut ask = ifreq(interface)?;
    ask.ifr_ifru.ifru_data = (&raw mut config).cast();
    // Fails on interfaces without hardware timestamping.
    let set = ioctl(AddressFamily::Inet, SIOCGHWTSTAMP, &mut ask).is_ok();
    Ok(from_info(&info, set.then_some(&config)))
}

fn from_info(info: &TsInfo, config: Option<&HwtstampConfig>) -> Timestamping {
    let can = |flag: u32| info.so_timestamping & flag != 0;
    let all = info.rx_filters & 1 << HWTSTAMP_FILTER_ALL != 0;
    Timestamping {
        sends_software: can(SOF_TIMESTAMPING_TX_SOFTWARE),
        receives_software: can(SOF_TIMESTAMPING_RX_SOFTWARE),
        sends_hardware: can(SOF_TIMESTAMPING_TX_HARDWARE)
            && info.tx_types & 1 << HWTSTAMP_TX_ON != 0,
        receives_hardware: can(SOF_TIMESTAMPING_RX_HARDWARE) && all,
        hardware_on: config.is_some_and(|config| {
            config.tx_type == HWTSTAMP_TX_ON
                && config.rx_filter == HWTSTAMP_FILTER_ALL as libc::c_int
        }),
    }
}

/// Returns the interface of the calling thread's namespace that has this address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let has = |storage: Option<nix::sys::socket::SockaddrStorage>| {
        let storage = storage?;
        let v4 = storage.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    };
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    all.find(|entry| has(entry.address) == Some(address))
        .map(|entry| entry.interface_name)
}

const _: () = assert!(mem::size_of::<TsInfo>() == 44 && mem::size_of::<HwtstampConfig>() == 12);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_stamps_in_software_only() {
        let found = timestamping("lo").unwrap();
        assert!(found.sends_software && found.receives_software, "{found:?}");
        assert!(
            !found.sends_hardware && !found.receives_hardware && !found.hardware_on,
            "{found:?}"
        );
        assert!(timestamping("ccplane-none").is_err());
        assert_eq!(interface_of([127, 0, 0, 1].into()).as_deref(), Some("lo"));
    }

    #[test]
    fn an_interface_that_stamps_only_ptp_is_no_help() {
        let full = TsInfo {
            so_timestamping: 0x5f,
            tx_types: 0b11,
            rx_filters: 0b11,
            ..TsInfo::default()
        };
        let on = HwtstampConfig {
            tx_type: 1,
            rx_filter: 1,
            ..HwtstampConfig::default()
        };
        let found = from_info(&full, Some(&on));
        assert!(
            found.sends_hardware
                && found.receives_hardware
                && found.hardware_on
                && found.sends_software
        );
        let ptp = TsInfo {
            rx_filters: 1 << 12 | 1,
            ..full
        };
        let found = from_info(&ptp, None);
        assert!(found.sends_hardware && !found.receives_hardware && !found.hardware_on);
    }
}
