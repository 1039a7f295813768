//! Record of the seeds that are done: a file of ranges, so that a long series can be spread over
//! several days.
//!
//! A line `A..B` means the seeds from A up to but excluding B; a line that starts with `#` is a
//! comment. The file is append-only: seeds that were not recorded when a run was interrupted are
//! run again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

/// Ranges of finished seeds and the file, if any.
#[derive(Debug, Default)]
pub struct FinishedSeeds {
    ranges: Vec<Range<u64>>,
    file: Option<File>,
}

impl FinishedSeeds {
    /// Reads the file, if it exists.
    pub fn read(path: &Path) -> io::Result<FinishedSeeds> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let ranges = lines.map(|line| {
            parse_range(line).ok_or_else(|| {
                io::Error::other(format!("`{line}` is not a range of seeds; write A..B"))
            })
        });
        Ok(FinishedSeeds {
            ranges: ranges.collect::<io::Result<_>>()?,
            file: Some(OpenOptions::new().create(true).append(true).open(path)?),
        })
    }

    pub fn has(&self, seed: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&seed))
    }

    /// Returns the number of distinct finished seeds.
    pub fn count(&self) -> u64 {
        let mut ranges: Vec<&Range<u64>> = self.ranges.iter().collect();
        ranges.sort_by_key(|range| range.start);
        let (mut count, mut end) = (0, 0);
        for range in ranges {
            let start = range.start.max(end);
            count += range.end.saturating_sub(start);
            end = end.max(range.end);
        }
        count
    }

    pub fn add(&mut self, range: Range<u64>) -> io::Result<()> {
        self.note(&format!("{}..{}", range.start, range.end))?;
        self.ranges.push(range);
        Ok(())
    }

    pub fn note(&mut self, line: &str) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(format!("{line}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

pub fn parse_range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once("..")?;
    let range = start.trim().parse().ok()?..end.trim().parse().ok()?;
    (range.start < range.end).then_some(range)
}
