//! The two ends of a path of real packets.

use std::io;
use std::net::IpAddr;

use ccplane_emu::Emulator;
use ccplane_host::Namespace;

use crate::error::Error;

/// Where the traffic goes: senders and receivers, who may be at the same place, and the receivers' address.
pub struct Ends {
    /// Where senders are.
    pub sender: Namespace,
    /// Where receivers are.
    pub receiver: Namespace,
    /// Where receivers listen.
    pub address: IpAddr,
}

/// Does this in a namespace; `action` is what is done there, for whoever reads that it failed.
pub fn inside<T: Send>(
    namespace: &Namespace,
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, Error> {
    let done = namespace.run(work).map_err(|error| Error::from_host(error, false))?;
    done.map_err(Error::traffic(action, ""))
}

impl Ends {
    /// Both in one namespace, over loopback.
    pub fn loopback() -> Result<Ends, Error> {
        let namespace = Namespace::create(&format!("ccplane-bench-{}", std::process::id()))
            .map_err(|error| Error::from_host(error, true))?;
        Ok(Ends {
            receiver: namespace.clone(),
            sender: namespace,
            address: IpAddr::from([127, 0, 0, 1]),
        })
    }

    /// Of an emulated path, which has to be kept.
    pub fn of(emulator: &Emulator) -> Ends {
        Ends {
            sender: emulator.sender_ns().clone(),
            receiver: emulator.receiver_ns().clone(),
            address: emulator.receiver_addr(),
        }
    }
}
