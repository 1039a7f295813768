//! One process per name: names of congestion controls are global to the host, over all its namespaces.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::{Flock, FlockArg};

use crate::error::LoadError;

const DIRECTORY: &str = "/run/ccplane";

/// Held while this process serves the name; the kernel gives it back however the process ends.
pub(crate) struct NameLock(#[expect(dead_code, reason = "held for its lock")] Flock<File>);

impl NameLock {
    pub fn take(name: &str) -> Result<NameLock, LoadError> {
        let path = format!("{DIRECTORY}/{name}.lock");
        let failed = |what: &str| LoadError::io(format!("{what} {path}"));
        std::fs::create_dir_all(DIRECTORY).map_err(failed("making the directory of"))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(failed("opening"))?;
        let mut pid = String::new();
        file.read_to_string(&mut pid).map_err(failed("reading"))?;
        let mut held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| LoadError::Running {
            name: name.to_owned(),
            pid: pid.trim().to_owned(),
        })?;
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut held).map_err(failed("writing"))?;
        Ok(NameLock(held))
    }
}
