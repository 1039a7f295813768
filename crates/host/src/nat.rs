//! Network address translation for a network behind this host, through nftables.

use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::Duration;

use crate::{Error, die_with_parent, interface, system_program};

/// Masquerading: packets from a local network leave with this host's address, and replies are
/// translated back.
///
/// The nftables table is owned by a process that lives as long as this value, so the kernel removes
/// the table even if the owner is killed.
#[derive(Debug)]
pub struct Masquerade {
    nft: Child,
    /// Closing it ends the process.
    commands: Option<ChildStdin>,
}

/// Sysctl that is 1 if the kernel forwards IPv4 packets.
const IP_FORWARD_SYSCTL: &str = "net/ipv4/ip_forward";

impl Masquerade {
    /// Starts to translate packets from this network, in the calling process's namespace. `table`
    /// is the name shown by `nft list tables`.
    pub fn start(table: &str, network: Ipv4Addr, prefix: u8) -> Result<Masquerade, Error> {
        let forwards = interface::sysctl(IP_FORWARD_SYSCTL)?;
        if forwards.trim() != "1" {
            return Err(Error::NotForwarding);
        }
        let mut nft = die_with_parent(&mut system_program("nft"))
            .arg("--interactive")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Error::NoNft,
                _ => Error::system("run nft", e),
            })?;
        let commands = nft.stdin.take();
        let mut masquerade = Masquerade { nft, commands };
        let text = format!(
            "add table ip {table} {{ flags owner; }}\n\
             add chain ip {table} out {{ type nat hook postrouting priority srcnat; }}\n\
             add rule ip {table} out ip saddr {network}/{prefix} ip daddr != {network}/{prefix} \
             masquerade\n"
        );
        let stdin = masquerade
            .commands
            .as_mut()
            .ok_or(io::ErrorKind::BrokenPipe);
        let written = stdin
            .map_err(io::Error::from)
            .and_then(|stdin| stdin.write_all(text.as_bytes()));
        if written.is_err() || !wait_for_table(table) {
            return Err(masquerade.into_error());
        }
        Ok(masquerade)
    }

    /// Returns nft's message as an error.
    fn into_error(mut self) -> Error {
        self.commands = None;
        let mut said = String::new();
        if let Some(stderr) = &mut self.nft.stderr {
            // Without the message the error still states the operation.
            let _ = stderr.take(2_000).read_to_string(&mut said);
        }
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        Error::system(
            "configure address translation with nft",
            io::Error::other(said),
        )
    }
}

/// Waits until the kernel has the table's rule.
#[expect(clippy::disallowed_methods, reason = "nft runs in real time")]
fn wait_for_table(table: &str) -> bool {
    (0..100).any(|_| {
        let listed = system_program("nft")
            .args(["list", "table", "ip", table])
            .output();
        let there = listed
            .is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains("masquerade"));
        if !there {
            thread::sleep(Duration::from_millis(20));
        }
        there
    })
}

impl Drop for Masquerade {
    fn drop(&mut self) {
        self.commands = None;
        // The table is removed with the process.
        let _ = self.nft.wait();
    }
}
