//! `ccplane gateway`: a box at each of two sites that paces the traffic to the other, which moves
//! the queue into the box, where it is scheduled. WireGuard carries the traffic between the sites.

mod check;
mod client;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ccplane_gateway::config::{AlgorithmSpec, GatewayConfig};
use ccplane_gateway::keys::{KeyError, PrivateKey};
use ccplane_gateway::{AlgorithmFactory, status};
use clap::{Args, Subcommand};

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry};

#[derive(Subcommand)]
pub enum GatewayCommand {
    /// Create a private key, readable by its owner only, and print the public key; for an existing
    /// file, only print it.
    Keys {
        /// File of the private key.
        file: PathBuf,
    },
    /// Check a configuration: show its effect with every default, or point at the first error.
    Check(ConfigArgs),
    /// Run a gateway until Ctrl-C or SIGTERM. SIGHUP reloads the configuration.
    Run(run::RunArgs),
    /// Show the state of each peer of a running gateway, and the reason for it.
    Status(AskArgs),
    /// Show past events: mode changes with their measurements, keys, endpoints, reloads.
    Events {
        #[command(flatten)]
        ask: AskArgs,
        /// Keep printing new events until Ctrl-C.
        #[arg(long)]
        follow: bool,
    },
    /// Let a peer's traffic pass without a limit, until `control`.
    Pass(PeerArgs),
    /// Control a peer's traffic again, after `pass`.
    Control(PeerArgs),
}

#[derive(Args)]
pub struct ConfigArgs {
    /// Configuration, a TOML file (docs/gateway.md).
    file: PathBuf,
}

#[derive(Args)]
pub struct AskArgs {
    /// Socket of the running gateway.
    #[arg(long, value_name = "PATH", default_value = status::SOCKET_PATH_DEFAULT)]
    socket: PathBuf,
}

#[derive(Args)]
pub struct PeerArgs {
    /// Name or public key of the peer.
    peer: String,
    #[command(flatten)]
    ask: AskArgs,
}

pub fn run(command: GatewayCommand, registry: Registry, json: bool) -> Result<(), Failure> {
    match command {
        GatewayCommand::Keys { file } => keys(&file, json),
        GatewayCommand::Check(args) => check::run(&args.file, &registry, json),
        GatewayCommand::Run(args) => run::run(&args, registry, json),
        GatewayCommand::Status(ask) => client::status(&ask.socket, json),
        GatewayCommand::Events { ask, follow } => client::events(&ask.socket, follow, json),
        GatewayCommand::Pass(args) => client::set_mode(&args.ask.socket, &args.peer, true, json),
        GatewayCommand::Control(args) => {
            client::set_mode(&args.ask.socket, &args.peer, false, json)
        }
    }
}

fn keys(file: &Path, json: bool) -> Result<(), Failure> {
    let (key, made) = PrivateKey::read_or_make(file).map_err(key_failure)?;
    let public = key.public();
    if json {
        println!(
            "{}",
            serde_json::json!({ "file": file, "made": made, "public_key": public.to_string() })
        );
    } else {
        if made {
            eprintln!(
                "created {}, mode 0600; set this as `public_key` in the other site's \
                 configuration:",
                file.display()
            );
        }
        println!("{public}");
    }
    Ok(())
}

fn key_failure(error: KeyError) -> Failure {
    hinted(FailureKind::Failed, &error.to_string())
}

/// Builds a failure from `reason; fix`.
fn hinted(kind: FailureKind, text: &str) -> Failure {
    match text.split_once("; ") {
        Some((what, fix)) => Failure::text(kind, what).hint(fix),
        None => Failure::text(kind, text),
    }
}

/// Reads a configuration and its key.
fn read(file: &Path, registry: &Registry) -> Result<(GatewayConfig, PrivateKey), Failure> {
    Ok(GatewayConfig::read(file, &|algorithm| {
        check_algorithm(algorithm, registry)
    })?)
}

/// Checks that the algorithm exists and can control a bundle.
fn check_algorithm(algorithm: &AlgorithmSpec, registry: &Registry) -> Result<(), String> {
    let made = registry
        .by_name(&algorithm.name, &parameters(algorithm))
        .map_err(|why| why.to_string())?;
    let missing = made
        .required_capabilities()
        .missing_from(ccplane_bundle::CAPABILITIES);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.names().collect();
    Err(format!(
        "`{}` needs {}, which is not available for the traffic of a whole site; use an algorithm \
         for gateways, such as `bundler`",
        algorithm.name,
        names.join(", ")
    ))
}

/// Returns the factory that creates a gateway's algorithms.
fn algorithm_factory(registry: Arc<Registry>) -> AlgorithmFactory {
    Arc::new(move |algorithm| {
        registry
            .by_name(&algorithm.name, &parameters(algorithm))
            .map_err(|why| why.to_string())
    })
}

fn parameters(algorithm: &AlgorithmSpec) -> Parameters {
    algorithm
        .parameters
        .iter()
        .fold(Parameters::new(), |all, (name, value)| {
            all.with(name, value)
        })
}
