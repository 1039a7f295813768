//! Tells the program which commit it was built of, and whether its sources were changed since;
//! "unknown" without git.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is made of, from the workspace's root: a changed document makes no other
/// program.
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

    // The program is linked again when any of these changes anyway, but for the commit.
    let mut watched: Vec<PathBuf> = SOURCES.iter().map(|source| root.join(source)).collect();
    // In a worktree `.git` is a file: HEAD is in a folder of its own, branches are in the common
    // one.
    let folder = |which| git(&["rev-parse", which]).map(|folder| root.join(folder));
    if let (Some(own), Some(common)) = (folder("--git-dir"), folder("--git-common-dir")) {
        watched.push(own.join("HEAD"));
        watched.push(common.join("packed-refs"));
        watched.extend(git(&["symbolic-ref", "--quiet", "HEAD"]).map(|branch| common.join(branch)));
    }
    // A repository that git could not read is asked again by every build, until it can.
    if commit.is_none() && root.join(".git").exists() {
        println!("cargo::rerun-if-changed=not-there");
    }
    // What is not there would count as changed in every build: a branch may be packed.
    for path in watched.iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
