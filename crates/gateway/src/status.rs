//! Status socket: the client sends a request as one line of JSON, the gateway replies with one line
//! per result. Only the socket's owner can connect.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::error::GatewayError;
use super::forward::GatewayState;
use super::report::GatewayReport;

/// Default path. The directory is separate from that of `attach`, because it may belong to another
/// user.
pub const SOCKET_PATH_DEFAULT: &str = "/run/ccplane-gateway/gateway.sock";

/// Longest request, bytes.
const REQUEST_BYTES_MAX: u64 = 4 * 1024;
/// Concurrent clients, each served by a thread.
const CLIENTS_MAX: usize = 16;
/// Timeout for reading the request and for each write of the reply.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for a stop.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StatusRequest {
    /// Requests a [`GatewayReport`].
    Status,
    /// Requests the events after a number, and with `follow` also all future events.
    Events {
        /// Number of the last event the client has.
        after: u64,
        /// True to keep sending new events.
        follow: bool,
    },
    /// Lets a peer's traffic pass without limit, or controls it again.
    ByHand {
        /// Name or public key of the peer.
        peer: String,
        /// True to disable the limit.
        pass: bool,
    },
}

/// Error reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// Cause and fix.
    pub error: String,
}

/// Listening socket. Dropping it removes the file.
pub(crate) struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Creates the socket, accessible to its owner only. Replaces a stale socket of a gateway that
    /// has died.
    pub fn bind(path: &Path) -> Result<Socket, GatewayError> {
        let failed = |why| GatewayError::Status {
            path: path.display().to_string(),
            why,
        };
        if let Some(directory) = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty())
        {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
                // Connecting to a regular file is refused too; such a file must not be removed.
                let socket =
                    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                let dead = UnixStream::connect(path)
                    .is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused);
                if !(socket && dead) {
                    return Err(failed(why));
                }
                fs::remove_file(path).map_err(failed)?;
                UnixListener::bind(path).map_err(failed)?
            }
            bound => bound.map_err(failed)?,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Socket {
            path: path.to_owned(),
            listener,
        })
    }

    /// Serves clients until the gateway stops.
    #[expect(clippy::disallowed_methods, reason = "waits for clients in real time")]
    pub fn serve(self, shared: &Arc<GatewayState>) {
        let askers = Arc::new(AtomicUsize::new(0));
        while !shared.is_stopped() {
            let Ok((stream, _)) = self.listener.accept() else {
                thread::sleep(POLL_INTERVAL);
                continue;
            };
            if askers.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                askers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (shared, place) = (Arc::clone(shared), Arc::clone(&askers));
            let answer = move || {
                // Ignore errors: the client has disconnected.
                let _ = serve_request(&shared, &stream);
                place.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new()
                .name("gateway-status".to_owned())
                .spawn(answer)
                .is_err()
            {
                askers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn serve_request(shared: &GatewayState, stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(StatusRequest::Status) => write_reply(stream, &GatewayReport::snapshot(shared)),
        Ok(StatusRequest::Events { mut after, follow }) => {
            let mut patience = Duration::ZERO;
            while !shared.is_stopped() {
                let events = shared.events.events_after(after, patience);
                for event in &events {
                    write_reply(stream, event)?;
                    after = event.number;
                }
                if !follow || is_gone(stream) {
                    break;
                }
                patience = POLL_INTERVAL;
            }
            Ok(())
        }
        Ok(StatusRequest::ByHand { peer, pass }) => {
            let table = shared.table();
            match table.iter().find(|found| {
                found.config.name == peer || found.config.public_key.to_string() == peer
            }) {
                Some(found) => {
                    found
                        .lock()
                        .sendbox
                        .set_disabled_by_operator(shared.now(), pass);
                    shared.wake();
                    write_reply(stream, &GatewayReport::snapshot(shared))
                }
                None => {
                    let names: Vec<&str> =
                        table.iter().map(|one| one.config.name.as_str()).collect();
                    let error = format!(
                        "no peer is named `{peer}`; the peers are {}",
                        names.join(", ")
                    );
                    write_reply(stream, &ErrorReply { error })
                }
            }
        }
        Err(why) => write_reply(
            stream,
            &ErrorReply {
                error: format!("cannot parse the request: {why}"),
            },
        ),
    }
}

/// Returns whether the client has closed its socket. A half-closed client still reads.
fn is_gone(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let _ = poll(&mut polled, PollTimeout::ZERO);
    polled[0].any().unwrap_or(true)
}

fn write_reply(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Sends a request and passes each line of the reply to `take`, until `take` returns false or the
/// reply ends.
pub fn request(
    path: &Path,
    question: &StatusRequest,
    mut take: impl FnMut(&str) -> bool,
) -> io::Result<()> {
    let stream = UnixStream::connect(path)?;
    write_reply(&stream, question)?;
    for line in BufReader::new(&stream).lines() {
        if !take(&line?) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dead_sockets_are_removed() {
        let directory = std::env::temp_dir().join(format!("ccplane-status-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.sock");
        fs::write(&path, "somebody's").unwrap();
        assert!(Socket::bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
        fs::remove_file(&path).unwrap();
        // Dropping the standard library's listener leaves the file.
        drop(UnixListener::bind(&path).unwrap());
        let alive = Socket::bind(&path).unwrap();
        assert!(Socket::bind(&path).is_err(), "a gateway serves this socket");
        drop(alive);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn closed_clients_are_detected_and_half_closed_ones_still_served() {
        let (asker, answerer) = UnixStream::pair().unwrap();
        assert!(!is_gone(&answerer));
        asker.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!is_gone(&answerer));
        drop(asker);
        assert!(is_gone(&answerer));
    }
}
