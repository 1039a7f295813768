//! Helpers of the tests on real packets.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration as StdDuration;

use ccplane_emu::qdisc::LineSpec;
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_host::Namespace;

#[path = "../../../host/tests/common/mod.rs"]
pub mod host;

/// Returns true if this process may create namespaces; otherwise reports that the test is skipped.
pub fn may_run(test: &str) -> bool {
    host::namespace(test).is_some()
}

pub fn rate(text: &str) -> LineSpec {
    LineSpec::Constant(text.parse().expect("a rate"))
}

pub fn emulate(forward: LinkConfig, reverse: LinkConfig) -> Emulator {
    let config = EmuConfig {
        forward,
        reverse,
        ..EmuConfig::default()
    };
    Emulator::start(config).expect("the machine allows it")
}

/// Opens a socket at each end.
pub fn sockets(emulator: &Emulator) -> (UdpSocket, UdpSocket) {
    let open = |namespace: &Namespace, address: IpAddr| {
        let socket = namespace
            .run(|| UdpSocket::bind((address, 0)))
            .expect("the test's namespace");
        let socket = socket.expect("its address is there");
        socket
            .set_read_timeout(Some(StdDuration::from_secs(5)))
            .expect("not zero");
        socket
    };
    let sender = open(emulator.sender_ns(), emulator.sender_addr());
    let receiver = open(emulator.receiver_ns(), emulator.receiver_addr());
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("one subnet");
    receiver
        .connect(sender.local_addr().expect("bound"))
        .expect("one subnet");
    (sender, receiver)
}
