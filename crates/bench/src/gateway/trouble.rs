//! How soon a gateway is out of the way when the other side falls silent, and how soon it is back
//! when it was killed.
#![expect(clippy::disallowed_methods, reason = "a benchmark keeps to the clock")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccplane::program::find_ccplane;
use ccplane_emu::{EmuConfig, Emulator, LinkConfig, PathDirection};
use ccplane_gateway::keys::PrivateKey;
use ccplane_host::{Namespace, die_with_parent};
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_testbed::wire;
use ccplane_units::Rate;

use super::sites::{DEVICE, INNER, OUTER, PORT, Sites, Who, config};
use crate::Error;

/// A packet each way so often.
const GAP: Duration = Duration::from_millis(5);
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long after the way back went down the limit was gone, ms. 100 Mbit/s, 25 ms each way.
pub fn silent_open_ms() -> Result<f64, Error> {
    let link = |line| LinkConfig {
        line,
        delay: ccplane_units::Duration::from_millis(25),
        queue: QueueSpec::DropTail(Size::Bytes(1 << 20)),
        ..LinkConfig::default()
    };
    let line = LineSpec::Constant(Rate::from_bits_per_sec(100_000_000));
    let emulator = Emulator::start(EmuConfig {
        forward: link(line),
        reverse: link(LineSpec::Unlimited),
        log_records: 0,
        ..EmuConfig::default()
    })?;
    let spaces = [emulator.sender_ns().clone(), emulator.receiver_ns().clone()];
    let outer = [emulator.sender_addr(), emulator.receiver_addr()];
    let sites = Sites::between(Who::Gateway(Some(super::LIMIT)), spaces, outer)?;
    let [near, _far] = sites.udp_pair()?;
    let stop = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            // 130 Mbit/s, until there is no need any more.
            let payload = [0; 1_300];
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..12 {
                    let _ = near.send(&payload);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let took = limited(&sites).and_then(|()| {
            // For the round trip to be the path's again.
            thread::sleep(Duration::from_millis(1_500));
            let begun = Instant::now();
            emulator.control().set_up(PathDirection::Reverse, false);
            until("opened", || {
                Ok(sites.gateway(0)?.report().peers[0].reason == "silent")
            })?;
            Ok(begun.elapsed())
        });
        stop.store(true, Ordering::Relaxed);
        took
    })?;
    drop(sites);
    emulator.finish()?;
    Ok(took.as_secs_f64() * 1e3)
}

/// Waits until the first site's gateway has a limit.
pub fn limited(sites: &Sites) -> Result<(), Error> {
    until("limited", || {
        Ok(sites.gateway(0)?.report().peers[0].rate.is_some())
    })
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::failed(format!(
                "the gateway was not {what} within {PATIENCE:?}"
            )));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// For how long nothing came through after `kill -9` of a site's gateway, which is started again at
/// once, ms.
pub fn restart_outage_ms(killed: usize) -> Result<f64, Error> {
    let space =
        |end| Namespace::create(&format!("ccplane-{}-kill{killed}{end}", std::process::id()));
    let spaces = [space('a')?, space('b')?];
    wire::pair([&spaces[0], &spaces[1]], [DEVICE, "wire1"], OUTER)?;
    let folder = Folder::make()?;
    let key = |site| {
        let read = PrivateKey::read_or_make(&key_file(&folder.0, site));
        read.map(|(key, _)| key)
            .map_err(|why| Error::failed(why.to_string()))
    };
    let keys = [key(0)?, key(1)?];
    let second = Gateway::start(1, &spaces[1], &folder.0, &keys)?;
    let first = Gateway::start(0, &spaces[0], &folder.0, &keys)?;
    let mut gateways = [first, second];
    let bind = |site: usize| spaces[site].run(|| UdpSocket::bind((INNER[site], 0)));
    let failed = || Error::because("open a socket in a site");
    let pair = [bind(0)?.map_err(failed())?, bind(1)?.map_err(failed())?];
    for (from, to) in [(0, 1), (1, 0)] {
        let to = pair[to].local_addr().map_err(failed())?;
        pair[from].connect(to).map_err(failed())?;
        pair[from]
            .set_read_timeout(Some(Duration::from_millis(100)))
            .map_err(failed())?;
    }
    let [near, far] = &pair;
    let stop = AtomicBool::new(false);
    let last: Mutex<Option<Instant>> = Mutex::new(None);
    let seen = || last.lock().ok().and_then(|last| *last);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if let Ok(bytes) = far.recv(&mut buffer) {
                    let _ = far.send(&buffer[..bytes]);
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = near.send(b"there and back");
                thread::sleep(GAP);
            }
        });
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if near.recv(&mut buffer).is_ok()
                    && let Ok(mut last) = last.lock()
                {
                    *last = Some(Instant::now());
                }
            }
        });
        let mut measure = || -> Result<f64, Error> {
            until("reached through", || Ok(seen().is_some()))?;
            thread::sleep(Duration::from_secs(1));
            gateways[killed].kill();
            let begun = Instant::now();
            // What was under way comes yet.
            gateways[killed] = Gateway::start(killed, &spaces[killed], &folder.0, &keys)?;
            until("reached through again", || {
                Ok(seen().is_some_and(|at| at > begun + GAP * 4))
            })?;
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        };
        let outcome = measure();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn key_file(folder: &Path, site: usize) -> PathBuf {
    folder.join(format!("{site}.key"))
}

/// A gateway in a process of its own: `ccplane gateway run`.
struct Gateway(Child);

impl Gateway {
    /// Starts it and waits until it says that it listens.
    fn start(
        site: usize,
        space: &Namespace,
        folder: &Path,
        keys: &[PrivateKey; 2],
    ) -> Result<Gateway, Error> {
        let ends = OUTER.map(|address| SocketAddr::new(IpAddr::from(address), PORT));
        let (file, key) = (folder.join(format!("{site}.toml")), key_file(folder, site));
        let text = config(site, ends, keys, None).replace("site.key", &key.display().to_string());
        fs::write(&file, text).map_err(Error::because("write a gateway's configuration"))?;
        let program = find_ccplane()?;
        let mut command = Command::new(program);
        command
            .args(["gateway", "run"])
            .arg(&file)
            .env(
                "CCPLANE_GATEWAY_SOCKET",
                folder.join(format!("{site}.sock")),
            )
            .stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = space
            .enter_on_spawn(&mut command)?
            .spawn()
            .map_err(Error::because("start a gateway's process"))?;
        let mut line = String::new();
        let said = child.stdout.take();
        let gateway = Gateway(child);
        let _ = said.map(|said| BufReader::new(said).read_line(&mut line));
        match line.is_empty() {
            false => Ok(gateway),
            true => Err(Error::failed(
                "a gateway's process did not start: it says why above",
            )),
        }
    }

    fn kill(&mut self) {
        // By SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder, Error> {
        let path =
            std::env::temp_dir().join(format!("ccplane-bench-gateway-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::because(path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
