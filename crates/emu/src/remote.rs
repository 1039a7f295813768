//! Observing and changing an emulation from another process: a socket per emulation that accepts
//! one line and answers.
//!
//! ```text
//! set [up|down] rate 48mbit | … delay 5ms | … jitter 1ms | … loss 0.1% | show
//! ```
//! `up` is the forward direction, from the command to the host; without `up` or `down`, both
//! directions are changed.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ccplane_qdisc::{LineSpec, LossModel};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::Error;
use crate::control::{EmuHandle, PathDirection};

const SOCKET_DIRECTORY: &str = "/run/ccplane";
/// A request is one short line; clients that send more, or nothing, are disconnected.
const REQUEST_BYTES_MAX: u64 = 256;
const IO_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the names of the running emulations. Sockets left by killed ones are removed.
pub fn list() -> Vec<String> {
    let Ok(entries) = fs::read_dir(SOCKET_DIRECTORY) else {
        return Vec::new();
    };
    let mut ids: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let id = name.to_str()?.strip_prefix("emu-")?.strip_suffix(".sock")?;
            match UnixStream::connect(socket_path(id)) {
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(socket_path(id));
                    let _ = fs::remove_file(resolv_conf_path(id));
                    None
                }
                _ => Some(id.to_owned()),
            }
        })
        .collect();
    ids.sort();
    ids
}

/// Sends a request (`set rate 48mbit`, `show`) to an emulation and returns its answer.
pub fn request(id: &str, request: &str) -> Result<String, Error> {
    let refused = |reason: String| Error::Remote {
        id: id.into(),
        reason,
    };
    let exchange = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket_path(id))?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        stream.take(64 * 1024).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let running = list();
            refused(match running.is_empty() {
                true => "not running; no emulation is running".into(),
                false => format!("not running; running emulations: {}", running.join(", ")),
            })
        }
        _ => refused(e.to_string()),
    })?;
    match answer.strip_prefix("ok") {
        Some(answer) => Ok(answer.trim().into()),
        None => Err(refused(answer.trim_start_matches("error:").trim().into())),
    }
}

/// The socket of a running emulation. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Opens the socket, accessible only to the owner of this process, and answers requests until
    /// dropped.
    pub(crate) fn serve(id: &str, control: EmuHandle) -> Result<ControlSocket, Error> {
        let failed = |source| Error::System {
            what: "open the control socket in /run/ccplane",
            source,
        };
        let folder = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(SOCKET_DIRECTORY);
        folder.map_err(failed)?;
        // Removes the socket of an earlier process with the same PID.
        list();
        let path = socket_path(id);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        // From here on the socket is removed in any case.
        let mut remote = ControlSocket {
            path,
            stop: Some(stop),
            thread: None,
        };
        fs::set_permissions(&remote.path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let thread = thread::Builder::new()
            .name("ccplane-emu-ctl".into())
            .spawn(move || serve_requests(&listener, &stopped, &control))
            .map_err(failed)?;
        remote.thread = Some(thread);
        Ok(remote)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // The thread sees its end of the pair close.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn socket_path(id: &str) -> PathBuf {
    PathBuf::from(format!("{SOCKET_DIRECTORY}/emu-{id}.sock"))
}

/// Returns the path of the resolv.conf for a command of this emulation, if DNS is relayed.
pub(crate) fn resolv_conf_path(id: &str) -> PathBuf {
    PathBuf::from(format!("{SOCKET_DIRECTORY}/emu-{id}.resolv.conf"))
}

/// Answers requests sequentially until `stopped` closes.
fn serve_requests(listener: &UnixListener, stopped: &UnixStream, control: &EmuHandle) {
    loop {
        let mut polled = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
        ];
        let ready = poll(&mut polled, PollTimeout::NONE);
        let [asked, ended] = polled.map(|fd| fd.any().unwrap_or(false));
        if ended || ready.is_err_and(|e| e != nix::errno::Errno::EINTR) {
            return;
        }
        if asked && let Ok((stream, _)) = listener.accept() {
            // A client that disconnects early has no use for the error.
            let _ = serve_request(stream, control);
        }
    }
}

fn serve_request(mut stream: UnixStream, control: &EmuHandle) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let answer = match execute(&line, control) {
        Ok(answer) => format!("ok {answer}\n"),
        Err(reason) => format!("error: {reason}\n"),
    };
    stream.write_all(answer.as_bytes())
}

/// Executes a request. Returns the answer or an error message.
fn execute(line: &str, control: &EmuHandle) -> Result<String, String> {
    const USAGE: &str = "use `set [up|down] rate 48mbit`, `set [up|down] delay 5ms`, `set \
        [up|down] jitter 1ms`, `set [up|down] loss 0.1%` or `show`";
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ways, what, value) = match words[..] {
        ["show"] => return Ok(describe(control)),
        ["set", "up", what, value] => (&[PathDirection::Forward][..], what, value),
        ["set", "down", what, value] => (&[PathDirection::Reverse][..], what, value),
        ["set", what, value] => (&PathDirection::ALL[..], what, value),
        _ => return Err(USAGE.into()),
    };
    for &way in ways {
        match what {
            "rate" if value == "unlimited" => control.set_line(way, LineSpec::Unlimited),
            "rate" => control.set_line(way, LineSpec::Constant(value.parse().map_err(reason)?)),
            "delay" => control.set_delay(way, value.parse().map_err(reason)?),
            "jitter" => control.set_jitter(way, value.parse().map_err(reason)?),
            "loss" => control.set_loss(way, value.parse::<LossModel>().map_err(reason)?),
            _ => return Err(USAGE.into()),
        }
        .map_err(reason)?;
    }
    Ok(describe(control))
}

fn reason(error: impl std::error::Error) -> String {
    error.to_string()
}

/// Describes both directions, one line each.
fn describe(control: &EmuHandle) -> String {
    let line = |name, way| {
        let (link, done) = (control.link_config(way), control.stats(way));
        format!(
            "{name} {link}; delivered {} packets, {} of them marked, dropped {}, lost {}; {} bytes \
            queued",
            done.delivered, done.marks, done.queue_drops, done.losses, done.backlog_bytes
        )
    };
    format!(
        "{}\n{}",
        line("up", PathDirection::Forward),
        line("down", PathDirection::Reverse)
    )
}
