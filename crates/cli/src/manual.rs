//! `ccplane completions SHELL` and `ccplane man DIR`: files that a package installs along with the
//! command. Both are generated from the command line, so they always match it.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command, ValueEnum};

use crate::exit::{Failure, FailureKind};

#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    /// For `source <(ccplane completions bash)`.
    Bash,
    /// For a folder of `$fpath`, as `_ccplane`.
    Zsh,
    /// For `~/.config/fish/completions/ccplane.fish`.
    Fish,
}

#[derive(Args)]
pub struct CompletionsArgs {
    shell: Shell,
}

#[derive(Args)]
pub struct ManArgs {
    /// Folder to write to, created if missing: `ccplane.1`, and a page per command such as
    /// `ccplane-run.1`.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completion script of `command`.
pub fn completions(args: &CompletionsArgs, mut command: Command) {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print!("{}", String::from_utf8_lossy(&text));
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
