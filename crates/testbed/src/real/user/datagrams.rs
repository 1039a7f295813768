//! Sockets of datagram workloads, opened when first needed.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_emu::Emulator;
use ccplane_lab::Error;
use ccplane_workload::NodeId;

use crate::ends::inside;
use crate::real::RealPlan;
use crate::real::accounting::place;
use crate::real::socket::{self, DATAGRAM_HEADER_BYTES};

pub(super) struct UserDatagrams<'r> {
    emulator: &'r Emulator,
    plan: &'r RealPlan,
    /// By workload, sender and receiver.
    sockets: HashMap<(usize, NodeId, NodeId), UdpSocket>,
    /// Receiving sockets by workload and receiver.
    sinks: HashMap<(usize, NodeId), (UdpSocket, Arc<AtomicU64>)>,
}

impl<'r> UserDatagrams<'r> {
    /// Creates an empty set.
    pub fn new(emulator: &'r Emulator, plan: &'r RealPlan) -> UserDatagrams<'r> {
        UserDatagrams {
            emulator,
            plan,
            sockets: HashMap::new(),
            sinks: HashMap::new(),
        }
    }

    /// Counts the datagrams that have arrived.
    pub fn drain_sinks(&self) {
        for (sink, received) in self.sinks.values() {
            let mut buffer = [0; 2048];
            // Errors such as ICMP unreachable do not affect the next datagram.
            while let Ok(count) = sink.recv(&mut buffer) {
                received.fetch_add(
                    count as u64 + u64::from(DATAGRAM_HEADER_BYTES),
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Sends a datagram.
    pub fn send(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
        bytes: u32,
        counted: Arc<AtomicU64>,
    ) -> Result<(), Error> {
        let (here, there) = (place(self.plan, from)?, place(self.plan, to)?);
        let sink = (workload, to);
        if !self.sinks.contains_key(&sink) {
            let open = || {
                let sink = socket::sink(self.plan.socket_buffer)?;
                Ok((sink.local_addr()?, sink))
            };
            let (_, opened) = inside(
                there.side.namespace(self.emulator),
                "receive datagrams in a namespace",
                open,
            )?;
            self.sinks.insert(sink, (opened, counted));
        }
        let key = (workload, from, to);
        if !self.sockets.contains_key(&key)
            && let Some((sink, _)) = self.sinks.get(&sink)
        {
            let port = sink
                .local_addr()
                .map_err(Error::traffic("read a socket's address", ""))?
                .port();
            let to = SocketAddr::new(there.address, port);
            let dscp = self.plan.dscp(workload);
            let open = || socket::datagrams(here.address, to, dscp);
            let opened = inside(
                here.side.namespace(self.emulator),
                "open a socket for datagrams",
                open,
            )?;
            self.sockets.insert(key, opened);
        }
        let payload = vec![0; bytes.saturating_sub(DATAGRAM_HEADER_BYTES) as usize];
        if let Some(socket) = self.sockets.get(&key) {
            // A send error counts as a loss, like a drop in the network.
            let _ = socket.send(&payload);
        }
        Ok(())
    }
}
