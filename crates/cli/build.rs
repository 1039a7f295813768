//! Sets the commit that the program is built from, and whether its sources have been modified
//! since; "unknown" without git.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Inputs of the program, relative to the workspace's root. Changes of documents do not count as
/// modifications.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |arguments: &[&str]| {
        let run = Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(arguments)
            .output()
            .ok()?;
        let text = run
            .status
            .success()
            .then(|| String::from_utf8(run.stdout).ok())??;
        Some(text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]).filter(|commit| !commit.is_empty());
    let changed = git(&[
        &["status", "--porcelain", "--untracked-files=no", "--"],
        &SOURCES[..],
    ]
    .concat());
    let dirty = changed.map_or("unknown".to_owned(), |changed| {
        (!changed.is_empty()).to_string()
    });
    println!(
        "cargo::rustc-env=CCPLANE_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    println!("cargo::rustc-env=CCPLANE_DIRTY={dirty}");

    // Cargo rebuilds the program for all of these changes anyway, except for a new commit.
    let mut watched: Vec<PathBuf> = SOURCES.iter().map(|source| root.join(source)).collect();
    // In a worktree `.git` is a file: HEAD is in the worktree's own folder, branches are in the
    // common one.
    let folder = |which| git(&["rev-parse", which]).map(|folder| root.join(folder));
    if let (Some(own), Some(common)) = (folder("--git-dir"), folder("--git-common-dir")) {
        watched.push(own.join("HEAD"));
        watched.push(common.join("packed-refs"));
        watched.extend(git(&["symbolic-ref", "--quiet", "HEAD"]).map(|branch| common.join(branch)));
    }
    // If git could not read the repository, every build tries again until it can.
    if commit.is_none() && root.join(".git").exists() {
        println!("cargo::rerun-if-changed=not-there");
    }
    // A missing path would count as changed in every build; the branch's file is missing if refs
    // are packed.
    for path in watched.iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
