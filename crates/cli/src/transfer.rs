//! Shared parts of `ccplane send` and `ccplane recv`.

pub(crate) mod host;
pub(crate) mod liveness;
mod name;
mod new_file;
pub(crate) mod quic;
pub(crate) mod sink;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_quic::Stack;
use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::endpoint::MIN_PLPMTU;
use ccplane_udp::{DATAGRAM_BYTES_MAX, Stamping, Tls, UdpError, UdpOptions};
use ccplane_units::{Bytes, Duration};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Failure, FailureKind};
use crate::link_rate::LinkRate;
use wire::Hash;

/// Interval at which the interrupt flag is checked.
pub const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Options shared by both commands.
#[derive(Args)]
pub struct TransferArgs {
    /// Transport: ccplane's own over UDP, or QUIC. Both sides need the same one.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "udp")]
    pub over: TransferProtocol,
    /// File with this host's certificate and its private key; without it
    /// `~/.config/ccplane/identity`.
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Largest packet, IP header included; 1500 by default. A smaller path MTU is discovered
    /// automatically. Not over QUIC.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Limit of the bytes in flight per connection. Below rate times round-trip time it limits the
    /// throughput.
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    window: Bytes,
    /// Give up after the peer has not answered for this long, over UDP despite at least 12 probes.
    /// A receiver also gives up after three times as long without new data.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
    /// Time stamps on packets, which measure the one-way queueing delay; `auto` by default. The
    /// sender decides; every receiver answers them. Not over QUIC.
    #[arg(long, value_name = "WHOSE")]
    stamps: Option<StampSource>,
    /// Rate of this host's own link, or `auto` for the rate that its driver reports. Stamps of
    /// packets that were sent or received in one batch are spread over their transmission times at
    /// this rate. Not over QUIC.
    #[arg(long, value_name = "RATE")]
    link_rate: Option<LinkRate>,
    /// Folder for a qlog of each connection: windows, rates, RTTs, losses. Over QUIC only.
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
}

/// Transport of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferProtocol {
    /// ccplane's own transport.
    Udp,
    Quic(Stack),
}

impl ValueEnum for TransferProtocol {
    fn value_variants<'a>() -> &'a [TransferProtocol] {
        &[
            TransferProtocol::Udp,
            TransferProtocol::Quic(Stack::Noq),
            TransferProtocol::Quic(Stack::Quinn),
            TransferProtocol::Quic(Stack::S2n),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            TransferProtocol::Udp => ("udp", "ccplane's own transport over UDP"),
            TransferProtocol::Quic(Stack::Noq) => ("quic", "QUIC by noq"),
            TransferProtocol::Quic(Stack::Quinn) => {
                ("quic:quinn", "QUIC by quinn, if built in (feature `quinn`)")
            }
            TransferProtocol::Quic(Stack::S2n) => {
                ("quic:s2n", "QUIC by s2n-quic, if built in (feature `s2n`)")
            }
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// Option of one transport: whether it is given, its name, and the reason why the other transport
/// lacks it.
pub type TransportOption = (bool, &'static str, &'static str);

/// Source of the time stamps on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampSource {
    /// The kernel's, if the algorithm uses one-way delay.
    Auto,
    /// None: an algorithm that uses one-way delay gets the round trip instead.
    Off,
    /// This process, when it sends and reads: with the noise of the whole stack.
    User,
    /// The kernel, when its driver takes or delivers a packet.
    Software,
    /// The network interface, if it supports stamps and they are enabled (`hwstamp_ctl -i DEV -t 1
    /// -r 1`), otherwise the kernel.
    Hardware,
}

impl StampSource {
    /// Returns true if sent packets carry stamps. `wants`: the algorithm uses one-way delay.
    pub fn on(self, wants: bool) -> bool {
        match self {
            StampSource::Auto => wants,
            StampSource::Off => false,
            StampSource::User | StampSource::Software | StampSource::Hardware => true,
        }
    }

    fn stamping(self) -> Stamping {
        match self {
            StampSource::Auto | StampSource::Software => Stamping::Software,
            StampSource::Off | StampSource::User => Stamping::Off,
            StampSource::Hardware => Stamping::Hardware,
        }
    }
}

impl TransferArgs {
    /// Fails if an option is given that the transport does not support. `udp_only`: options of the
    /// command that QUIC does not support.
    pub fn check_transport(&self, udp_only: &[TransportOption]) -> Result<(), Failure> {
        let no_stamps = "its packets carry no time stamps";
        let (name, other, options) = match self.over {
            TransferProtocol::Udp => {
                let why = "ccplane's own transport writes no qlog";
                ("UDP", "quic", vec![(self.qlog.is_some(), "--qlog", why)])
            }
            TransferProtocol::Quic(_) => {
                let why = "the stack finds the largest packet itself";
                let mut options = vec![
                    (self.mtu.is_some(), "--mtu", why),
                    (self.stamps.is_some(), "--stamps", no_stamps),
                    (self.link_rate.is_some(), "--link-rate", no_stamps),
                ];
                options.extend(udp_only);
                ("QUIC", "udp", options)
            }
        };
        match options.iter().find(|(given, ..)| *given) {
            Some((_, option, why)) => {
                let text = format!("{option}: not supported over {name}: {why}");
                Err(Failure::text(FailureKind::Usage, text)
                    .hint(format!("remove it, or use --over {other}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the largest packet, bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(1500)
    }

    /// Returns the source of time stamps.
    pub fn stamps(&self) -> StampSource {
        self.stamps.unwrap_or(StampSource::Auto)
    }

    /// Returns --window, bytes.
    pub fn window(&self) -> Result<usize, Failure> {
        let window = self.window.get();
        if !(1 << 16..=1 << 30).contains(&window) {
            let text = format!("--window {window} is out of range");
            return Err(Failure::text(FailureKind::Usage, text).hint("use 64 KiB to 1 GiB"));
        }
        Ok(window as usize)
    }

    /// Returns --timeout.
    pub fn timeout(&self) -> Result<Duration, Failure> {
        if self.timeout < Duration::from_secs(1) {
            return Err(
                Failure::text(FailureKind::Usage, "--timeout is too short").hint("use 1 s or more")
            );
        }
        Ok(self.timeout)
    }

    /// Returns the options of a UDP socket at `local`, which sends to `peer` or listens.
    pub fn udp_options(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        dscp: u8,
        tls: Tls,
    ) -> Result<UdpOptions, Failure> {
        let mtu = u64::from(self.mtu());
        // IP and UDP headers.
        let headers = if local.is_ipv4() { 28 } else { 48 };
        let least = MIN_PLPMTU as u64 + headers;
        if !(least..=DATAGRAM_BYTES_MAX as u64 + headers).contains(&mtu) {
            let hint = format!("use {least} to 65535; Ethernet has 1500");
            let text = format!("--mtu {mtu} is out of range");
            return Err(Failure::text(FailureKind::Usage, text).hint(hint));
        }
        let link = self
            .link_rate
            .map(|rate| rate.resolve(local, peer))
            .transpose()?;
        Ok(UdpOptions {
            local,
            datagram_bytes: (mtu - headers) as usize,
            window: self.window()?,
            tls: Some(tls),
            dscp,
            config: TransportConfig {
                idle_timeout: self.timeout()?,
                open_retries: HELLO_RETRIES,
                ..TransportConfig::default()
            },
            stamping: self.stamps().stamping(),
            link_rate: link,
            accept_congestion: Native::cubic(),
        })
    }
}

/// Converts an error. Unavailable time stamps are a limitation of this host; anything else is a
/// failed run.
pub fn failed(why: UdpError) -> Failure {
    let kind = match why {
        UdpError::Stamps(_) => FailureKind::Unsupported,
        _ => FailureKind::Failed,
    };
    Failure::new(kind, why)
}

/// Retries of the hello: it is sent at 0, 1 and 3 s, and given up at 7 s, because a person waits.
const HELLO_RETRIES: u8 = 2;

/// Returns a hash in hexadecimal.
pub fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Returns a progress bar for a terminal, hidden in a pipe. Without a length it counts bytes.
pub fn bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{msg}[{bar:30}] {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::no_length(), "{msg}{bytes}  {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).expect("a constant template is valid");
    bar.with_style(style.progress_chars("=> "))
}

/// Returns the CPU time of this process so far, all threads, user and system, s.
pub fn cpu_seconds() -> f64 {
    ccplane_testbed::cpu::process_ns() as f64 / 1e9
}

/// Returns a failure for a transfer to `peer` that got no answer; `trouble` is the last socket
/// error.
pub fn no_answer_failure(peer: SocketAddr, trouble: Option<&io::Error>) -> Failure {
    let text = match trouble {
        Some(why) => format!("no answer from {peer}: {why}"),
        None => format!("no answer from {peer}"),
    };
    Failure::text(FailureKind::Failed, text).hint(
        "check that `ccplane recv` of the same version is running there, and that the path \
         carries UDP packets of --mtu",
    )
}
