//! Thread of the stack: an endpoint, and one task per connection that moves bytes between its
//! stream and its pipe.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

use super::pipe::{PIPE_BYTES, PipeBuffers, StatsReader, StreamPipe};
use crate::host::code;

/// Longest wait for the peers to be notified when a host is dropped.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

pub(super) trait StackEndpoint: 'static {
    type Link: StackConnection;

    fn connect(&self, to: SocketAddr)
    -> impl Future<Output = Result<Self::Link, String>> + 'static;

    /// Returns the next incoming connection as a future of its handshake; dropping the future
    /// refuses the connection. `None` if the endpoint has ended. Never completes on a client
    /// endpoint.
    fn accept(
        &mut self,
    ) -> impl Future<Output = Option<impl Future<Output = Result<Self::Link, String>> + 'static>>;

    /// Waits until the peers have probably been notified of closed connections.
    fn wait_idle(&mut self) -> impl Future<Output = ()>;
}

/// Connection of a stack.
pub(super) trait StackConnection: 'static {
    type Sending: Sending;
    type Receiving: AsyncRead + Unpin;

    /// Opens the connection's only stream on the client, accepts it on the server.
    fn stream(
        &mut self,
        client: bool,
    ) -> impl Future<Output = Result<(Self::Sending, Self::Receiving), String>>;

    /// Returns a function that reads the statistics from any thread.
    fn stats_reader(&self) -> StatsReader;

    fn close(&self, code: u32);
}

/// Send half of a stream.
pub(super) trait Sending: AsyncWrite + Unpin {
    /// Ends the stream and waits until everything is acknowledged.
    fn finish(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// Runs an endpoint until its host is dropped.
pub(super) async fn serve<E: StackEndpoint>(
    mut endpoint: E,
    mut orders: UnboundedReceiver<(SocketAddr, Arc<StreamPipe>)>,
    shared: &Arc<PipeBuffers>,
    most: usize,
) {
    let pipes: Rc<RefCell<Vec<Weak<StreamPipe>>>> = Rc::default();
    // Cloned for each incoming connection, from before its handshake until its end.
    let accepted = Rc::new(());
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((to, pipe)) = order else { break };
                note(&pipes, &pipe);
                let connecting = endpoint.connect(to);
                tokio::task::spawn_local(run(connecting, pipe, true));
            }
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if Rc::strong_count(&accepted) > most {
                    // Dropping the future refuses the connection.
                    continue;
                }
                let (shared, pipes) = (Arc::clone(shared), Rc::clone(&pipes));
                let counted = Rc::clone(&accepted);
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    // Failed incoming handshakes are not reported.
                    let Ok(link) = incoming.await else { return };
                    let pipe = StreamPipe::new(&shared);
                    note(&pipes, &pipe);
                    shared.accepted().push_back(Arc::clone(&pipe));
                    run(ready(Ok(link)), pipe, false).await;
                });
            }
        }
    }
    // Aborts connections that are still open.
    for pipe in pipes.borrow().iter().filter_map(Weak::upgrade) {
        pipe.state().close.get_or_insert(false);
        pipe.close_notify.notify_one();
    }
    tokio::task::yield_now().await;
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
}

/// Registers a connection, so that it can be aborted at the end.
fn note(pipes: &RefCell<Vec<Weak<StreamPipe>>>, pipe: &Arc<StreamPipe>) {
    let mut pipes = pipes.borrow_mut();
    pipes.retain(|pipe| pipe.strong_count() > 0);
    pipes.push(Arc::downgrade(pipe));
}

/// Guard of a connection's task: reports its end to the application, even after a panic of the
/// stack.
struct Task(Arc<StreamPipe>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.update(|state| {
            state.task_ended = true;
            if state.close.is_none() {
                state
                    .failure
                    .get_or_insert_with(|| "the stack failed".to_owned());
            }
        });
    }
}

/// Runs a connection until the application closes it.
async fn run<L: StackConnection>(
    begun: impl Future<Output = Result<L, String>>,
    pipe: Arc<StreamPipe>,
    client: bool,
) {
    let _task = Task(Arc::clone(&pipe));
    let begun = tokio::select! {
        biased;
        begun = begun => begun,
        () = pipe.close_notify.notified() => return,
    };
    match begun {
        Ok(mut link) => {
            let read_stats = link.stats_reader();
            pipe.update(|state| {
                state.connected = true;
                state.stats_reader = Some(read_stats);
            });
            tokio::select! {
                outcome = carry(&mut link, &pipe, client) => {
                    if let Err(why) = outcome {
                        pipe.update(|state| state.failure = Some(why));
                    }
                    pipe.close_notify.notified().await;
                }
                () = pipe.close_notify.notified() => {}
            }
            let well = pipe.state().close == Some(true);
            link.close(code(well));
            // Keeps the final statistics, but not the connection.
            let read_stats = pipe.state().stats_reader.take();
            let last = read_stats.map(|read_stats| read_stats());
            pipe.update(|state| {
                state.stats_reader = last.map(|last| Arc::new(move || last) as StatsReader)
            });
        }
        Err(why) => {
            pipe.update(|state| state.failure = Some(why));
            pipe.close_notify.notified().await;
        }
    }
}

/// Moves a connection's stream data in both directions.
async fn carry<L: StackConnection>(
    link: &mut L,
    pipe: &StreamPipe,
    client: bool,
) -> Result<(), String> {
    let (sending, receiving) = link.stream(client).await?;
    tokio::try_join!(send(sending, pipe), receive(receiving, pipe))?;
    Ok(())
}

async fn send(mut stream: impl Sending, pipe: &StreamPipe) -> Result<(), String> {
    let mut piece = Vec::new();
    loop {
        let finished = {
            let mut state = pipe.state();
            piece.clear();
            std::mem::swap(&mut piece, &mut state.send_buffer);
            state.finished
        };
        if !piece.is_empty() {
            pipe.shared.signal();
            stream
                .write_all(&piece)
                .await
                .map_err(|why| why.to_string())?;
        } else if finished {
            stream.finish().await?;
            pipe.update(|state| state.sent_all = true);
            return Ok(());
        } else {
            pipe.write_notify.notified().await;
        }
    }
}

async fn receive(mut stream: impl AsyncRead + Unpin, pipe: &StreamPipe) -> Result<(), String> {
    let mut piece = vec![0; PIPE_BYTES / 4];
    loop {
        while pipe.state().receive_buffer.len() >= PIPE_BYTES {
            pipe.read_notify.notified().await;
        }
        let count = stream
            .read(&mut piece)
            .await
            .map_err(|why| why.to_string())?;
        pipe.update(|state| match piece.get(..count) {
            Some(bytes) if count > 0 => state.receive_buffer.extend(bytes),
            _ => state.fin_received = true,
        });
        if count == 0 {
            return Ok(());
        }
    }
}
