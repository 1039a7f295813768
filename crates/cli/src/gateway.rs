//! `ccplane gateway`: a box at each of two sites that paces what it sends to the other, so that the
//! queue stands in the box and is scheduled there; between the sites it speaks WireGuard.

mod ask;
mod check;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ccplane_gateway::config::{AlgorithmSpec, ConfigError, GatewayConfig};
use ccplane_gateway::keys::{KeyError, PrivateKey};
use ccplane_gateway::{AlgorithmFactory, status};
use clap::{Args, Subcommand};

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry};

/// What to do.
#[derive(Subcommand)]
pub enum GatewayCommand {
    /// Make a private key, for its owner alone, and print the public one; of a file that is there,
    /// print it.
    Keys {
        /// The file.
        file: PathBuf,
    },
    /// Say what a configuration does, with every default; or what is wrong with it, and where.
    Check(ConfigArgs),
    /// Run a gateway, until Ctrl-C or SIGTERM. SIGHUP reads the configuration again.
    Run(run::RunArgs),
    /// Show what a running gateway does with each peer, and why.
    Status(AskArgs),
    /// Show what happened: changes of mode with their figures, keys, endpoints, reloads.
    Events {
        #[command(flatten)]
        ask: AskArgs,
        /// Go on, until Ctrl-C.
        #[arg(long)]
        follow: bool,
    },
    /// Let a peer's traffic pass without a limit, until `control`.
    Pass(PeerArgs),
    /// Control a peer's traffic again, after `pass`.
    Control(PeerArgs),
}

/// Which configuration.
#[derive(Args)]
pub struct ConfigArgs {
    /// The configuration, a TOML file. docs/gateway.md explains it.
    file: PathBuf,
}

/// Which gateway.
#[derive(Args)]
pub struct AskArgs {
    /// The socket of the gateway that runs.
    #[arg(long, value_name = "PATH", default_value = status::SOCKET_PATH_DEFAULT)]
    socket: PathBuf,
}

/// Which peer.
#[derive(Args)]
pub struct PeerArgs {
    /// Its name, or its public key.
    peer: String,
    #[command(flatten)]
    ask: AskArgs,
}

/// Runs the command.
pub fn run(command: GatewayCommand, registry: Registry, json: bool) -> Result<(), Failure> {
    match command {
        GatewayCommand::Keys { file } => keys(&file, json),
        GatewayCommand::Check(args) => check::run(&args.file, &registry, json),
        GatewayCommand::Run(args) => run::run(&args, registry, json),
        GatewayCommand::Status(ask) => ask::status(&ask.socket, json),
        GatewayCommand::Events { ask, follow } => ask::events(&ask.socket, follow, json),
        GatewayCommand::Pass(args) => ask::by_hand(&args.ask.socket, &args.peer, true, json),
        GatewayCommand::Control(args) => ask::by_hand(&args.ask.socket, &args.peer, false, json),
    }
}

fn keys(file: &Path, json: bool) -> Result<(), Failure> {
    let (key, made) = PrivateKey::read_or_make(file).map_err(of_key)?;
    let public = key.public();
    if json {
        println!(
            "{}",
            serde_json::json!({ "file": file, "made": made, "public_key": public.to_string() })
        );
    } else {
        if made {
            eprintln!(
                "made {}, mode 0600; the other site's configuration has this as `public_key`:",
                file.display()
            );
        }
        println!("{public}");
    }
    Ok(())
}

fn of_key(error: KeyError) -> Failure {
    hinted(FailureKind::Failed, &error.to_string())
}

/// A failure of `reason; fix`.
fn hinted(kind: FailureKind, text: &str) -> Failure {
    match text.split_once("; ") {
        Some((what, fix)) => Failure::text(kind, what).hint(fix),
        None => Failure::text(kind, text),
    }
}

/// Reads a configuration and its key.
fn read(file: &Path, registry: &Registry) -> Result<(GatewayConfig, PrivateKey), Failure> {
    GatewayConfig::read(file, &|algorithm| known(algorithm, registry)).map_err(unusable)
}

fn unusable(error: ConfigError) -> Failure {
    match error {
        ConfigError::Problem(problem) => Failure::diagnostic(FailureKind::Usage, problem),
        other => Failure::new(FailureKind::Usage, other),
    }
}

/// Whether there is such an algorithm, for a bundle.
fn known(algorithm: &AlgorithmSpec, registry: &Registry) -> Result<(), String> {
    let made = registry
        .by_name(&algorithm.name, &parameters(algorithm))
        .map_err(|why| why.to_string())?;
    let missing = made.needs().missing_from(ccplane_bundle::CAPABILITIES);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.names().collect();
    Err(format!(
        "`{}` needs {}, which the traffic of a whole site does not have; `bundler` is made for it",
        algorithm.name,
        names.join(", ")
    ))
}

/// Makes algorithms for a gateway.
fn makes(registry: Arc<Registry>) -> AlgorithmFactory {
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
