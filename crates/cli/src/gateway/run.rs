//! `ccplane gateway run`: runs a gateway until a signal or an error ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_gateway::{Gateway, GatewayError};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{ConfigArgs, algorithm_factory, hinted, read, socket};
use crate::exit::{Failure, FailureKind};
use crate::{Registry, log, metrics, output};

/// Interval at which signals are checked.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Measure only, without limiting any traffic.
    #[arg(long)]
    observe: bool,
}

#[expect(clippy::disallowed_methods, reason = "waits for signals")]
pub fn run(args: &RunArgs, registry: Registry, json: bool) -> Result<(), Failure> {
    let (file, socket) = (&args.config.file, socket());
    let registry = Arc::new(registry);
    let (config, key) = read(file, &registry)?;
    let (stop, again) = signals()?;
    let metrics = config.metrics;
    let gateway = Gateway::start_with_setup(
        config,
        &key,
        algorithm_factory(Arc::clone(&registry)),
        args.observe,
        &socket,
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
                "listening": report.listen, "device": report.device, "socket": socket,
                "metrics": metrics,
            })
        );
    } else {
        println!(
            "listening on {}, interface {}; show the state with `ccplane gateway status`",
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
        // While a forwarding thread is stuck, the watchdog is not notified, so systemd restarts the
        // service.
        if let Some(limit) = watchdog
            && notified.elapsed() >= limit / 4
            && gateway.stalled_for() < limit / 2
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
        // Fails only if the scraper has disconnected.
        let _ = answer.send(Ok(metrics::of_gateway(&report())));
    })
}

/// Reads the configuration again. If it cannot be used, logs the reason and changes nothing.
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
        Err(why) => {
            tracing::error!("reload failed, and the old configuration remains in effect: {why}")
        }
    }
}

/// Returns the flags of the stop signals and of SIGHUP (reload).
fn signals() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>), Failure> {
    let (stop, again) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let hooks = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        // A second signal ends the process at once, in case the shutdown hangs.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map(|_| ())
    });
    hooks
        .and_then(|()| signal_hook::flag::register(SIGHUP, Arc::clone(&again)))
        .map_err(|e| {
            Failure::text(
                FailureKind::Failed,
                format!("cannot install signal handlers: {e}"),
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
