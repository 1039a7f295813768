//! How soon a changed text steers: from its writing to a live flow that runs it, through `ccplane
//! attach --watch`.
#![expect(clippy::disallowed_methods, reason = "a benchmark in real time")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ccplane::program::find_ccplane;
use ccplane_linux::PinnedView;
use nix::sys::socket::{setsockopt, sockopt};

use crate::Error;

const NAME: &str = "ccp_bench_text";
/// Changes; odd, so that a median is one of them.
const CHANGES: u32 = 21;
/// How often it is looked whether the changed text is in force. Seldom would be measured too.
const LOOK: Duration = Duration::from_micros(200);
/// Longer than any reload: then something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

/// The median, ms.
pub(super) fn median_ms() -> Result<f64, Error> {
    let file = std::env::temp_dir().join(format!("ccplane-bench-{}.ccp", std::process::id()));
    write(&file, segments(0))?;
    let attached = Attached::start(file)?;
    let failed = |what: &'static str| Error::because(what);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed("listening on loopback"))?;
    let to = listener
        .local_addr()
        .map_err(failed("listening on loopback"))?;
    let mut stream = TcpStream::connect(to).map_err(failed("a connection over loopback"))?;
    setsockopt(&stream, sockopt::TcpCongestion, &NAME.into())
        .map_err(std::io::Error::from)
        .map_err(failed("a socket under the text"))?;
    let (mut accepted, _) = listener
        .accept()
        .map_err(failed("a connection over loopback"))?;
    let receiver =
        thread::spawn(move || while accepted.read(&mut [0; 1 << 16]).is_ok_and(|read| read > 0) {});
    let sender = {
        let mut stream = stream
            .try_clone()
            .map_err(failed("a connection over loopback"))?;
        // Small and steady: a flow that is never without ACKs, on a processor that has time for
        // others.
        thread::spawn(move || {
            while stream.write_all(&[0; 20_000]).is_ok() {
                sleep(Duration::from_micros(500));
            }
        })
    };
    let took = changes(&attached);
    let _ = stream.flush();
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let _ = (sender.join(), receiver.join());
    took
}

fn changes(attached: &Attached) -> Result<f64, Error> {
    attached.in_force(segments(0))?;
    let mut took = Vec::new();
    for change in 1..=CHANGES {
        let began = Instant::now();
        write(&attached.file, segments(change))?;
        attached.in_force(segments(change))?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// Each text has another window than the one before.
fn segments(change: u32) -> u32 {
    10 + change % 2
}

fn write(file: &Path, segments: u32) -> Result<(), Error> {
    let text = format!(
        "(algorithm bench_text (needs cwnd)) (def) (when true (:= Cwnd (* {segments} Flow.mss)))\n"
    );
    std::fs::write(file, text).map_err(Error::because(file.display()))
}

/// A process of `ccplane attach --watch`, which ends with this value.
struct Attached {
    child: Child,
    file: PathBuf,
}

impl Attached {
    fn start(file: PathBuf) -> Result<Attached, Error> {
        let failed = |what: &str| Error::because(format!("{what} cannot be started"));
        let mut command = Command::new(find_ccplane()?);
        command.args(["attach", "--watch", "--alg"]).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = ccplane_host::die_with_parent(&mut command)
            .spawn()
            .map_err(failed("ccplane attach --watch"))?;
        let attached = Attached { child, file };
        let began = Instant::now();
        while PinnedView::open(NAME).is_err() {
            if began.elapsed() > PATIENCE {
                return Err(Error::failed(
                    "ccplane attach --watch does not register the text",
                ));
            }
            sleep(LOOK);
        }
        Ok(attached)
    }

    /// Waits until a flow has this window.
    fn in_force(&self, segments: u32) -> Result<(), Error> {
        let began = Instant::now();
        let mut observed = None;
        while began.elapsed() < PATIENCE {
            observed = observed.or_else(|| PinnedView::open(NAME).ok());
            let flows = observed.iter().flat_map(PinnedView::flows);
            if flows.into_iter().any(|flow| {
                flow.agent_controlled && flow.cwnd.get() == u64::from(segments) * flow.mss.get()
            }) {
                return Ok(());
            }
            sleep(LOOK);
        }
        Err(Error::failed(format!(
            "a text did not steer within {} s",
            PATIENCE.as_secs()
        )))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = ccplane_linux::detach(Some(NAME));
        let _ = std::fs::remove_file(&self.file);
    }
}
