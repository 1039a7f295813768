//! Connection of a stack with an async API: polls its futures and streams on the application's
//! thread.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::io::BufRead;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::waker::EventWaker;
use crate::host::qlog::{ConnectionClose, Qlog};
use crate::host::{Connection, QuicStats, code};

/// Received bytes that a connection buffers for the application.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// Largest read from a stream, bytes.
const READ_BYTES: usize = 16 << 10;

pub(super) type StackError = Box<dyn Error + Send + Sync>;
pub(super) type StackFuture<T> = Pin<Box<dyn Future<Output = Result<T, StackError>> + Send>>;
/// Connection after its handshake, and the future of its only stream.
pub(super) type NewConnection = (Box<dyn AsyncConnection>, StackFuture<Streams>);
pub(super) type Streams = (Box<dyn SendStream>, ReceiveStream);
pub(super) type ReceiveStream = Box<dyn AsyncRead + Send + Unpin>;

/// Connection of a stack.
pub(super) trait AsyncConnection: Send {
    fn stats(&self) -> QuicStats;
    fn close(&self, code: u32);
}

/// Send half of a stream.
pub(super) trait SendStream: AsyncWrite + Send + Unpin {
    /// Ends the stream and waits until everything is acknowledged.
    fn finish(self: Box<Self>) -> StackFuture<()>;
}

pub(super) struct RuntimeConnection {
    waker: Arc<EventWaker>,
    handshake: Option<StackFuture<NewConnection>>,
    connection: Option<Box<dyn AsyncConnection>>,
    opening: Option<StackFuture<Streams>>,
    send_stream: Option<Box<dyn SendStream>>,
    receive_stream: Option<ReceiveStream>,
    receive_buffer: VecDeque<u8>,
    /// The application ended its stream.
    finished: bool,
    finishing: Option<StackFuture<()>>,
    sent_all: bool,
    /// The peer's stream has ended; all data was read once the buffer is empty.
    fin_received: bool,
    failure: Option<String>,
    pub closed: bool,
    qlog: Qlog,
}

impl RuntimeConnection {
    pub fn new(
        waker: Arc<EventWaker>,
        handshake: StackFuture<NewConnection>,
        qlog: Qlog,
    ) -> RuntimeConnection {
        RuntimeConnection {
            waker,
            handshake: Some(handshake),
            connection: None,
            opening: None,
            send_stream: None,
            receive_stream: None,
            receive_buffer: VecDeque::new(),
            finished: false,
            finishing: None,
            sent_all: false,
            fin_received: false,
            failure: None,
            closed: false,
            qlog,
        }
    }

    /// Polls the stack if it woke the connection, and logs changed metrics. Returns true if it was
    /// polled.
    pub fn process(&mut self, now: Instant) -> bool {
        let woken = self.waker.take();
        if woken {
            self.call(RuntimeConnection::poll);
        }
        if self.qlog.is_due(now)
            && let Some(connection) = &self.connection
        {
            self.qlog.record_metrics(now, &connection.stats());
        }
        woken
    }

    /// Calls the stack. The connection ends with an error or a panic of the stack.
    fn call(&mut self, call: impl FnOnce(&mut Self, &mut Context<'_>) -> Result<(), StackError>) {
        if self.failure.is_some() {
            return;
        }
        let waker = self.waker.waker();
        let call = || call(self, &mut Context::from_waker(&waker));
        let outcome = catch_unwind(AssertUnwindSafe(call));
        if let Err(why) = outcome.unwrap_or_else(|_| Err("the stack failed".into())) {
            let why = why.to_string();
            let closed = ConnectionClose::for_reason(&why);
            self.qlog.close(Instant::now(), &closed);
            self.failure = Some(why);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), StackError> {
        if let Some((connection, opening)) = poll_future(&mut self.handshake, context)? {
            (self.connection, self.opening) = (Some(connection), Some(opening));
        }
        if let Some((send_stream, receive_stream)) = poll_future(&mut self.opening, context)? {
            self.send_stream = Some(send_stream);
            self.receive_stream = Some(receive_stream);
        }
        self.receive(context)?;
        if self.finished
            && let Some(stream) = self.send_stream.take()
        {
            self.finishing = Some(stream.finish());
        }
        self.sent_all |= poll_future(&mut self.finishing, context)?.is_some();
        Ok(())
    }

    /// Reads from the stream until it has no data or the buffer is full.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<(), StackError> {
        while self.receive_buffer.len() < RECEIVE_BUFFER_BYTES
            && let Some(stream) = &mut self.receive_stream
        {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut piece = ReadBuf::uninit(&mut space);
            match Pin::new(stream).poll_read(context, &mut piece) {
                Poll::Pending => break,
                Poll::Ready(outcome) => outcome?,
            }
            self.receive_buffer.extend(piece.filled());
            if piece.filled().is_empty() {
                self.fin_received = true;
                self.receive_stream = None;
            }
        }
        Ok(())
    }
}

impl Connection for RuntimeConnection {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        if self.finished {
            return 0;
        }
        self.call(|connection, context| {
            // Until the stack is full: only then it wakes the connection when there is room again.
            while let Some(stream) = &mut connection.send_stream
                && let Some(rest) = bytes.get(count..)
                && !rest.is_empty()
                && let Poll::Ready(written) = Pin::new(stream).poll_write(context, rest)
            {
                count += written?;
            }
            Ok(())
        });
        count
    }

    fn finish(&mut self) {
        self.finished = true;
        self.waker.set();
    }

    fn read(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < most
            && let Ok(bytes) = self.receive_buffer.fill_buf()
            && !bytes.is_empty()
        {
            let bytes = bytes.get(..most - count).unwrap_or(bytes);
            take(bytes);
            let taken = bytes.len();
            self.receive_buffer.consume(taken);
            count += taken;
        }
        if count > 0 {
            // The buffer may have been full.
            self.waker.set();
        }
        count
    }

    fn has_sent_all(&self) -> bool {
        self.sent_all
    }

    fn has_read_all(&self) -> bool {
        self.fin_received && self.receive_buffer.is_empty()
    }

    fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn stats(&mut self) -> QuicStats {
        let connection = self.connection.as_deref();
        connection.map_or_else(QuicStats::default, AsyncConnection::stats)
    }

    fn close(&mut self, graceful: bool) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let code = code(graceful);
        self.qlog
            .close(Instant::now(), &ConnectionClose::by_application(code));
        if let Some(connection) = &self.connection {
            connection.close(code);
        }
    }
}

/// Polls a future, if there is one, and returns its value when it is complete.
fn poll_future<T>(
    future: &mut Option<StackFuture<T>>,
    context: &mut Context<'_>,
) -> Result<Option<T>, StackError> {
    match future.as_mut().map(|future| future.as_mut().poll(context)) {
        Some(Poll::Ready(outcome)) => {
            *future = None;
            outcome.map(Some)
        }
        Some(Poll::Pending) | None => Ok(None),
    }
}
