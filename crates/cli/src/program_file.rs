//! Reads program files and algorithm files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

#[cfg(feature = "host")]
use crate::sandbox::given_file;

/// Size limit of a file. The shipped ones have up to 8 kB; a lower limit could refuse a large
/// program, and a higher one lets a file fill the memory.
const PROGRAM_BYTES_MAX: u64 = 1 << 20;

/// Reads a file, or returns the contents that the caller of this process has read.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    #[cfg(feature = "host")]
    if let Some(given) = path.as_ref().to_str().and_then(given_file) {
        return read_from(given.bytes.as_slice());
    }
    read_from(File::open(path)?)
}

/// Reads an open file, up to the size limit.
pub(crate) fn read_from(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(PROGRAM_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > PROGRAM_BYTES_MAX {
        let why = format!("longer than {PROGRAM_BYTES_MAX} bytes, the limit for a program file");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_program_file_is_refused() {
        let why = read("/dev/zero").unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::FileTooLarge, "{why}");
        let longest = "x".repeat(PROGRAM_BYTES_MAX as usize);
        assert_eq!(
            read_from(longest.as_bytes()).unwrap().len() as u64,
            PROGRAM_BYTES_MAX
        );
    }
}
