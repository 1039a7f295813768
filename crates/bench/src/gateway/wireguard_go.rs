//! `wireguard-go` as a site's box, set up through the socket that it listens at
//! (wireguard.com/xplatform).

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ccplane_gateway::keys::PrivateKey;
use ccplane_host::{Namespace, die_with_parent};
use ccplane_testbed::wire;

use super::sites::{INNER, KEYS, MTU, PORT};
use crate::Error;

/// The program.
pub const PROGRAM: &str = "wireguard-go";

/// Starts it in a namespace, with its device.
pub fn start(
    site: usize,
    space: &Namespace,
    ends: [SocketAddr; 2],
    keys: &[PrivateKey; 2],
) -> Result<Child, Error> {
    // The socket has the device's name, and is not in the namespace.
    let device = format!("ccp{}{}", std::process::id() % 10_000_000, ["a", "b"][site]);
    let mut command = Command::new(PROGRAM);
    command
        .args(["-f", &device])
        .env("LOG_LEVEL", "silent")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    die_with_parent(&mut command);
    let mut child = space
        .enter_on_spawn(&mut command)?
        .spawn()
        .map_err(Error::because(format!("{PROGRAM} cannot be started")))?;
    let made = set_up(site, space, &device, ends, keys);
    if made.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    made.map(|()| child)
}

fn set_up(
    site: usize,
    space: &Namespace,
    device: &str,
    ends: [SocketAddr; 2],
    keys: &[PrivateKey; 2],
) -> Result<(), Error> {
    let far = 1 - site;
    let endpoint = match site {
        0 => format!("endpoint={}\n", ends[far]),
        _ => String::new(),
    };
    let settings = format!(
        "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\n{endpoint}allowed_ip={}/32\n\n",
        hex(&KEYS[site]),
        hex(keys[far].public().as_bytes()),
        INNER[far],
    );
    let failed = || Error::because(format!("set up {PROGRAM}"));
    let mut stream = connect(device).map_err(failed())?;
    stream.write_all(settings.as_bytes()).map_err(failed())?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(failed())?;
    if answer.trim() != "errno=0" {
        return Err(Error::failed(format!(
            "{PROGRAM} refuses its settings: {}",
            answer.trim()
        )));
    }
    let (address, mtu) = (format!("{}/24", INNER[site]), MTU.to_string());
    wire::run(space, "ip", &["addr", "add", &address, "dev", device])?;
    wire::run(space, "ip", &["link", "set", device, "mtu", &mtu, "up"])?;
    Ok(())
}

/// It needs a moment until it listens.
#[expect(clippy::disallowed_methods, reason = "a process starts in real time")]
fn connect(device: &str) -> std::io::Result<UnixStream> {
    let path = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
    let mut outcome = UnixStream::connect(&path);
    for _ in 0..100 {
        if outcome.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        outcome = UnixStream::connect(&path);
    }
    outcome
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
