//! The two ends of a path of real packets.

use std::io;
use std::net::{IpAddr, TcpStream};

use ccplane_datapath::Capabilities;
use ccplane_emu::Emulator;
use ccplane_host::Namespace;
use ccplane_lab::Error;

use crate::diag::Diag;
use crate::error::BackendError;
use crate::traffic;

/// Namespaces of the senders and of the receivers, which may be the same, and the receivers'
/// address.
pub struct TrafficEnds {
    /// Namespace of the senders.
    pub sender: Namespace,
    /// Namespace of the receivers.
    pub receiver: Namespace,
    /// Address that the receivers listen on.
    pub address: IpAddr,
}

/// Runs `work` in a namespace. `action` names it in an error.
pub fn inside<T: Send>(
    namespace: &Namespace,
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, Error> {
    let done = namespace
        .run(work)
        .map_err(|error| BackendError::from_host(error, false))?;
    done.map_err(Error::traffic(action, ""))
}

impl TrafficEnds {
    /// Creates both ends in one namespace, over loopback.
    pub fn loopback() -> Result<TrafficEnds, Error> {
        let namespace = Namespace::create(&format!("ccplane-bench-{}", std::process::id()))
            .map_err(|error| BackendError::from_host(error, true))?;
        Ok(TrafficEnds {
            receiver: namespace.clone(),
            sender: namespace,
            address: IpAddr::from([127, 0, 0, 1]),
        })
    }

    /// Returns the ends of an emulated path. The emulator must outlive their use.
    pub fn of(emulator: &Emulator) -> TrafficEnds {
        TrafficEnds {
            sender: emulator.sender_ns().clone(),
            receiver: emulator.receiver_ns().clone(),
            address: emulator.receiver_addr(),
        }
    }
}

/// Opens the connections: senders, receivers, and a [`Diag`] socket for the senders. If the
/// algorithm wants ECN or timestamps, both ends run its congestion control: the kernel then accepts
/// the offer, echoes every mark and answers each stamped packet.
pub fn open(
    ends: &TrafficEnds,
    congestion: &str,
    wants: Capabilities,
    flows: usize,
    buffer: usize,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>, Diag), Error> {
    let inside =
        |error| -> Error { BackendError::Emulator(ccplane_emu::Error::Host(error)).into() };
    let ecn = wants.contains(Capabilities::ECN);
    let address = ends.address;
    let listener = ends
        .receiver
        .run(|| {
            let listener = traffic::listen(address, buffer)?;
            if ecn || wants.contains(Capabilities::ONE_WAY_DELAY) {
                traffic::listen_under(&listener, congestion)?;
            }
            Ok(listener)
        })
        .map_err(inside)?
        .map_err(Error::traffic("listen in the receiver's namespace", ""))?;
    let to = listener
        .local_addr()
        .map_err(Error::traffic("read the listener's address", ""))?;
    let (senders, mut diag) = ends
        .sender
        .run(|| {
            let senders = (0..flows)
                .map(|_| traffic::connect(to, congestion, buffer))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((senders, Diag::open()?))
        })
        .map_err(inside)?
        .map_err(Error::traffic(
            "connect over the path",
            "with a loss near 100%, no connection succeeds",
        ))?;
    let receivers = traffic::accept(&listener, &senders).map_err(Error::traffic(
        "accept the connections",
        "with a loss near 100%, no connection succeeds",
    ))?;
    if ecn {
        agreed(&senders, &mut diag).map_err(Error::traffic(
            "use ECN",
            "if the first SYN is lost, the kernel retries without ECN \
             (net.ipv4.tcp_ecn_fallback); run again, or use an algorithm that needs no ECN",
        ))?;
    }
    Ok((senders, receivers, diag))
}

/// Refuses connections that did not negotiate ECN: an algorithm that relies on marks would see none
/// and take every queue to be empty.
fn agreed(senders: &[TcpStream], diag: &mut Diag) -> std::io::Result<()> {
    for sender in senders {
        let (local, peer) = (sender.local_addr()?, sender.peer_addr()?);
        if diag.query(local, peer)?.is_some_and(|info| !info.ecn) {
            return Err(std::io::Error::other(format!(
                "the connection from {local} to {peer} did not negotiate ECN, so queues may not \
                 mark its packets"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_ecn_are_refused_where_it_is_needed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut diag = Diag::open().unwrap();
        let offers = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap();
        let agreed = agreed(&[sender], &mut diag);
        // With `tcp_ecn` 1 or 3 all connections of this host offer ECN.
        if matches!(offers.trim(), "1" | "3") {
            agreed.unwrap();
        } else {
            assert!(
                agreed
                    .unwrap_err()
                    .to_string()
                    .contains("did not negotiate ECN")
            );
        }
    }
}
