//! Strict-priority queues on a device of this host, for the classes of
//! [`marking`](ccplane_qdisc::marking): the `tc` commands that make them, run them, and take them
//! away again.
//!
//! What they have to get right, each of which was somebody's mistake before:
//!
//! - `prio` without a priomap puts packets by their socket priority and old TOS into three bands: 4
//!   in the same as 0. Here every priority is in the first band, and only a filter by DSCP leads to
//!   one below;
//! - a filter on the whole byte misses every packet of a flow that uses ECN: the mask leaves its
//!   two bits out;
//! - IPv4 and IPv6 need a filter each;
//! - `prio` gives each band a queue of the device's length, one packet on some. Here it is said.
//!   Bands share nothing, so unlike in RC3's own routers a packet of class 0 finds its place taken
//!   by nobody, and pushes nobody out of theirs.

use std::io;
use std::process::Output;

use ccplane_qdisc::marking::{LOW_CLASSES, dscp_of};
use ccplane_units::Rate;
use nix::net::if_::if_nameindex;

/// Root of what [`Bands::install`] makes: by it [`remove`] knows its own.
const ROOT: &str = "cc0:";
/// The `prio` queue under a rate.
const INNER: &str = "cc1:";
/// Packets that each band holds: what a device has by default. Fewer lose packets of a burst, and
/// more hold up whoever is behind.
const PACKETS: u32 = 1000;
/// What HTB's only class may send at a turn, bytes: of no effect with one class, but without it
/// `tc` warns at high rates.
const QUANTUM: u32 = 15_140;

/// Priority bands on a device: one for class 0 and all that has no low marking, one for each class
/// below.
#[derive(Clone, Debug)]
pub struct Bands {
    device: String,
    rate: Option<Rate>,
}

/// Why queues were not made, or not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// No such device.
    #[error("there is no network device `{device}`; there are {known}")]
    UnknownDevice {
        /// What was asked for.
        device: String,
        /// What there is.
        known: String,
    },
    /// The kernel does not say which devices there are.
    #[error("the network devices of this namespace could not be listed: {0}")]
    NoList(#[source] io::Error),
    /// Somebody has configured the device.
    #[error(
        "{device} has a queue that somebody set up: {kind} {handle}; nothing was changed. `tc qdisc show dev {device}` shows it; \
         `tc qdisc del dev {device} root` removes it, if it is not needed"
    )]
    Occupied {
        /// The device.
        device: String,
        /// Kind of its root.
        kind: String,
        /// Its handle.
        handle: String,
    },
    /// They are there.
    #[error(
        "{0} has the priority bands already, or a part of them where making them was interrupted; `ccplane qdisc remove --dev {0}` \
         removes them"
    )]
    Installed(String),
    /// There are none.
    #[error(
        "{device} has no priority bands of ccplane: its queue is {kind} {handle}; nothing was changed"
    )]
    NotInstalled {
        /// The device.
        device: String,
        /// Kind of its root.
        kind: String,
        /// Its handle.
        handle: String,
    },
    /// `tc` refused, and the device is as it was.
    #[error("{0}; nothing was changed")]
    Tc(#[from] TcError),
    /// `tc` refused, and also to take back what it had done by then.
    #[error(
        "{why}; what was made before that is left, because it could not be removed either ({left}): `{removal}` removes it"
    )]
    Partial {
        /// Of the command that makes.
        why: Box<TcError>,
        /// Of the command that removes.
        left: Box<TcError>,
        /// That command.
        removal: String,
    },
}

/// What was wrong with a `tc` command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcError {
    /// It could not be run.
    #[error("`tc` could not be run: {0}; it is in the package iproute2")]
    NoTc(#[source] io::Error),
    /// The kernel lacks something.
    #[error(
        "this kernel ({release}) has no `{name}` ({option}), which `{command}` needs (Debian's and Ubuntu's own kernels have it; \
         `ccplane emu --queue prio:6:1bdp` needs no kernel's: its queues have the bands built in)"
    )]
    Lacking {
        /// `uname -r`.
        release: String,
        /// The queue or filter.
        name: &'static str,
        /// What it is called in the kernel's configuration.
        option: &'static str,
        /// What was run.
        command: String,
    },
    /// Not allowed.
    #[error("changing the queues of {0} takes CAP_NET_ADMIN: run it as root")]
    NotPermitted(String),
    /// It said something else.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// What was run.
        command: String,
        /// What `tc` said.
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
    /// For a device of this host; `rate`, the device's own or a lower one, makes the queue build
    /// here and not in what comes behind: a modem, or a device without a queue.
    pub fn new(device: &str, rate: Option<Rate>) -> Result<Bands, QueueError> {
        known(device)?;
        Ok(Bands {
            device: device.to_owned(),
            rate,
        })
    }

    /// The commands that make them, in this order.
    pub fn commands(&self) -> Vec<String> {
        let device = &self.device;
        let mut commands = Vec::new();
        let prio = match self.rate {
            None => {
                commands.push(format!(
                    "tc qdisc add dev {device} root handle {ROOT} {}",
                    prio()
                ));
                ROOT
            }
            Some(rate) => {
                let bits = rate.bytes_per_sec().saturating_mul(8);
                commands.push(format!(
                    "tc qdisc add dev {device} root handle {ROOT} htb default 1"
                ));
                commands.push(format!(
                    "tc class add dev {device} parent {ROOT} classid {ROOT}1 htb rate {bits}bit ceil {bits}bit quantum {QUANTUM}"
                ));
                commands.push(format!(
                    "tc qdisc add dev {device} parent {ROOT}1 handle {INNER} {}",
                    prio()
                ));
                INNER
            }
        };
        for class in 0..=LOW_CLASSES {
            let band = class + 1;
            commands.push(format!(
                "tc qdisc add dev {device} parent {prio}{band} handle cc1{class}: pfifo limit {PACKETS}"
            ));
        }
        for class in 1..=LOW_CLASSES {
            let (byte, band) = (dscp_of(class) << 2, class + 1);
            for (protocol, preference, field) in
                [("ip", 1, "ip dsfield"), ("ipv6", 2, "ip6 priority")]
            {
                commands.push(format!(
                    "tc filter add dev {device} parent {prio} protocol {protocol} prio {preference} u32 match {field} {byte:#04x} 0xfc \
                     flowid {prio}{band}"
                ));
            }
        }
        commands
    }

    /// The command that takes them away.
    pub fn removal(&self) -> String {
        removal(&self.device)
    }

    /// Makes them: all, or nothing.
    pub fn install(&self) -> Result<(), QueueError> {
        let root = root(&self.device)?;
        if root.handle == ROOT {
            return Err(QueueError::Installed(self.device.clone()));
        }
        // The kernel's own choice has no handle: neither `noqueue`, nor `mq`, nor what
        // net.core.default_qdisc says.
        if root.handle != "0:" {
            return Err(QueueError::Occupied {
                device: self.device.clone(),
                kind: root.kind,
                handle: root.handle,
            });
        }
        all_or_nothing(&self.commands(), self.removal(), |command| {
            run(command, &self.device)
        })
    }
}

fn all_or_nothing(
    commands: &[String],
    removal: String,
    mut run: impl FnMut(&str) -> Result<(), TcError>,
) -> Result<(), QueueError> {
    for (number, command) in commands.iter().enumerate() {
        let Err(why) = run(command) else { continue };
        if number > 0
            // With its root everything below goes, and the kernel's own choice comes back.
            && let Err(left) = run(&removal)
        {
            let (why, left) = (Box::new(why), Box::new(left));
            return Err(QueueError::Partial { why, left, removal });
        }
        return Err(why.into());
    }
    Ok(())
}

/// Takes away what [`Bands::install`] made, and nothing else.
pub fn remove(device: &str) -> Result<(), QueueError> {
    known(device)?;
    let root = root(device)?;
    if root.handle != ROOT {
        return Err(QueueError::NotInstalled {
            device: device.to_owned(),
            kind: root.kind,
            handle: root.handle,
        });
    }
    Ok(run(&removal(device), device)?)
}

fn removal(device: &str) -> String {
    format!("tc qdisc del dev {device} root handle {ROOT}")
}

fn prio() -> String {
    format!("prio bands {} priomap{}", LOW_CLASSES + 1, " 0".repeat(16))
}

/// In the calling thread's network namespace, which is neither that of a mounted `/sys` nor
/// `/proc/self/net`, the process's.
fn known(device: &str) -> Result<(), QueueError> {
    let all = if_nameindex().map_err(|errno| QueueError::NoList(errno.into()))?;
    let names: Vec<_> = all.iter().map(|one| one.name().to_string_lossy()).collect();
    // By this list and not `if_nametoindex`, which takes `lo:1` for `lo`.
    if names.iter().any(|name| name == device) {
        return Ok(());
    }
    Err(QueueError::UnknownDevice {
        device: device.to_owned(),
        known: names.join(", "),
    })
}

fn root(device: &str) -> Result<Root, QueueError> {
    let command = format!("tc qdisc show dev {device} root");
    let said = said(&command, device)?;
    let mut words = said.split_whitespace().skip(1).map(str::to_owned);
    match (words.next(), words.next()) {
        (Some(kind), Some(handle)) => Ok(Root { kind, handle }),
        // A device that is down may have none yet.
        _ => Ok(Root {
            kind: "noop".to_owned(),
            handle: "0:".to_owned(),
        }),
    }
}

fn run(command: &str, device: &str) -> Result<(), TcError> {
    said(command, device).map(drop)
}

/// Runs a command of ours, whose words have no spaces; what it said.
fn said(command: &str, device: &str) -> Result<String, TcError> {
    let mut words = command.split_whitespace();
    let output = crate::system_program(words.next().unwrap_or_default())
        .args(words)
        .env("LC_ALL", "C")
        .output()
        .map_err(TcError::NoTc)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(why(command, device, &output))
}

fn why(command: &str, device: &str, output: &Output) -> TcError {
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
    // The filter's command has a word `prio` too, which is its place.
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
    fn the_commands_are_as_they_were_looked_at() {
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
tc class add dev lo parent cc0: classid cc0:1 htb rate 1000000000bit ceil 1000000000bit quantum 15140
tc qdisc add dev lo parent cc0:1 handle cc1: prio bands 5 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        );
        assert!(
            commands[3..]
                .iter()
                .all(|command| command.contains(" parent cc1:"))
        );
        assert_eq!(plain.removal(), "tc qdisc del dev lo root handle cc0:");
    }

    #[test]
    fn what_tc_says_becomes_a_reason_and_what_to_do() {
        let failed = |said: &str| Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(2 << 8),
            stdout: Vec::new(),
            stderr: said.as_bytes().to_vec(),
        };
        let commands = Bands::new("lo", Some(Rate::from_bits_per_sec(1_000_000)))
            .expect("lo")
            .commands();
        let text =
            |command: usize, said: &str| why(&commands[command], "lo", &failed(said)).to_string();
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
            .expect_err("it does not exist")
            .to_string();
        assert!(
            error.contains("`no-such-device`") && error.contains("lo"),
            "{error}"
        );
    }

    /// After whichever command fails, and whether what was made can be removed or not.
    #[test]
    fn an_error_says_what_it_left() {
        let bands = Bands::new("lo", None).expect("every host has it");
        let (commands, removal) = (bands.commands(), bands.removal());
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
                let made = all_or_nothing(&commands, removal.clone(), run);
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
                    text.contains(&format!("`{removal}` removes it")),
                    left,
                    "{text}"
                );
            }
        }
    }
}
