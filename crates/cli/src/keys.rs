//! `ccplane keys`: keys for an agent and datapaths on different hosts, and this host's fingerprint.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ccplane_link::{KEY_DIRECTORY, KeyError, make_keys, revoke_key};
use clap::{Args, Subcommand};

use crate::exit::{Failure, FailureKind};
use crate::identity;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct KeysArgs {
    /// Folder of the keys. Missing keys are created: an authority, a key for the agent, and one for
    /// each NAME, each in a folder to copy to its host. Expired keys are renewed.
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,
    /// Names of datapaths: one for each process that the agent controls.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(subcommand)]
    command: Option<KeysCommand>,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Revoke a key: an agent closes its connections within a second.
    Revoke {
        /// Name of the datapath.
        #[arg(value_name = "NAME")]
        name: String,
        /// Folder of the agent's keys.
        #[arg(value_name = "DIR", default_value = KEY_DIRECTORY)]
        folder: PathBuf,
    },
    /// Print the fingerprint of this host's certificate, for `ccplane recv --client` on another
    /// host. The certificate is created if it does not exist.
    Fingerprint {
        /// File with the certificate and its private key; without it `~/.config/ccplane/identity`.
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
    },
}

#[expect(clippy::disallowed_methods, reason = "keys become valid now")]
pub fn run(args: &KeysArgs, json: bool) -> Result<(), Failure> {
    match (&args.command, &args.folder) {
        (Some(KeysCommand::Revoke { name, folder }), _) => revoke(folder, name, json),
        (Some(KeysCommand::Fingerprint { identity }), _) => {
            let fingerprint = identity::load(identity.as_deref())?
                .fingerprint()
                .to_string();
            if json {
                println!("{}", serde_json::json!({ "fingerprint": fingerprint }));
            } else {
                println!("{fingerprint}");
            }
            Ok(())
        }
        (None, Some(folder)) => make(folder, &args.names, SystemTime::now(), json),
        (None, None) => Err(Failure::text(
            FailureKind::Usage,
            "no folder given for the keys",
        )),
    }
}

fn make(folder: &Path, names: &[String], now: SystemTime, json: bool) -> Result<(), Failure> {
    let made = make_keys(folder, names, now).map_err(failed)?;
    if json {
        let keys: Vec<_> = made
            .iter()
            .map(
                |key| serde_json::json!({ "name": key.name, "folder": key.folder, "new": key.created }),
            )
            .collect();
        println!(
            "{}",
            serde_json::json!({ "authority": folder.join("ca.pem"), "keys": keys })
        );
        return Ok(());
    }
    for key in &made {
        let what = if key.created {
            "created"
        } else {
            "already exists"
        };
        println!("{}: {what}, in {}", key.name, key.folder.display());
    }
    println!(
        "copy each folder to its host only; keep {} here, as it signs keys",
        folder.join("ca.key").display()
    );
    Ok(())
}

fn revoke(folder: &Path, name: &str, json: bool) -> Result<(), Failure> {
    revoke_key(folder, name).map_err(failed)?;
    let list = folder.join("revoked");
    if json {
        println!("{}", serde_json::json!({ "revoked": name, "list": list }));
    } else {
        println!(
            "{name}: revoked; copy {} to the key folder of agents on other hosts",
            list.display()
        );
    }
    Ok(())
}

fn failed(why: KeyError) -> Failure {
    let kind = match why {
        KeyError::Name(_) | KeyError::UnknownKey { .. } | KeyError::SeveralKeys { .. } => {
            FailureKind::Usage
        }
        _ => FailureKind::Failed,
    };
    Failure::new(kind, why)
}
