//! HTTP server of the metrics endpoint. Request size, number of connections and time per connection
//! are bounded.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as Bound};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use super::{Format, text};
use crate::exit::{Failure, FailureKind};

/// Size limit of the request line and headers. A smaller one refuses headers that some proxies add;
/// a larger one only costs memory.
const REQUEST_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Concurrent connections; others wait in the accept queue. A handful of scrapers need no more, and
/// each connection costs [`REQUEST_HEAD_BYTES_MAX`].
const CONNECTIONS_MAX: usize = 16;
/// Time limit of a connection, from accept to the end of the response. A shorter limit cuts off
/// slow scrapers; a longer one lets idle connections hold their slots.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, for example when descriptors run out. A shorter pause would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(200);

/// Page at `/`, for people with a browser.
const LANDING_PAGE: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ccplane</title></head>
<body><h1>ccplane</h1><p><a href=\"/metrics\">Metrics</a> for Prometheus</p></body></html>
";

/// Metrics, or the reason why they cannot be read.
pub type MetricsSource = Result<Registry, String>;

/// Channel for the metrics of one scrape.
pub type MetricsReply = oneshot::Sender<MetricsSource>;

/// Serves `/metrics` on `address` from a thread of its own for the lifetime of the process.
///
/// The thread has no capabilities. Each scrape calls `ask`, which either answers or forwards the
/// request to a thread with the required privileges. It must not block.
pub fn serve(
    address: SocketAddr,
    ask: impl Fn(MetricsReply) + Send + 'static,
) -> Result<SocketAddr, Failure> {
    let cannot = |e: std::io::Error| {
        Failure::text(
            FailureKind::Failed,
            format!("cannot serve metrics on {address}: {e}"),
        )
        .hint(
            "the port may be in use; choose another with --metrics ADDRESS:PORT, or with `listen` \
             in a gateway's [metrics]",
        )
    };
    let listener = Bound::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let run = move || {
        if let Err(error) = ccplane_linux::drop_capabilities() {
            tracing::error!(
                "metrics are not served, as their thread cannot drop its capabilities: {error}"
            );
            return;
        }
        match std::panic::catch_unwind(AssertUnwindSafe(|| run(listener, ask))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("the metrics endpoint stopped: {error}"),
            Err(_) => {
                tracing::error!("the metrics endpoint panicked; the algorithms keep running")
            }
        }
    };
    let thread = std::thread::Builder::new().name("ccplane-metrics".into());
    thread.spawn(run).map_err(cannot)?;
    Ok(address)
}

fn run(listener: Bound, ask: impl Fn(MetricsReply) + 'static) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async move {
        let listener = TcpListener::from_std(listener)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let service = Rc::new(Service {
            ask: Box::new(ask),
            unread: Cell::new(0),
        });
        let mut failing = false;
        while let Ok(place) = places.clone().acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if !failing {
                        tracing::warn!(
                            "the metrics endpoint cannot accept a connection and will retry: \
                             {error}"
                        );
                    }
                    failing = true;
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            failing = false;
            let service = Rc::clone(&service);
            tokio::task::spawn_local(async move {
                // A client's protocol error ends its own connection only.
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, service.connection(stream)).await;
                drop(place);
            });
        }
        Ok(())
    })
}

struct Service {
    ask: Box<dyn Fn(MetricsReply)>,
    /// Scrapes for which the metrics could not be read.
    unread: Cell<u64>,
}

impl Service {
    /// Serves one request.
    async fn connection(&self, stream: TcpStream) -> hyper::Result<()> {
        let answer =
            service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(REQUEST_HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), answer)
            .await
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !request.body().is_end_stream() {
            return plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a request body is not accepted\n".to_owned(),
            );
        }
        let path = request.uri().path();
        if path != "/metrics" && path != "/" {
            return plain(StatusCode::NOT_FOUND, "see /metrics\n".to_owned());
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "use GET or HEAD\n".to_owned(),
            );
        }
        if path == "/" {
            let mut response = plain(StatusCode::OK, LANDING_PAGE.to_owned());
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            return response;
        }
        let accepted = request.headers().get_all(ACCEPT).iter();
        let format = Format::negotiate(accepted.filter_map(|value| value.to_str().ok()));
        let (sender, figures) = oneshot::channel();
        (self.ask)(sender);
        let figures = figures
            .await
            .unwrap_or_else(|_| Err("the process is exiting".to_owned()));
        match figures {
            Ok(registry) => {
                let mut response = plain(StatusCode::OK, text(registry, self.unread.get(), format));
                let kind = HeaderValue::from_static(format.content_type());
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Err(why) => {
                self.unread.set(self.unread.get() + 1);
                plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("the values cannot be read: {why}\n"),
                )
            }
        }
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests;
