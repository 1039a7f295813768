//! Strict-priority queues on a device of this host, for the classes of
//! [`marking`](ccplane_qdisc::marking): the `tc` commands that create them, running the commands,
//! and removing the queues.
//!
//! Common mistakes that they avoid:
//!
//! - `prio` without a priomap maps packets to three bands by socket priority and old TOS, so 4 is
//!   in the same band as 0. Here every priority maps to the first band, and only a DSCP filter
//!   selects a lower one;
//! - a filter on the whole byte misses every packet of a flow that uses ECN: the mask excludes the
//!   two ECN bits;
//! - IPv4 and IPv6 need one filter each;
//! - `prio` gives each band a queue of the device's length, on some devices a single packet. Here
//!   the length is explicit. Bands share no space, so unlike in RC3's own routers a packet of class
//!   0 always finds its space free and evicts no other.

use std::io;
use std::process::Output;

use ccplane_qdisc::marking::{LOW_CLASS_COUNT, dscp_of};
use ccplane_units::Rate;
use nix::net::if_::if_nameindex;

/// Handle of the root created by [`Bands::install`], by which [`remove`] identifies it.
const ROOT_HANDLE: &str = "cc0:";
/// Handle of the `prio` queue below a rate limit.
const PRIO_HANDLE: &str = "cc1:";
/// Queue limit of each band in packets, the default of a device. A lower one loses packets of a
/// burst; a higher one adds delay.
const BAND_PACKETS_MAX: u32 = 1000;
/// HTB quantum, bytes. Without effect with a single class, but without it `tc` warns at high rates.
const HTB_QUANTUM_BYTES: u32 = 15_140;

/// Priority bands on a device: one for class 0 and all traffic without a low marking, and one for
/// each lower class.
#[derive(Clone, Debug)]
pub struct Bands {
    device: String,
    rate: Option<Rate>,
}

/// Queues could not be created or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The device does not exist.
    #[error("unknown network device `{device}`; the devices are {known}")]
    UnknownDevice {
        /// Name of the requested device.
        device: String,
        /// Names of the existing devices.
        known: String,
    },
    /// The devices could not be listed.
    #[error("cannot list the network devices of this namespace: {0}")]
    NoList(#[source] io::Error),
    /// The device has a queue configured by someone else.
    #[error(
        "{device} already has a configured queue, {kind} {handle}; nothing was changed. `tc qdisc \
        show dev {device}` shows it; if it is not needed, `tc qdisc del dev {device} root` removes \
        it"
    )]
    Occupied {
        /// Name of the device.
        device: String,
        /// Kind of the root queue.
        kind: String,
        /// Handle of the root queue.
        handle: String,
    },
    /// The bands are installed already.
    #[error(
        "{0} already has the priority bands, or a part of them from an interrupted setup; `ccplane \
        qdisc remove {0}` removes them"
    )]
    Installed(String),
    /// The device has no bands of ccplane.
    #[error(
        "{device} has no priority bands of ccplane, its queue is {kind} {handle}; nothing was \
        changed"
    )]
    NotInstalled {
        /// Name of the device.
        device: String,
        /// Kind of the root queue.
        kind: String,
        /// Handle of the root queue.
        handle: String,
    },
    /// A `tc` command failed, and the device is unchanged.
    #[error("{0}; nothing was changed")]
    Tc(#[from] TcError),
    /// A `tc` command failed, and so did the removal of what had been created.
    #[error(
        "{why}; the queues created before that could not be removed ({left}); remove them with \
        `{removal}`"
    )]
    Partial {
        /// Error of the failed creation.
        why: Box<TcError>,
        /// Error of the failed removal.
        left: Box<TcError>,
        /// Command for the removal.
        removal: String,
    },
}

/// A `tc` command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcError {
    /// `tc` could not be run.
    #[error("cannot run `tc`: {0}; install the package iproute2")]
    NoTc(#[source] io::Error),
    /// The kernel lacks a required feature.
    #[error(
        "this kernel ({release}) has no `{name}` ({option}), which `{command}` needs; use a kernel \
        of Debian or Ubuntu, or `ccplane emu --queue prio:6:1bdp`, whose queues have built-in bands"
    )]
    Lacking {
        /// Release as in `uname -r`.
        release: String,
        /// Missing qdisc or filter.
        name: &'static str,
        /// Name in the kernel's configuration.
        option: &'static str,
        /// Command that failed.
        command: String,
    },
    /// The process lacks CAP_NET_ADMIN.
    #[error("changing the queues of {0} requires CAP_NET_ADMIN; run as root")]
    NotPermitted(String),
    /// Any other error of `tc`.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// Command that failed.
        command: String,
        /// Message of `tc`.
        said: String,
    },
}

/// The queue at a device's root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Root {
    kind: String,
    handle: String,
}

impl Bands {
    /// Creates the bands for a device of this host. With `rate`, at most the device's own, the
    /// queue builds up here instead of behind it: in a modem, or after a device without a queue.
    pub fn new(device: &str, rate: Option<Rate>) -> Result<Bands, QueueError> {
        check_device(device)?;
        Ok(Bands {
            device: device.to_owned(),
            rate,
        })
    }

    /// Returns the commands that install the bands, in order.
    pub fn commands(&self) -> Vec<String> {
        let device = &self.device;
        let mut commands = Vec::new();
        let prio = match self.rate {
            None => {
                commands.push(format!(
                    "tc qdisc add dev {device} root handle {ROOT_HANDLE} {}",
                    prio_arguments()
                ));
                ROOT_HANDLE
            }
            Some(rate) => {
                let bits = rate.bytes_per_sec().saturating_mul(8);
                commands.push(format!(
                    "tc qdisc add dev {device} root handle {ROOT_HANDLE} htb default 1"
                ));
                commands.push(format!(
                    "tc class add dev {device} parent {ROOT_HANDLE} classid {ROOT_HANDLE}1 htb \
                     rate {bits}bit ceil {bits}bit quantum {HTB_QUANTUM_BYTES}"
                ));
                commands.push(format!(
                    "tc qdisc add dev {device} parent {ROOT_HANDLE}1 handle {PRIO_HANDLE} {}",
                    prio_arguments()
                ));
                PRIO_HANDLE
            }
        };
        for class in 0..=LOW_CLASS_COUNT {
            let band = class + 1;
            commands.push(format!(
                "tc qdisc add dev {device} parent {prio}{band} handle cc1{class}: pfifo limit \
                 {BAND_PACKETS_MAX}"
            ));
        }
        for class in 1..=LOW_CLASS_COUNT {
            let (byte, band) = (dscp_of(class) << 2, class + 1);
            for (protocol, preference, field) in
                [("ip", 1, "ip dsfield"), ("ipv6", 2, "ip6 priority")]
            {
                commands.push(format!(
                    "tc filter add dev {device} parent {prio} protocol {protocol} prio \
                     {preference} u32 match {field} {byte:#04x} 0xfc flowid {prio}{band}"
                ));
            }
        }
        commands
    }

    /// Returns the command that removes the bands.
    pub fn removal_command(&self) -> String {
        removal(&self.device)
    }

    /// Installs all bands, or none.
    pub fn install(&self) -> Result<(), QueueError> {
        let root = root_queue(&self.device)?;
        if root.handle == ROOT_HANDLE {
            return Err(QueueError::Installed(self.device.clone()));
        }
        // Defaults of the kernel have no handle: `noqueue`, `mq` and the one of
        // net.core.default_qdisc.
        if root.handle != "0:" {
            return Err(QueueError::Occupied {
                device: self.device.clone(),
                kind: root.kind,
                handle: root.handle,
            });
        }
        run_or_roll_back(&self.commands(), self.removal_command(), |command| {
            run_tc(command, &self.device)
        })
    }
}

fn run_or_roll_back(
    commands: &[String],
    removal: String,
    mut run: impl FnMut(&str) -> Result<(), TcError>,
) -> Result<(), QueueError> {
    for (number, command) in commands.iter().enumerate() {
        let Err(why) = run(command) else { continue };
        if number > 0
            // Removing the root removes everything below it and restores the kernel's default.
            && let Err(left) = run(&removal)
        {
            let (why, left) = (Box::new(why), Box::new(left));
            return Err(QueueError::Partial { why, left, removal });
        }
        return Err(why.into());
    }
    Ok(())
}

/// Removes the queues created by [`Bands::install`], and nothing else.
pub fn remove(device: &str) -> Result<(), QueueError> {
    check_device(device)?;
    let root = root_queue(device)?;
    if root.handle != ROOT_HANDLE {
        return Err(QueueError::NotInstalled {
            device: device.to_owned(),
            kind: root.kind,
            handle: root.handle,
        });
    }
    Ok(run_tc(&removal(device), device)?)
}

fn removal(device: &str) -> String {
    format!("tc qdisc del dev {device} root handle {ROOT_HANDLE}")
}

fn prio_arguments() -> String {
    format!(
        "prio bands {} priomap{}",
        LOW_CLASS_COUNT + 1,
        " 0".repeat(16)
    )
}

/// Looks in the calling thread's network namespace, unlike a mounted `/sys` and `/proc/self/net`,
/// which show the process's.
fn check_device(device: &str) -> Result<(), QueueError> {
    let all = if_nameindex().map_err(|errno| QueueError::NoList(errno.into()))?;
    let names: Vec<_> = all.iter().map(|one| one.name().to_string_lossy()).collect();
    // `if_nametoindex` would accept the alias `lo:1` for `lo`.
    if names.iter().any(|name| name == device) {
        return Ok(());
    }
    Err(QueueError::UnknownDevice {
        device: device.to_owned(),
        known: names.join(", "),
    })
}

fn root_queue(device: &str) -> Result<Root, QueueError> {
    let command = format!("tc qdisc show dev {device} root");
    let said = tc_output(&command, device)?;
    let mut words = said.split_whitespace().skip(1).map(str::to_owned);
    match (words.next(), words.next()) {
        (Some(kind), Some(handle)) => Ok(Root { kind, handle }),
        // A device that is down may have no queue yet.
        _ => Ok(Root {
            kind: "noop".to_owned(),
            handle: "0:".to_owned(),
        }),
    }
}

fn run_tc(command: &str, device: &str) -> Result<(), TcError> {
    tc_output(command, device).map(drop)
}

/// Runs a command without quoted arguments. Returns its output.
fn tc_output(command: &str, device: &str) -> Result<String, TcError> {
    let mut words = command.split_whitespace();
    let output = crate::system_program(words.next().unwrap_or_default())
        .args(words)
        .env("LC_ALL", "C")
        .output()
        .map_err(TcError::NoTc)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(tc_error(command, device, &output))
}

fn tc_error(command: &str, device: &str, output: &Output) -> TcError {
    let text = String::from_utf8_lossy(&output.stderr);
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if said.contains("Operation not permitted") {
        return TcError::NotPermitted(device.to_owned());
    }
    let lacks = [
        "qdisc kind is unknown",
        "classifier not found",
        "No such file or directory",
    ];
    let parts = [
        ("prio", "CONFIG_NET_SCH_PRIO, module sch_prio"),
        ("htb", "CONFIG_NET_SCH_HTB, module sch_htb"),
        ("u32", "CONFIG_NET_CLS_U32, module cls_u32"),
    ];
    // The filter command also contains the word `prio`, as its preference.
    let part = parts
        .iter()
        .rev()
        .find(|(name, _)| command.contains(&format!(" {name} ")));
    match part {
        Some((name, option)) if lacks.iter().any(|lack| said.contains(lack)) => TcError::Lacking {
            release: nix::sys::utsname::uname()
                .map(|uname| uname.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            name,
            option,
            command: command.to_owned(),
        },
        _ => TcError::Failed {
            command: command.to_owned(),
            said,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_match_the_reviewed_ones() {
        let plain = Bands::new("lo", None).expect("every host has it");
        assert_eq!(
            plain.commands().join("\n"),
            "\
tc qdisc add dev lo root handle cc0: prio bands 5 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
tc qdisc add dev lo parent cc0:1 handle cc10: pfifo limit 1000
tc qdisc add dev lo parent cc0:2 handle cc11: pfifo limit 1000
tc qdisc add dev lo parent cc0:3 handle cc12: pfifo limit 1000
tc qdisc add dev lo parent cc0:4 handle cc13: pfifo limit 1000
tc qdisc add dev lo parent cc0:5 handle cc14: pfifo limit 1000
tc filter add dev lo parent cc0: protocol ip prio 1 u32 match ip dsfield 0x04 0xfc flowid cc0:2
tc filter add dev lo parent cc0: protocol ipv6 prio 2 u32 match ip6 priority 0x04 0xfc flowid cc0:2
tc filter add dev lo parent cc0: protocol ip prio 1 u32 match ip dsfield 0x0c 0xfc flowid cc0:3
tc filter add dev lo parent cc0: protocol ipv6 prio 2 u32 match ip6 priority 0x0c 0xfc flowid cc0:3
tc filter add dev lo parent cc0: protocol ip prio 1 u32 match ip dsfield 0x2c 0xfc flowid cc0:4
tc filter add dev lo parent cc0: protocol ipv6 prio 2 u32 match ip6 priority 0x2c 0xfc flowid cc0:4
tc filter add dev lo parent cc0: protocol ip prio 1 u32 match ip dsfield 0x4c 0xfc flowid cc0:5
tc filter add dev lo parent cc0: protocol ipv6 prio 2 u32 match ip6 priority 0x4c 0xfc flowid cc0:5"
        );
        let limited =
            Bands::new("lo", Some(Rate::from_bits_per_sec(1_000_000_000))).expect("the same");
        let commands = limited.commands();
        assert_eq!(
            commands[..3].join("\n"),
            "\
tc qdisc add dev lo root handle cc0: htb default 1
tc class add dev lo parent cc0: classid cc0:1 htb rate 1000000000bit ceil 1000000000bit \
quantum 15140
tc qdisc add dev lo parent cc0:1 handle cc1: prio bands 5 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        );
        assert!(
            commands[3..]
                .iter()
                .all(|command| command.contains(" parent cc1:"))
        );
        assert_eq!(
            plain.removal_command(),
            "tc qdisc del dev lo root handle cc0:"
        );
    }

    #[test]
    fn tc_errors_become_reasons_with_a_fix() {
        let failed = |said: &str| Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(2 << 8),
            stdout: Vec::new(),
            stderr: said.as_bytes().to_vec(),
        };
        let commands = Bands::new("lo", Some(Rate::from_bits_per_sec(1_000_000)))
            .expect("lo")
            .commands();
        let text = |command: usize, said: &str| {
            tc_error(&commands[command], "lo", &failed(said)).to_string()
        };
        let unknown = "Error: Specified qdisc kind is unknown.\n";
        assert!(text(0, unknown).contains("no `htb` (CONFIG_NET_SCH_HTB, module sch_htb)"));
        assert!(text(2, unknown).contains("no `prio` (CONFIG_NET_SCH_PRIO, module sch_prio)"));
        assert!(
            text(
                8,
                "Error: TC classifier not found.\nWe have an error talking to the kernel\n"
            )
            .contains("no `u32`")
        );
        assert!(text(0, "RTNETLINK answers: Operation not permitted\n").contains("CAP_NET_ADMIN"));
        let other = text(0, "RTNETLINK answers: Device or resource busy\n");
        assert!(
            other.contains("failed: RTNETLINK answers: Device or resource busy"),
            "{other}"
        );

        let error = Bands::new("no-such-device", None)
            .expect_err("the device does not exist")
            .to_string();
        assert!(
            error.contains("`no-such-device`") && error.contains("lo"),
            "{error}"
        );
    }

    /// For every failing command, and with and without a working removal.
    #[test]
    fn errors_name_what_remains() {
        let bands = Bands::new("lo", None).expect("every host has it");
        let (commands, removal) = (bands.commands(), bands.removal_command());
        for failing in 0..=commands.len() {
            for removable in [true, false] {
                let mut ran = Vec::new();
                let run = |command: &str| {
                    ran.push(command.to_owned());
                    let done = commands
                        .get(failing)
                        .is_none_or(|failing| failing != command);
                    if done && (removable || command != removal) {
                        return Ok(());
                    }
                    Err(TcError::NotPermitted(format!("step {}", ran.len())))
                };
                let made = run_or_roll_back(&commands, removal.clone(), run);
                let mut expected = commands[..commands.len().min(failing + 1)].to_vec();
                if (1..commands.len()).contains(&failing) {
                    expected.push(removal.clone());
                }
                assert_eq!(ran, expected);
                let Err(error) = made else {
                    assert_eq!(failing, commands.len());
                    continue;
                };
                let text = error.to_string();
                assert!(text.contains(&format!("step {}", failing + 1)), "{text}");
                let left = failing > 0 && !removable;
                assert_eq!(text.contains("nothing was changed"), !left, "{text}");
                assert_eq!(
                    text.contains(&format!("remove them with `{removal}`")),
                    left,
                    "{text}"
                );
            }
        }
    }
}
