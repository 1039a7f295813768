//! `ccplane new`: creates an algorithm that works, to start from: a program file (`mine.ccp`), a
//! Python file (`mine.py`) or a crate (`mine`). Also a sweep (`grid.toml`).

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::program::find_ccplane;

/// Algorithm that a new crate starts from. Our tests compile and run it as an example.
const TEMPLATE: &str = include_str!("../examples/aimd.rs");
/// Program of the template.
const FOLD_PROGRAM: &str = include_str!("../examples/fold.ccp");

/// Program file, Python file and sweep that new ones start from.
const CCP_TEMPLATE: &str = include_str!("../examples/mine.ccp");
const PYTHON_TEMPLATE: &str = include_str!("../examples/aimd.py");
const SWEEP_TEMPLATE: &str = include_str!("../examples/sweep.toml");

/// Path where a package installs ccplane's own crate.
const PACKAGED_CRATE_PATH: &str = "/usr/share/ccplane/src/crates/cli";
/// Candidate paths of ccplane's crate: the source tree of this build, then the package's path. A
/// packaged binary does not contain paths of its build machine.
const CRATE_PATHS: [&str; 2] = [
    match option_env!("CCPLANE_SOURCES") {
        Some(packaged) => packaged,
        None => env!("CARGO_MANIFEST_DIR"),
    },
    PACKAGED_CRATE_PATH,
];

/// Manifest of a new crate, with placeholders for its `NAME` and the `PATH` of ccplane's crate.
const MANIFEST: &str = r#"[package]
name = "NAME"
version = "0.1.0"
edition = "2024"

# The core: simulator, algorithms, pages. The installed command does the rest, such as runs on
# kernel TCP. With `features = ["host"]` instead, this program has every command and takes minutes
# to build.
[dependencies]
ccplane = { path = PATH, default-features = false }

# The simulator is slow without optimisation.
[profile.dev]
opt-level = 1
debug = "line-tables-only"

[profile.dev.package."*"]
debug = false

[workspace]
"#;

#[derive(Args)]
pub struct NewArgs {
    /// Algorithm to create: a program file (`mine.ccp`), which needs no compiler, a Python file
    /// (`mine.py`), or a Rust crate in a folder (`mine`). Its name has lower-case letters, digits
    /// and `_`, at most 11. `grid.toml` is a sweep, for `ccplane sweep`.
    #[arg(value_name = "NAME[.ccp|.py|.toml]")]
    name: String,
    /// For a Rust crate: `crates/cli` folder of a ccplane checkout [default: the one this command
    /// or its package comes with].
    #[arg(long, value_name = "DIR")]
    ccplane: Option<PathBuf>,
}

pub fn run(args: &NewArgs, json: bool) -> Result<(), Failure> {
    let path = Path::new(&args.name);
    let extension = path.extension().and_then(|extension| extension.to_str());
    if matches!(extension, Some("ccp" | "py" | "toml")) && args.ccplane.is_some() {
        let text = format!("--ccplane cannot be used with a file, {}", path.display());
        return Err(Failure::text(FailureKind::Usage, text).hint(
            "remove --ccplane, which is for Rust crates, or give a name without an extension",
        ));
    }
    match extension {
        Some("ccp") => create_algorithm(path, CCP_TEMPLATE, "mine", json),
        Some("py") => create_algorithm(path, PYTHON_TEMPLATE, "aimd", json),
        Some("toml") => create_sweep(path, json),
        _ => create_crate(args, json),
    }
}

/// Checks the name of an algorithm.
fn check_name(name: &str) -> Result<(), Failure> {
    // The kernel limits `ccp_<name>` to 15 bytes.
    let fits = !name.is_empty()
        && name.len() <= 11
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !fits {
        return Err(Failure::text(
            FailureKind::Usage,
            format!("`{name}` is not a valid name of an algorithm"),
        )
        .hint(
            "use a lower-case letter followed by lower-case letters, digits and _, at most 11 \
             characters in total: the kernel limits ccp_NAME to 15 bytes",
        ));
    }
    Ok(())
}

/// Returns the template of an algorithm with another name.
fn renamed(template: &str, from: &str, to: &str) -> String {
    let capital = |name: &str| name[..1].to_ascii_uppercase() + &name[1..];
    template
        .replace(from, to)
        .replace(&capital(from), &capital(to))
}

/// Creates the file of an algorithm from a template with another name.
fn create_algorithm(path: &Path, template: &str, from: &str, json: bool) -> Result<(), Failure> {
    let name = stem(path);
    check_name(name)?;
    create_file(path, &renamed(template, from, name), json)?;
    if json {
        return Ok(());
    }
    let shown = path.display();
    let alg = match path.parent() {
        Some(folder) if folder != Path::new("") => shown.to_string(),
        _ => format!("./{shown}"),
    };
    println!("{shown} is a working algorithm. Try it:");
    let command = match path.extension() {
        Some(extension) if extension == "py" => "python3 -m ccplane",
        _ => {
            println!("    ccplane check {shown}");
            "ccplane"
        }
    };
    println!("    {command} run --alg {alg} --vs cubic");
    Ok(())
}

/// Creates a sweep.
fn create_sweep(path: &Path, json: bool) -> Result<(), Failure> {
    create_file(path, SWEEP_TEMPLATE, json)?;
    if !json {
        let (shown, folder) = (path.display(), path.with_extension(""));
        println!("{shown} is a sweep of 45 runs. Try it:");
        println!("    ccplane sweep {shown} --dry-run");
        println!("    ccplane sweep {shown} --out {}", folder.display());
    }
    Ok(())
}

/// Writes a new file, and prints its path as JSON if requested. An existing file is not
/// overwritten, even if it appears at this moment.
fn create_file(path: &Path, text: &str, json: bool) -> Result<(), Failure> {
    let shown = path.display();
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => {
            Failure::text(FailureKind::Usage, format!("{shown} already exists"))
                .hint("choose another name, or remove it")
        }
        _ => Failure::text(
            FailureKind::Failed,
            format!("{shown} cannot be written: {why}"),
        ),
    })?;
    if json {
        println!("{}", serde_json::json!({ "file": path }));
    }
    Ok(())
}

/// Returns the name of a file without its extension; empty if it is not UTF-8.
fn stem(path: &Path) -> &str {
    path.file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default()
}

/// Creates a crate for an algorithm in Rust.
fn create_crate(args: &NewArgs, json: bool) -> Result<(), Failure> {
    let name = &args.name;
    check_name(name)?;
    let is_ccplane = |path: &PathBuf| path.join("Cargo.toml").is_file();
    let usual = || CRATE_PATHS.map(PathBuf::from).into_iter().find(is_ccplane);
    let ccplane = match &args.ccplane {
        Some(given) => fs::canonicalize(given).ok().filter(is_ccplane),
        None => usual().and_then(|path| fs::canonicalize(path).ok()),
    };
    let ccplane = ccplane.ok_or_else(|| {
        let text = match &args.ccplane {
            Some(given) => format!("{} does not contain ccplane", given.display()),
            None => format!(
                "ccplane's sources are neither in {} nor in {}",
                CRATE_PATHS[0], CRATE_PATHS[1]
            ),
        };
        Failure::text(FailureKind::Usage, text)
            .hint("give the crates/cli folder of a checkout with --ccplane DIR")
    })?;
    let folder = Path::new(name);
    if folder.exists() {
        return Err(
            Failure::text(FailureKind::Usage, format!("{name} already exists"))
                .hint("choose another name, or remove it"),
        );
    }
    write(folder, &ccplane).map_err(|e| {
        Failure::text(
            FailureKind::Failed,
            format!("{name} cannot be written: {e}"),
        )
    })?;
    if json {
        println!("{}", serde_json::json!({ "folder": name }));
    } else {
        println!(
            "{name}/src/main.rs is a working algorithm, and {name}/src/fold.ccp its datapath \
             program. Try it:"
        );
        println!("    cd {name}");
        println!(
            "    cargo test --release                 # in the simulator; the first build takes a \
             minute or two"
        );
        println!(
            "    cargo run --release -- run --alg {name} --vs native:reno --rate 48mbit --rtt 20ms \
             --duration 10s"
        );
    }
    Ok(())
}

fn write(folder: &Path, ccplane: &Path) -> std::io::Result<()> {
    let name = folder.display().to_string();
    let workspace = ccplane.join("../..");
    let toml = |path: &Path| serde_json::Value::String(path.display().to_string()).to_string();
    let source = renamed(TEMPLATE, "aimd", &name);
    fs::create_dir_all(folder.join("src"))?;
    fs::create_dir_all(folder.join(".cargo"))?;
    // Makes the program use this command, which matches its sources, even if PATH has another one.
    // From Python, the executable of this process is the interpreter. Without a command next to
    // it, the program looks in PATH.
    let own = std::env::current_exe()?;
    let command = match own.file_name() {
        Some(name) if name == "ccplane" => Some(own),
        _ => find_ccplane().ok(),
    };
    if let Some(command) = command {
        let config = format!(
            "# The installed command, which runs what this program does not \
             implement.\n[env]\nCCPLANE_COMMAND = {}\n",
            toml(&command)
        );
        fs::write(folder.join(".cargo/config.toml"), config)?;
    }
    fs::write(folder.join(".gitignore"), "target/\nccplane-results/\n")?;
    fs::write(
        folder.join("Cargo.toml"),
        MANIFEST
            .replace("NAME", &name)
            .replace("PATH", &toml(ccplane)),
    )?;
    // The versions that ccplane was tested with; cargo adds the new crate itself.
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::write(folder.join("src/fold.ccp"), FOLD_PROGRAM)?;
    fs::write(folder.join("src/main.rs"), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_have_the_same_program() {
        let (_, rest) = PYTHON_TEMPLATE
            .split_once("\"fold\": \"\"\"\n")
            .expect("a program named fold");
        let (program, _) = rest.split_once("\"\"\"").expect("the end of the program");
        let unindented: String = program
            .lines()
            .map(|line| line.strip_prefix("        ").unwrap_or(line.trim_start()))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(unindented.trim_end(), FOLD_PROGRAM.trim_end());
    }
}
