//! The log on standard error, and messages of a running command.
//!
//! The reader of standard error may stall: a full disk, a stopped journal, a terminal at Ctrl-S. So
//! a single thread writes, and lines are dropped and counted while its queue is full. Threads that
//! move packets, run algorithms or handle signals never wait.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use crate::escape::escape;

/// Length of the queue. A shorter one drops bursts that would be read; a longer one only costs
/// memory.
const QUEUE_LINES: usize = 1_024;
/// Limit of lines per second. A higher one lets a peer that triggers log lines fill a disk; a lower
/// one drops legitimate bursts.
const LINES_PER_SECOND_MAX: u32 = 500;
/// Limit of a line, bytes. Strangers choose parts of a line: a higher limit lets them fill the
/// queue's memory, a lower one cuts what the operator needs.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Longest wait for the queue when a command ends.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of dropped lines.
static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);

enum LogMessage {
    Line(Vec<u8>),
    /// Acknowledged once everything before it is written.
    Flush(SyncSender<()>),
}

/// The writer's queue, created by the first line; `None` inside if the thread could not start.
static WRITER_QUEUE: OnceLock<Option<SyncSender<LogMessage>>> = OnceLock::new();

/// Returns the writer's queue, starting the writer on first use.
fn queue() -> Option<&'static SyncSender<LogMessage>> {
    let start = || {
        let (to, from) = sync_channel(QUEUE_LINES);
        let write_all = move || {
            // The thread only writes to an open descriptor.
            #[cfg(feature = "host")]
            let _ = ccplane_linux::drop_capabilities();
            write_lines(&from, &mut io::stderr(), &DROPPED_LINES);
        };
        let thread = thread::Builder::new().name("ccplane-log".into());
        thread.spawn(write_all).ok().map(|_| to)
    };
    WRITER_QUEUE.get_or_init(start).as_ref()
}

/// Queues text of one or more lines, without escaping it.
pub(crate) fn write(text: impl Into<Vec<u8>>) {
    let mut text = text.into();
    text.push(b'\n');
    match queue() {
        Some(queue) => {
            if queue.try_send(LogMessage::Line(text)).is_err() {
                DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => {
            let _ = io::stderr().write_all(&text);
        }
    }
}

/// Returns the number of dropped lines.
pub(crate) fn dropped() -> u64 {
    DROPPED_LINES.load(Ordering::Relaxed)
}

/// Waits until the queue is written, at most [`FLUSH_TIMEOUT`].
#[expect(clippy::disallowed_methods, reason = "waits for another thread")]
pub(crate) fn flush() {
    let (done, written) = sync_channel(1);
    let started = WRITER_QUEUE.get().and_then(Option::as_ref);
    if started.is_some_and(|queue| queue.try_send(LogMessage::Flush(done)).is_ok()) {
        let _ = written.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Writes queued lines. After a gap, first writes the number of lines dropped since the last one.
#[expect(
    clippy::disallowed_methods,
    reason = "standard error is written in real time"
)]
fn write_lines(from: &Receiver<LogMessage>, to: &mut impl Write, dropped: &AtomicU64) {
    let (mut told, mut second, mut lines) = (0, Instant::now(), 0);
    for message in from {
        let line = match message {
            LogMessage::Line(line) => line,
            LogMessage::Flush(done) => {
                let _ = done.try_send(());
                continue;
            }
        };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, lines) = (Instant::now(), 0);
        }
        lines += 1;
        if lines > LINES_PER_SECOND_MAX {
            dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let all = dropped.load(Ordering::Relaxed);
        if all > told {
            let _ = writeln!(to, "ccplane: {} log lines were dropped", all - told);
            told = all;
        }
        // There is nowhere else to report this error.
        let _ = to.write_all(&line);
    }
}

/// Writer for a `tracing` subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

/// One line of the log, queued on drop.
#[derive(Debug, Default)]
pub(crate) struct LogLine(Vec<u8>);

impl MakeWriter<'_> for Log {
    type Writer = LogLine;

    fn make_writer(&self) -> LogLine {
        LogLine::default()
    }
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        // ESC stays, since it starts our own colour codes; `tracing` escapes it in values.
        write(escape(text.trim_end_matches('\n'), &['\t', '\x1b']));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writer that blocks, like standard error without a reader.
    struct BlockedWriter(Receiver<()>);

    impl Write for BlockedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_blocked_reader_does_not_block_the_log() {
        let (to, from) = sync_channel(4);
        let (read, reads) = sync_channel::<()>(0);
        thread::scope(|scope| {
            scope.spawn(move || write_lines(&from, &mut BlockedWriter(reads), &AtomicU64::new(0)));
            let taken =
                (0..100).filter(|_| to.try_send(LogMessage::Line(b"line\n".to_vec())).is_ok());
            // The queue's capacity, plus the line being written.
            assert!(taken.count() <= 5);
            drop((read, to));
        });
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let dropped = AtomicU64::new(3);
        let (to, from) = sync_channel(2_000);
        for _ in 0..LINES_PER_SECOND_MAX + 200 {
            to.try_send(LogMessage::Line(b"line\n".to_vec())).unwrap();
        }
        drop(to);
        let mut written = Vec::new();
        write_lines(&from, &mut written, &dropped);
        let text = String::from_utf8(written).unwrap();
        assert!(
            text.starts_with("ccplane: 3 log lines were dropped\nline\n"),
            "{text:.100}"
        );
        let (lines, dropped) = (text.lines().count() as u64 - 1, dropped.into_inner() - 3);
        assert!(
            lines >= u64::from(LINES_PER_SECOND_MAX)
                && lines + dropped == u64::from(LINES_PER_SECOND_MAX) + 200,
            "{lines} and {dropped}"
        );
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut line = LogLine::default();
        for _ in 0..3 {
            line.write_all(&[b'x'; LINE_BYTES_MAX - 1]).unwrap();
        }
        assert_eq!(line.0.len(), LINE_BYTES_MAX);
        // Keeps the drop from logging the long line.
        line.0.clear();
    }
}
