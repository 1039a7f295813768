//! Connections that use an algorithm of `ccplane attach`.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use ccplane_linux::PinnedView;
use nix::sys::socket::{setsockopt, sockopt};

/// A connection over loopback.
pub struct Pair {
    pub stream: TcpStream,
    pub accepted: TcpStream,
}

impl Pair {
    /// Opens a connection with this congestion control.
    pub fn under(name: &str) -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(name))
            .expect("it is registered");
        let (accepted, _) = listener.accept().expect("it is connected");
        Pair { stream, accepted }
    }

    pub fn exchange(&mut self) {
        let chunk = [0x55; 20_000];
        let mut back = [0; 20_000];
        self.stream.write_all(&chunk).expect("connected");
        self.accepted.read_exact(&mut back).expect("connected");
    }
}

/// Returns true if an agent controls a flow.
pub fn is_steered(watch: &PinnedView) -> bool {
    let mut flows = watch.flows();
    flows.any(|flow| flow.agent_controlled && !flow.in_fallback)
}

/// Returns true if the kernel has a congestion control of this name.
pub fn is_registered(name: &str) -> bool {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = fs::read_to_string(path).expect("a mounted /proc");
    names.split_whitespace().any(|other| other == name)
}
