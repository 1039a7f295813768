//! `ccplane gateway run`: until it is told to stop, or something goes wrong.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_gateway::{Gateway, GatewayError, status};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{ConfigArgs, hinted, makes, read};
use crate::exit::{Failure, FailureKind};
use crate::{Registry, log, metrics, output};

/// How soon a signal is seen.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How to run.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Measure and limit nothing.
    #[arg(long)]
    observe: bool,
    /// Where `status`, `events`, `pass` and `control` ask. A second gateway on this host needs
    /// another.
    #[arg(long, value_name = "PATH", default_value = status::SOCKET_PATH_DEFAULT)]
    socket: PathBuf,
}

/// Runs the command.
#[expect(clippy::disallowed_methods, reason = "it waits for signals")]
pub fn run(args: &RunArgs, registry: Registry, json: bool) -> Result<(), Failure> {
    let file = &args.config.file;
    let registry = Arc::new(registry);
    let (config, key) = read(file, &registry)?;
    let (stop, again) = signals()?;
    let metrics = config.metrics;
    let gateway = Gateway::start_and_settle(
        config,
        &key,
        makes(Arc::clone(&registry)),
        args.observe,
        &args.socket,
        ccplane_linux::keep_net_admin,
    )
    .map_err(failed)?;
    let metrics = metrics
        .map(|address| serve_metrics(address, &gateway))
        .transpose()?;
    let report = gateway.report();
    if json {
        println!(
            "{}",
            serde_json::json!({
                "listening": report.listen, "device": report.device, "socket": args.socket, "metrics": metrics,
            })
        );
    } else {
        println!(
            "listening on {}, interface {}; `ccplane gateway status` shows what it does",
            report.listen, report.device
        );
        if let Some(address) = metrics {
            println!("metrics at http://{address}/metrics");
        }
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let watchdog = sd_notify::watchdog_enabled();
    let mut notified = Instant::now();
    while !stop.load(Ordering::Relaxed) && gateway.is_running() {
        if again.swap(false, Ordering::Relaxed) {
            reload(&gateway, args, &registry);
        }
        // Without the notification systemd restarts the service: a thread that forwards is stuck.
        if let Some(limit) = watchdog
            && notified.elapsed() >= limit / 4
            && gateway.stuck_for() < limit / 2
        {
            notified = Instant::now();
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        }
        thread::sleep(SIGNAL_POLL_INTERVAL);
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    gateway.stop().map_err(failed)
}

fn serve_metrics(address: SocketAddr, gateway: &Gateway) -> Result<SocketAddr, Failure> {
    let report = gateway.reporter();
    metrics::serve(address, move |answer| {
        // A scraper that went away is not our fault.
        let _ = answer.send(Ok(metrics::of_gateway(&report())));
    })
}

/// A file that cannot be used is told, and changes nothing.
fn reload(gateway: &Gateway, args: &RunArgs, registry: &Registry) {
    let (config, _) = match read(&args.config.file, registry) {
        Ok(read) => read,
        Err(failure) => {
            log::write(output::drawn(failure));
            return;
        }
    };
    match gateway.reload(config) {
        Ok(changes) => changes
            .iter()
            .for_each(|change| crate::log::write(format!("reloaded: {change}"))),
        Err(why) => tracing::error!("not reloaded: {why}"),
    }
}

/// Stop, and read again.
fn signals() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>), Failure> {
    let (stop, again) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let hooks = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        // A second one ends the process at once, for when the way out is stuck.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map(|_| ())
    });
    hooks
        .and_then(|()| signal_hook::flag::register(SIGHUP, Arc::clone(&again)))
        .map_err(|e| {
            Failure::text(
                FailureKind::Failed,
                format!("signals cannot be caught: {e}"),
            )
        })?;
    Ok((stop, again))
}

fn failed(error: GatewayError) -> Failure {
    let kind = match &error {
        GatewayError::Host(_) => FailureKind::Unsupported,
        _ => FailureKind::Failed,
    };
    hinted(kind, &error.to_string())
}
