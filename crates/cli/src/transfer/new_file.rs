//! Files from peers, in folders that other users may be able to write to.
//!
//! A file is created under a hidden name and gets its own name when it is complete. Both names are
//! resolved relative to the folder's descriptor, so that no link or rename can redirect the writer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, fsync, getegid, geteuid, linkat, unlinkat};

use crate::exit::{Failure, FailureKind};

/// Bytes of the file's name included in its hidden name. The rest of the 255 that file systems
/// allow makes it unique.
const VISIBLE_NAME_BYTES_MAX: usize = 200;
/// Attempts at an unused hidden name. Names are random, so a second attempt is already rare.
const NAME_ATTEMPTS_MAX: u32 = 100;

/// Open folder for files from peers.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    folder: Arc<File>,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder. Links in `path` are followed, since the operator chose it.
    ///
    /// Refuses a folder in which other users may replace files: one that others can write to,
    /// unless it is sticky and owned by root or the caller.
    pub fn open(path: &Path) -> Result<Folder, Failure> {
        let bad = |why: io::Error| {
            Failure::text(
                FailureKind::Usage,
                format!("--out: folder {}: {why}", path.display()),
            )
        };
        let mut options = fs::OpenOptions::new();
        let folder = options
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(path);
        let folder = folder.map_err(bad)?;
        let about = folder.metadata().map_err(bad)?;
        let (mode, owner) = (about.mode(), about.uid());
        // Many systems give each user a private group. Write access of the caller's own group
        // counts as the caller's.
        let others_write =
            mode & 0o002 != 0 || mode & 0o020 != 0 && about.gid() != getegid().as_raw();
        let is_guarded = mode & libc::S_ISVTX != 0 && (owner == 0 || owner == geteuid().as_raw());
        if others_write && !is_guarded {
            let text = format!(
                "--out: other users can replace files in the folder {}",
                path.display()
            );
            return Err(Failure::text(FailureKind::Usage, text).hint(format!(
                "remove the write permission of others (chmod go-w {0}), or use another folder",
                path.display()
            )));
        }
        Ok(Folder {
            folder: Arc::new(folder),
            path: path.to_owned(),
        })
    }

    /// Returns the folder's path as given by the operator.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the free space of the file system, bytes, if it is limited.
    pub fn free_bytes(&self) -> Option<u64> {
        let about = nix::sys::statvfs::fstatvfs(&self.folder).ok()?;
        Some(
            about
                .blocks_available()
                .saturating_mul(about.fragment_size()),
        )
    }

    /// Creates the file that will be renamed to `name`.
    pub fn create(&self, name: &OsStr) -> io::Result<NewFile> {
        for _ in 0..NAME_ATTEMPTS_MAX {
            let hidden = hidden_name(name, RandomState::new().hash_one(name));
            match create_new(&self.folder, &hidden) {
                Ok(file) => {
                    return Ok(NewFile {
                        file: File::from(file),
                        folder: self.clone(),
                        hidden,
                    });
                }
                Err(Errno::EEXIST) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }
}

fn hidden_name(name: &OsStr, random: u64) -> OsString {
    let shown = name.as_bytes();
    let shown = &shown[..shown.len().min(VISIBLE_NAME_BYTES_MAX)];
    let suffix = format!(".{random:016x}.part");
    OsString::from_vec([b".", shown, suffix.as_bytes()].concat())
}

/// Creates an entry of a folder. Fails if the name exists, even as a link.
fn create_new(folder: &impl AsFd, name: &OsStr) -> nix::Result<OwnedFd> {
    if name.as_bytes().contains(&b'/') {
        return Err(Errno::EINVAL);
    }
    let flags =
        OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o666);
    let how = OpenHow::new()
        .flags(flags)
        .mode(mode)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(folder, name, how) {
        // Linux before 5.6. A single path component involves no intermediate links either.
        Err(Errno::ENOSYS) => openat(folder, name, flags, mode),
        outcome => outcome,
    }
}

/// File under its hidden name. Dropping it removes that name.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub file: File,
    folder: Folder,
    hidden: OsString,
}

impl NewFile {
    /// Makes the file executable for everyone who may read it.
    pub fn make_executable(&self) -> io::Result<()> {
        let mode = self.file.metadata()?.permissions().mode();
        self.file
            .set_permissions(fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))
    }

    /// Links the file to an unused name.
    pub fn link(&self, name: &OsStr) -> io::Result<()> {
        let folder = &self.folder.folder;
        Ok(linkat(
            folder,
            self.hidden.as_os_str(),
            folder,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Renames the file, replacing an existing one.
    pub fn replace(&self, name: &OsStr) -> io::Result<()> {
        let folder = &self.folder.folder;
        Ok(renameat(folder, self.hidden.as_os_str(), folder, name)?)
    }

    /// Syncs the file's contents to disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Syncs the folder entry to disk.
    pub fn sync_name(&self) -> io::Result<()> {
        Ok(fsync(&self.folder.folder)?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Fails after `replace`, which has removed the hidden name.
        let _ = unlinkat(
            &self.folder.folder,
            self.hidden.as_os_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    use super::*;
    use crate::transfer::tests::TestFolder;

    fn refusal(path: &Path, mode: u32) -> Option<String> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        Folder::open(path).err().map(|why| why.to_string())
    }

    #[test]
    fn folders_writable_by_others_are_refused() {
        let folder = TestFolder::new("writable");
        assert_eq!(refusal(&folder.0, 0o755), None);
        for mode in [0o777, 0o757, 0o707] {
            let why = refusal(&folder.0, mode).unwrap();
            assert!(
                why.contains("other users can replace files"),
                "{mode:o}: {why}"
            );
        }
        assert_eq!(refusal(&folder.0, 0o1777), None, "sticky, owned by us");
        assert_eq!(refusal(&folder.0, 0o770), None, "only our group may write");
        if geteuid().is_root() {
            let nobody = Some(65_534);
            std::os::unix::fs::chown(&folder.0, None, nobody).unwrap();
            assert!(refusal(&folder.0, 0o770).is_some(), "another group");
            std::os::unix::fs::chown(&folder.0, nobody, None).unwrap();
            assert_eq!(refusal(&folder.0, 0o755), None, "owned by another user");
            assert!(
                refusal(&folder.0, 0o1777).is_some(),
                "sticky, owned by another user"
            );
        }
        assert!(Folder::open(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_link_at_the_path_of_a_new_file_is_not_followed() {
        let folder = TestFolder::new("planted");
        let victim = folder.0.join("victim");
        symlink(&victim, folder.0.join("planted")).unwrap();
        let open = Folder::open(&folder.0).unwrap();
        assert_eq!(
            create_new(&open.folder, OsStr::new("planted")).err(),
            Some(Errno::EEXIST)
        );
        assert_eq!(
            create_new(&open.folder, OsStr::new("../up")).err(),
            Some(Errno::EINVAL)
        );
        assert!(!victim.exists());
    }

    /// Race with another user: links to a victim appear and disappear under the name to create.
    #[test]
    fn racing_links_do_not_redirect_a_new_file() {
        let folder = TestFolder::new("race");
        let (victim, name) = (folder.0.join("victim"), OsStr::new("target"));
        fs::write(&victim, "precious").unwrap();
        let open = Folder::open(&folder.0).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Either call fails if the other thread was faster.
                    let _ = symlink(&victim, folder.0.join(name));
                    let _ = fs::remove_file(folder.0.join(name));
                }
            });
            let mut created = 0;
            for _ in 0..20_000 {
                if let Ok(file) = create_new(&open.folder, name) {
                    File::from(file).write_all(b"ours").unwrap();
                    created += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(created > 0);
        });
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    /// Race with another user: the folder is swapped for a link to another one.
    #[test]
    fn a_folder_swapped_for_a_link_stays_in_use() {
        let folder = TestFolder::new("swap");
        let [inside, aside, elsewhere] =
            ["in", "aside", "elsewhere"].map(|name| folder.0.join(name));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let open = Folder::open(&inside).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fs::rename(&inside, &aside).unwrap();
                    symlink(&elsewhere, &inside).unwrap();
                    fs::remove_file(&inside).unwrap();
                    fs::rename(&aside, &inside).unwrap();
                }
            });
            for n in 0..2_000 {
                let file = open.create(OsStr::new("f")).unwrap();
                file.link(OsStr::new(&n.to_string())).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 2_000);
    }

    #[test]
    fn files_are_created_on_kernels_without_openat2() {
        let folder = TestFolder::new("enosys");
        symlink("/nonesuch", folder.0.join("planted")).unwrap();
        let open = Folder::open(&folder.0).unwrap();
        let run = || {
            let rules = [(libc::SYS_openat2, Vec::new())].into();
            let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            apply_filter(&program).unwrap();
            let how = OpenHow::new().flags(OFlag::O_RDONLY);
            assert_eq!(openat2(&open.folder, ".", how).err(), Some(Errno::ENOSYS));
            assert_eq!(
                create_new(&open.folder, OsStr::new("planted")).err(),
                Some(Errno::EEXIST)
            );
            let mut file = open.create(OsStr::new("f")).unwrap();
            file.file.write_all(b"whole").unwrap();
            file.link(OsStr::new("f")).unwrap();
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap());
        assert_eq!(fs::read(folder.0.join("f")).unwrap(), b"whole");
        assert_eq!(folder.names(), ["f", "planted"]);
    }

    #[test]
    fn hidden_names_fit_every_file_system() {
        let long = "n".repeat(255);
        assert!(hidden_name(OsStr::new(&long), u64::MAX).len() <= 255);
        let folder = TestFolder::new("hidden");
        let open = Folder::open(&folder.0).unwrap();
        let new = open.create(OsStr::new(&long)).unwrap();
        assert_eq!(folder.names().len(), 1);
        drop(new);
        assert!(folder.names().is_empty());
    }
}
