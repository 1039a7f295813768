//! Listening TCP sockets of this network namespace, by address and process. Sockets opened before
//! time stamps were attached do not answer the option, because it is enabled when a socket starts
//! to listen.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// `TCP_LISTEN` in `/proc/net/tcp`.
const TCP_LISTEN: &str = "0A";

/// Returns the listeners of the cgroup's processes, or all of them, as `0.0.0.0:80 (nginx, process
/// 123)`.
pub fn open(cgroup: Option<&Path>) -> Vec<String> {
    let members = cgroup.map(members);
    let mut owners = owners();
    let mut listeners: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| table.lines().filter_map(parse).collect::<Vec<_>>())
        .filter_map(|(address, inode)| match (owners.remove(&inode), &members) {
            (Some((pid, _)), Some(members)) if !members.contains(&pid) => None,
            (None, Some(_)) => None,
            (Some((pid, name)), _) => Some(format!("{address} ({name}, process {pid})")),
            (None, None) => Some(address.to_string()),
        })
        .collect();
    listeners.sort();
    listeners
}

/// Parses the address and inode of a listening socket from a line of the table.
fn parse(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != TCP_LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // 32-bit words, each in host byte order.
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|n| u32::from_str_radix(address.get(n * 8..n * 8 + 8)?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect::<Option<_>>()?;
    let address: IpAddr = match words.as_slice() {
        [v4] => Ipv4Addr::from(*v4).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into(),
    };
    Some((SocketAddr::new(address, port), inode))
}

/// Maps socket inodes to the process that has them open, with its name.
fn owners() -> HashMap<u64, (u32, String)> {
    let mut owners = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let files = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        for file in files {
            let inode = fs::read_link(file.path()).ok().and_then(|link| {
                let inner = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
                inner.parse().ok()
            });
            if let Some(inode) = inode {
                let name = || fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                owners
                    .entry(inode)
                    .or_insert_with(|| (pid, name().trim().to_owned()));
            }
        }
    }
    owners
}

/// Returns the processes of a cgroup and its descendants.
fn members(cgroup: &Path) -> HashSet<u32> {
    let own = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let mut all: HashSet<u32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for directory in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        all.extend(members(&directory.path()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_named_with_its_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connected = std::net::TcpStream::connect(address).unwrap();
        let open = open(None);
        let ours = format!("process {})", std::process::id());
        let shown = open
            .iter()
            .find(|text| text.starts_with(&format!("{address} ")))
            .expect("it listens");
        assert!(shown.ends_with(&ours), "{shown}");
        // A connected socket is not listed.
        let own = connected.local_addr().unwrap();
        assert!(open.iter().all(|text| !text.starts_with(&own.to_string())));
        assert!(parse("  sl  local_address rem_address   st tx_queue").is_none());
    }
}
