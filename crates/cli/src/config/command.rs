//! `ccplane config`: checks a configuration and shows the effective settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use ccplane_scenario::FileError;

use super::{AttachConfig, CONFIG_PATH_DEFAULT, Settings, known};
use crate::Registry;
use crate::attach::AttachArgs;
use crate::exit::{Failure, FailureKind};

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration of `attach`, and point at the first error.
    Check(CheckArgs),
    /// Show the effective settings of `attach` without options: file and environment combined, with
    /// every default.
    Show(ShowArgs),
}

#[derive(Args)]
pub struct CheckArgs {
    /// Configuration, a TOML file (docs/attach.md).
    #[arg(default_value = CONFIG_PATH_DEFAULT)]
    file: PathBuf,
}

#[derive(Args)]
pub struct ShowArgs {
    /// Configuration file [default: the one in CCPLANE_CONFIG, else /etc/ccplane/ccplane.toml, if
    /// it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Command line of `attach`.
#[derive(Parser)]
struct AttachCommand {
    #[command(flatten)]
    args: AttachArgs,
}

pub fn run(command: &ConfigCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(args) => check(&args.file, registry, json),
        ConfigCommand::Show(args) => show(args, registry, json),
    }
}

fn check(file: &Path, registry: &Registry, json: bool) -> Result<(), Failure> {
    let config = AttachConfig::read(file, &|contender| known(contender, registry))?;
    let rules = config.rules.iter().map(|rule| rule.get_ref());
    let elsewhere: Vec<_> = rules
        .clone()
        .filter_map(|rule| rule.selection.cgroup.as_deref())
        .filter(|cgroup| !cgroup.exists())
        .collect();
    if json {
        let rules: Vec<_> = rules.map(ToString::to_string).collect();
        println!(
            "{}",
            serde_json::json!({ "file": file, "rules": rules, "cgroups_not_here": elsewhere })
        );
        return Ok(());
    }
    println!("{}: no errors", file.display());
    rules.for_each(|rule| println!("  {rule}"));
    for cgroup in elsewhere {
        println!(
            "  {} does not exist on this host; `attach` requires it",
            cgroup.display()
        );
    }
    Ok(())
}

fn show(args: &ShowArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let file = args.config.iter();
    let words = file.flat_map(|file| ["--config".into(), OsString::from(file)]);
    // Reads the environment as `attach` does.
    let attach = AttachCommand::try_parse_from(std::iter::once("attach".into()).chain(words))
        .unwrap_or_else(|error| error.exit());
    let config = read(&attach.args, registry)?;
    let settings = Settings::resolve(&attach.args, config.as_ref())?;
    if json {
        let object = serde_json::json!({
            "file": config.as_ref().map(|config| &config.file), "effective": settings.to_string(),
        });
        println!("{object}");
        return Ok(());
    }
    match &config {
        Some(config) => println!("# {}, overridden by the environment", config.file),
        None => println!("# no configuration file: {CONFIG_PATH_DEFAULT} does not exist"),
    }
    print!("{settings}");
    Ok(())
}

/// Reads the configuration that the options name, or the default file if it exists.
pub fn read(args: &AttachArgs, registry: &Registry) -> Result<Option<AttachConfig>, Failure> {
    let named = args.config.as_deref();
    // An agent in another process has its own algorithms and parameters, so names are not checked
    // here.
    let read = match args.remote_agent.is_set() {
        false => AttachConfig::read(path(args), &|contender| known(contender, registry)),
        true => AttachConfig::read(path(args), &|_| Ok(())),
    };
    match read {
        Ok(config) => Ok(Some(config)),
        Err(FileError::Read { why, .. })
            if named.is_none() && why.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the path of the configuration.
pub fn path(args: &AttachArgs) -> &Path {
    args.config
        .as_deref()
        .unwrap_or(Path::new(CONFIG_PATH_DEFAULT))
}

/// Fails if neither an algorithm nor an agent is given.
pub fn require_algorithms(settings: &Settings, args: &AttachArgs) -> Result<(), Failure> {
    if settings.algorithms.value.is_empty() && !args.remote_agent.is_set() {
        return Err(
            Failure::text(FailureKind::Usage, "no algorithm to attach").hint(format!(
                "give algorithms with --alg, such as --alg cubic, or with `algorithms` in {}",
                path(args).display()
            )),
        );
    }
    Ok(())
}
