//! Source of the bytes to send: a file, standard input, or a pattern.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ccplane_units::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::{Failure, FailureKind};
use crate::transfer::wire::Header;

/// Source of bytes.
#[derive(Debug)]
pub(super) enum SendSource {
    /// Regular file of this length.
    File(File, PathBuf, u64),
    /// Pipe or device, which ends when its writer closes it.
    Pipe(File, PathBuf),
    /// Pattern of this length.
    Pattern(u64),
}

impl SendSource {
    /// Opens a file, or standard input for `-`. Also returns its header for the receiver.
    pub fn open(path: &Path) -> Result<(SendSource, Header), Failure> {
        let bad = |why: io::Error| unreadable(path, &why);
        let stream = Header {
            name: Vec::new(),
            bytes: None,
            executable: false,
        };
        if path == Path::new("-") {
            let input = io::stdin().as_fd().try_clone_to_owned().map_err(bad)?;
            return Ok((
                SendSource::Pipe(File::from(input), "standard input".into()),
                stream,
            ));
        }
        let about = fs::metadata(path).map_err(bad)?;
        if about.is_dir() {
            let text = format!("{} is a folder", path.display());
            return Err(Failure::text(FailureKind::Usage, text).hint(format!(
                "send an archive: tar -c {} | ccplane send HOST:PORT#FINGERPRINT -",
                path.display()
            )));
        }
        let file = File::open(path).map_err(bad)?;
        if !about.is_file() {
            return Ok((SendSource::Pipe(file, path.to_owned()), stream));
        }
        let about = file.metadata().map_err(bad)?;
        let header = Header {
            name: path.file_name().unwrap_or_default().as_bytes().to_vec(),
            bytes: Some(about.len()),
            executable: about.permissions().mode() & 0o100 != 0,
        };
        Ok((SendSource::File(file, path.to_owned(), about.len()), header))
    }

    /// Returns a pattern of `bytes` bytes, and its header.
    pub fn pattern(bytes: Bytes) -> (SendSource, Header) {
        let header = Header {
            name: Vec::new(),
            bytes: Some(bytes.get()),
            executable: false,
        };
        (SendSource::Pattern(bytes.get()), header)
    }

    /// Reads from offset `at`. Returns 0 at the end, and `None` if a pipe has nothing yet.
    pub fn read(&mut self, room: &mut [u8], at: u64) -> Result<Option<usize>, Failure> {
        match self {
            SendSource::File(file, path, bytes) => {
                let most = usize::try_from(*bytes - at)
                    .unwrap_or(usize::MAX)
                    .min(room.len());
                if most == 0 {
                    return Ok(Some(0));
                }
                loop {
                    match file.read_at(&mut room[..most], at) {
                        Ok(0) => {
                            let text = format!(
                                "{} was truncated during the transfer: {at} of {bytes} bytes",
                                path.display()
                            );
                            return Err(Failure::text(FailureKind::Failed, text));
                        }
                        Ok(read) => return Ok(Some(read)),
                        Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                        Err(why) => return Err(unreadable(path, &why)),
                    }
                }
            }
            SendSource::Pipe(input, path) => {
                let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
                if poll(&mut polled, PollTimeout::ZERO).unwrap_or(0) == 0 {
                    return Ok(None);
                }
                match input.read(room) {
                    Ok(read) => Ok(Some(read)),
                    Err(why)
                        if matches!(
                            why.kind(),
                            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                        ) =>
                    {
                        Ok(None)
                    }
                    Err(why) => Err(unreadable(path, &why)),
                }
            }
            SendSource::Pattern(bytes) => {
                let most = usize::try_from(*bytes - at)
                    .unwrap_or(usize::MAX)
                    .min(room.len());
                fill_pattern(&mut room[..most], at);
                Ok(Some(most))
            }
        }
    }
}

/// Fills `room` with the pattern from offset `at`. Each eight bytes contain their position, so that
/// misplaced data changes the hash.
fn fill_pattern(room: &mut [u8], at: u64) {
    let begun = (at.next_multiple_of(8) - at).min(room.len() as u64) as usize;
    let (first, rest) = room.split_at_mut(begun);
    first.copy_from_slice(&(at / 8).to_be_bytes()[(at % 8) as usize..][..begun]);
    for (number, piece) in (at.div_ceil(8)..).zip(rest.chunks_mut(8)) {
        piece.copy_from_slice(&number.to_be_bytes()[..piece.len()]);
    }
}

fn unreadable(path: &Path, why: &io::Error) -> Failure {
    Failure::text(
        FailureKind::Failed,
        format!("{} cannot be read: {why}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::tests::TestFolder;

    #[test]
    fn a_file_is_described_and_a_folder_refused() {
        let folder = TestFolder::new("source");
        let path = folder.0.join("run.sh");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let (_, header) = SendSource::open(&path).unwrap();
        let expected = Header {
            name: b"run.sh".to_vec(),
            bytes: Some(10),
            executable: true,
        };
        assert_eq!(header, expected);
        let (_, null) = SendSource::open(Path::new("/dev/null")).unwrap();
        assert_eq!((null.bytes, null.name.len()), (None, 0));
        let refused = SendSource::open(&folder.0).unwrap_err();
        assert!(refused.to_string().contains("is a folder"), "{refused}");
        assert!(SendSource::open(&folder.0.join("none")).is_err());
    }

    #[test]
    fn the_pattern_is_the_same_in_any_pieces() {
        let mut whole = [0; 100];
        fill_pattern(&mut whole, 0);
        for piece in [1, 3, 8, 17] {
            let mut cut = [0; 100];
            for (n, room) in cut.chunks_mut(piece).enumerate() {
                fill_pattern(room, (n * piece) as u64);
            }
            assert_eq!(cut, whole);
        }
    }
}
