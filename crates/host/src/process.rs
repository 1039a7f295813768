//! Child processes: bound to their parent, with a modified view of the file system.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

/// Folders of system programs, writable by root only.
const SYSTEM_FOLDERS: [&str; 5] = [
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/current-system/sw/bin",
];

/// Returns a command for a system program such as `ip`, `tc` or `nft`. Does not search `PATH`,
/// which another user may have set for a process of root.
pub fn system_program(name: &str) -> Command {
    let place = SYSTEM_FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists());
    // If it is missing, starting it fails with that error.
    let mut command =
        Command::new(place.unwrap_or_else(|| Path::new(SYSTEM_FOLDERS[0]).join(name)));
    command.env("PATH", SYSTEM_FOLDERS.join(":"));
    command
}

/// Makes `command` die (by SIGKILL) with the thread that starts it, and start with no signal
/// blocked, even if this thread blocks some. Processes that the command has started live on.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let prepare = || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        SigSet::empty().thread_set_mask()?;
        Ok::<(), io::Error>(())
    };
    // SAFETY: between fork and exec the closure makes two system calls; it neither allocates nor
    // takes a lock.
    unsafe { command.pre_exec(prepare) }
}

/// Makes `command` see `file` in place of another file, in a mount namespace of its own, so that no
/// other process is affected.
pub fn bind_mount_over<'a>(
    command: &'a mut Command,
    file: &Path,
    place: &Path,
) -> io::Result<&'a mut Command> {
    // Symbolic links are resolved, since the mount must be on their target.
    let place = place.canonicalize()?;
    let [file, place] = [file, &place].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (file, place) = (file?, place?);
    let prepare = move || {
        let nothing = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(
            nothing,
            c"/",
            nothing,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            nothing,
        )?;
        mount(
            Some(file.as_c_str()),
            place.as_c_str(),
            nothing,
            MsFlags::MS_BIND,
            nothing,
        )?;
        Ok::<(), io::Error>(())
    };
    // SAFETY: between fork and exec the closure makes three system calls with existing strings; it
    // neither allocates nor takes a lock.
    Ok(unsafe { command.pre_exec(prepare) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_system_is_not_looked_for_in_path() {
        let command = system_program("sh");
        assert!(
            Path::new(command.get_program()).is_absolute(),
            "{command:?}"
        );
        let missing = system_program("no-such-program").status();
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
