//! Connection of a stack with an async API: polls its futures and streams on the application's
//! thread.

use std::collections::VecDeque;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::EventWaker;
use crate::host::qlog::{ConnectionClose, Qlog};
use crate::host::{Connection, ConnectionStatus, QuicStats, code};

/// Received bytes that a connection buffers for the application.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// Largest read from a stream, bytes.
const READ_BYTES: usize = 16 << 10;

pub(super) type StackError = Box<dyn Error + Send + Sync>;
pub(super) type StackFuture<T> = Pin<Box<dyn Future<Output = Result<T, StackError>> + Send>>;

/// Send half of a stream, and the future of the acknowledgement of everything. The stream is shut
/// down before the future is polled.
type SendStream = (Box<dyn AsyncWrite + Send + Unpin>, StackFuture<Step>);
type ReceiveStream = Box<dyn AsyncRead + Send + Unpin>;

/// Progress of a connection.
pub(super) enum Step {
    /// The handshake is complete. The future opens or accepts the only stream.
    Connected(Box<dyn AsyncConnection>, StackFuture<Step>),
    Opened(SendStream, ReceiveStream),
    /// All written data and the end of the stream are acknowledged.
    SentAll,
}

/// Connection of a stack.
pub(super) trait AsyncConnection: Send {
    fn stats(&self) -> QuicStats;
    fn close(&self, code: u32);
}

pub(super) struct RuntimeConnection {
    waker: Arc<EventWaker>,
    next: Option<StackFuture<Step>>,
    connection: Option<Box<dyn AsyncConnection>>,
    send_stream: Option<SendStream>,
    receive_stream: Option<ReceiveStream>,
    receive_buffer: VecDeque<u8>,
    /// The application ended its stream.
    finished: bool,
    /// The peer's stream has ended; all data was read once the buffer is empty.
    fin_received: bool,
    status: ConnectionStatus,
    pub closed: bool,
    qlog: Qlog,
}

impl RuntimeConnection {
    pub fn new(
        waker: Arc<EventWaker>,
        handshake: StackFuture<Step>,
        qlog: Qlog,
    ) -> RuntimeConnection {
        RuntimeConnection {
            waker,
            next: Some(handshake),
            connection: None,
            send_stream: None,
            receive_stream: None,
            receive_buffer: VecDeque::new(),
            finished: false,
            fin_received: false,
            status: ConnectionStatus::default(),
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
        if self.status.failure.is_some() {
            return;
        }
        let waker = Arc::clone(&self.waker).into();
        let call = || call(self, &mut Context::from_waker(&waker));
        let outcome = catch_unwind(AssertUnwindSafe(call));
        if let Err(why) = outcome.unwrap_or_else(|_| Err("the stack failed".into())) {
            let why = why.to_string();
            let closed = ConnectionClose::for_reason(&why);
            self.qlog.close(Instant::now(), &closed);
            self.status.failure = Some(why);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), StackError> {
        loop {
            self.receive(context)?;
            if self.finished
                && let Some((mut stream, acknowledged)) = self.send_stream.take()
            {
                self.next = Some(Box::pin(async move {
                    poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await?;
                    acknowledged.await
                }));
            }
            let next = self.next.as_mut().map(|next| next.as_mut().poll(context));
            let Some(Poll::Ready(step)) = next else {
                return Ok(());
            };
            self.next = None;
            match step? {
                Step::Connected(connection, opening) => {
                    self.connection = Some(connection);
                    self.next = Some(opening);
                    self.status.connected = true;
                }
                Step::Opened(send_stream, receive_stream) => {
                    self.send_stream = Some(send_stream);
                    self.receive_stream = Some(receive_stream);
                }
                Step::SentAll => self.status.sent_all = true,
            }
        }
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
        self.status.read_all = self.fin_received && self.receive_buffer.is_empty();
        Ok(())
    }
}

impl Connection for RuntimeConnection {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        self.call(|connection, context| {
            // Until the stack is full: only then it wakes the connection when there is room again.
            while !connection.finished
                && let Some((stream, _)) = &mut connection.send_stream
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
        let bytes: &[u8] = self.receive_buffer.make_contiguous();
        let bytes = bytes.get(..most).unwrap_or(bytes);
        let count = bytes.len();
        if count > 0 {
            take(bytes);
            self.receive_buffer.drain(..count);
            // The buffer may have been full.
            self.waker.set();
        }
        self.status.read_all = self.fin_received && self.receive_buffer.is_empty();
        count
    }

    fn status(&self) -> &ConnectionStatus {
        &self.status
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
