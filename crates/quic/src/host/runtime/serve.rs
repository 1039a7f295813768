//! The stack's thread: an endpoint, and a task for each connection that moves bytes between its
//! stream and its pipe.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

use super::pipe::{Figures, Pipe, ROOM, Shared};
use crate::host::code;

/// How long a host that goes away waits at most until the peers of its connections may have heard
/// of it.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(200);

/// An endpoint of a stack.
pub(super) trait Endpoint: 'static {
    type Link: Link;

    fn connect(&self, to: SocketAddr)
    -> impl Future<Output = Result<Self::Link, String>> + 'static;

    /// The next connection that a peer opens, with its handshake to come: dropped before that, it
    /// is refused. Nothing once the endpoint is over. An endpoint that opens connections waits for
    /// ever.
    fn accept(
        &mut self,
    ) -> impl Future<Output = Option<impl Future<Output = Result<Self::Link, String>> + 'static>>;

    /// Until the peers may have heard that their connections are over.
    fn settle(&mut self) -> impl Future<Output = ()>;
}

/// A connection of a stack.
pub(super) trait Link: 'static {
    type Sending: Sending;
    type Receiving: AsyncRead + Unpin;

    /// Its one stream: the client opens it.
    fn stream(
        &mut self,
        client: bool,
    ) -> impl Future<Output = Result<(Self::Sending, Self::Receiving), String>>;

    /// What tells its figures, from any thread.
    fn figures(&self) -> Figures;

    fn close(&self, code: u32);
}

/// The half of a stream that sends.
pub(super) trait Sending: AsyncWrite + Unpin {
    /// Ends it, and waits until everything is acknowledged.
    fn finish(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// Runs an endpoint until its host is gone.
pub(super) async fn serve<E: Endpoint>(
    mut endpoint: E,
    mut orders: UnboundedReceiver<(SocketAddr, Arc<Pipe>)>,
    shared: &Arc<Shared>,
    most: usize,
) {
    let pipes: Rc<RefCell<Vec<Weak<Pipe>>>> = Rc::default();
    // A clone for each connection that a peer opens, from before its handshake to its end.
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
                    // Dropped here.
                    continue;
                }
                let (shared, pipes, counted) = (Arc::clone(shared), Rc::clone(&pipes), Rc::clone(&accepted));
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    // Of one whose handshake fails nobody hears.
                    let Ok(link) = incoming.await else { return };
                    let pipe = Pipe::new(&shared);
                    note(&pipes, &pipe);
                    shared.accepted().push_back(Arc::clone(&pipe));
                    run(ready(Ok(link)), pipe, false).await;
                });
            }
        }
    }
    // What is still open is given up.
    for pipe in pipes.borrow().iter().filter_map(Weak::upgrade) {
        pipe.state().close.get_or_insert(false);
        pipe.closed.notify_one();
    }
    tokio::task::yield_now().await;
    let _ = tokio::time::timeout(FAREWELL, endpoint.settle()).await;
}

/// Keeps sight of a connection, for the end.
fn note(pipes: &RefCell<Vec<Weak<Pipe>>>, pipe: &Arc<Pipe>) {
    let mut pipes = pipes.borrow_mut();
    pipes.retain(|pipe| pipe.strong_count() > 0);
    pipes.push(Arc::downgrade(pipe));
}

/// What runs a connection. However it ends, also by a panic of the stack's, the owner hears of it.
struct Task(Arc<Pipe>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.tell(|state| {
            state.over = true;
            if state.close.is_none() {
                state
                    .failure
                    .get_or_insert_with(|| "the stack failed".to_owned());
            }
        });
    }
}

/// Runs a connection until its owner closes it.
async fn run<L: Link>(
    begun: impl Future<Output = Result<L, String>>,
    pipe: Arc<Pipe>,
    client: bool,
) {
    let _task = Task(Arc::clone(&pipe));
    let begun = tokio::select! {
        biased;
        begun = begun => begun,
        () = pipe.closed.notified() => return,
    };
    match begun {
        Ok(mut link) => {
            let figures = link.figures();
            pipe.tell(|state| {
                state.connected = true;
                state.figures = Some(figures);
            });
            tokio::select! {
                outcome = carry(&mut link, &pipe, client) => {
                    if let Err(why) = outcome {
                        pipe.tell(|state| state.failure = Some(why));
                    }
                    pipe.closed.notified().await;
                }
                () = pipe.closed.notified() => {}
            }
            let well = pipe.state().close == Some(true);
            link.close(code(well));
            // The last figures stay; what they were taken from does not.
            let figures = pipe.state().figures.take();
            let last = figures.map(|figures| figures());
            pipe.tell(|state| state.figures = last.map(|last| Arc::new(move || last) as Figures));
        }
        Err(why) => {
            pipe.tell(|state| state.failure = Some(why));
            pipe.closed.notified().await;
        }
    }
}

/// Carries a connection's stream in both directions.
async fn carry<L: Link>(link: &mut L, pipe: &Pipe, client: bool) -> Result<(), String> {
    let (sending, receiving) = link.stream(client).await?;
    tokio::try_join!(send(sending, pipe), receive(receiving, pipe))?;
    Ok(())
}

async fn send(mut stream: impl Sending, pipe: &Pipe) -> Result<(), String> {
    let mut piece = Vec::new();
    loop {
        let finished = {
            let mut state = pipe.state();
            piece.clear();
            std::mem::swap(&mut piece, &mut state.out);
            state.finished
        };
        if !piece.is_empty() {
            pipe.shared.ring();
            stream
                .write_all(&piece)
                .await
                .map_err(|why| why.to_string())?;
        } else if finished {
            stream.finish().await?;
            pipe.tell(|state| state.sent_all = true);
            return Ok(());
        } else {
            pipe.wrote.notified().await;
        }
    }
}

async fn receive(mut stream: impl AsyncRead + Unpin, pipe: &Pipe) -> Result<(), String> {
    let mut piece = vec![0; ROOM / 4];
    loop {
        while pipe.state().arrived.len() >= ROOM {
            pipe.took.notified().await;
        }
        let count = stream
            .read(&mut piece)
            .await
            .map_err(|why| why.to_string())?;
        pipe.tell(|state| match piece.get(..count) {
            Some(bytes) if count > 0 => state.arrived.extend(bytes),
            _ => state.ended = true,
        });
        if count == 0 {
            return Ok(());
        }
    }
}
