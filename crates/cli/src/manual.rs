//! `ccplane man DIR`: pages that a package installs along with the command. They are generated from
//! the command line, so they always match it.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};

use crate::exit::{Failure, FailureKind};

#[derive(Args)]
pub struct ManArgs {
    /// Folder to write to, created if missing: `ccplane.1`, and a page per command such as
    /// `ccplane-run.1`.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the man pages of `command` and of its subcommands.
pub fn man(args: &ManArgs, command: Command, json: bool) -> Result<(), Failure> {
    let folder = &args.folder;
    let failed = |why: std::io::Error| {
        Failure::text(
            FailureKind::Failed,
            format!("{} cannot be written: {why}", folder.display()),
        )
        .hint("give a writable folder, such as /usr/local/share/man/man1")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder).map_err(failed)?;
    match json {
        true => println!("{}", serde_json::json!({ "folder": folder })),
        false => println!(
            "man pages written to {}; read them with man -l {}/ccplane.1",
            folder.display(),
            folder.display()
        ),
    }
    Ok(())
}
