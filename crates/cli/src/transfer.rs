//! Shared parts of `ccplane send`, `ccplane recv` and `ccplane quic`.

pub(crate) mod liveness;
mod name;
mod new_file;
pub(crate) mod sink;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::endpoint::MIN_PLPMTU;
use ccplane_udp::{DATAGRAM_BYTES_MAX, Stamping, Tls, UdpError, UdpOptions};
use ccplane_units::{Bytes, Duration};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Failure, FailureKind};
use crate::link_rate::LinkRate;
use wire::Hash;

/// What both commands take.
#[derive(Args)]
pub struct TransferArgs {
    /// The file with this host's certificate and its private key; `~/.config/ccplane/identity`
    /// without this.
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Largest packet, IP header included. Where the path carries only smaller ones, that is found
    /// out.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u32,
    /// Bytes of a connection that may be under way; at least rate times round-trip time, or it
    /// limits.
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    window: Bytes,
    /// Give up when the other side does not answer for so long, though it is asked at least 12
    /// times; a receiver also when nothing new comes for three times that.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: Duration,
    /// Time stamps on packets, which tell the one-way queueing delay: of the sender's choice, and
    /// answered by any receiver.
    #[arg(long, value_name = "WHOSE", default_value = "auto")]
    pub stamps: StampSource,
    /// Rate of this host's own link, or `auto` for what its driver says: stamps of packets that it
    /// handed over, or noticed, together are spread over what they take there.
    #[arg(long, value_name = "RATE")]
    link_rate: Option<LinkRate>,
}

/// Whose time stamps packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampSource {
    /// The kernel's, where the algorithm wants one-way delay.
    Auto,
    /// None: an algorithm that wants one-way delay has the round trip instead.
    Off,
    /// Those of this process, when it sends and reads: with the noise of the whole stack.
    User,
    /// The kernel's, when its driver has a packet.
    Software,
    /// The network interface's, where it gives them and they are switched on (`hwstamp_ctl -i DEV
    /// -t 1 -r 1`), else the kernel's.
    Hardware,
}

impl StampSource {
    /// Whether to put them on what is sent, by an algorithm that `wants` them or does not.
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
    /// Options of a socket at `local`, which is to reach `peer` or whoever comes.
    pub fn options(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        dscp: u8,
        tls: Tls,
    ) -> Result<UdpOptions, Failure> {
        let usage = |text: String| Failure::text(FailureKind::Usage, text);
        let mtu = u64::from(self.mtu);
        // Of IP and UDP.
        let headers = if local.is_ipv4() { 28 } else { 48 };
        let least = MIN_PLPMTU as u64 + headers;
        if !(least..=DATAGRAM_BYTES_MAX as u64 + headers).contains(&mtu) {
            let hint = format!("{least} to 65535; 1500 is Ethernet's");
            return Err(usage(format!("--mtu {mtu} is out of range")).hint(hint));
        }
        let window = self.window.get();
        if !(1 << 16..=1 << 30).contains(&window) {
            return Err(usage(format!("--window {window} is out of range")).hint("64 KiB to 1 GiB"));
        }
        if self.timeout < Duration::from_secs(1) {
            return Err(usage("--timeout is too short".to_owned()).hint("1 s at least"));
        }
        let link = self
            .link_rate
            .map(|rate| rate.of(local, peer))
            .transpose()?;
        Ok(UdpOptions {
            local,
            datagram: (mtu - headers) as usize,
            window: window as usize,
            tls: Some(tls),
            dscp,
            config: TransportConfig {
                idle_timeout: self.timeout,
                open_retries: HELLO_RETRIES,
                ..TransportConfig::default()
            },
            stamping: self.stamps.stamping(),
            link,
            accepted: Native::cubic(),
        })
    }
}

/// What a socket cannot do this host cannot; anything else failed.
pub fn failed(why: UdpError) -> Failure {
    let kind = match why {
        UdpError::Stamps(_) => FailureKind::Unsupported,
        _ => FailureKind::Failed,
    };
    Failure::new(kind, why)
}

/// Hellos after the first: at 0, 1, 3 s, given up at 7 s. A person waits for it.
const HELLO_RETRIES: u8 = 2;

/// A hash as people compare it.
pub fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// A bar on a terminal, nothing in a pipe. Without a length it counts.
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

/// CPU time of this process so far, all threads, user and system, in seconds.
pub fn cpu_seconds() -> f64 {
    ccplane_testbed::cpu::process_ns() as f64 / 1e9
}

/// What a network error in words means for a transfer to `peer`.
pub fn why_no_answer(peer: SocketAddr, trouble: Option<&io::Error>) -> Failure {
    let text = match trouble {
        Some(why) => format!("no answer from {peer}: {why}"),
        None => format!("no answer from {peer}"),
    };
    Failure::text(FailureKind::Failed, text)
        .hint("is `ccplane recv` running there, and as new as this one? does the path carry UDP in packets of --mtu?")
}
