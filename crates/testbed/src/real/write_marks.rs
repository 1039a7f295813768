//! Ends of writes in a stream: each is reported once the reader has read up to it.

use std::collections::VecDeque;

/// Stream offsets of the ends of writes that have not been read.
#[derive(Debug, Default)]
pub(super) struct WriteMarks(VecDeque<u64>);

impl WriteMarks {
    /// Starts with the first write of a stream; 0 if nothing was written.
    pub fn starting_with(bytes: u64) -> WriteMarks {
        let mut marks = WriteMarks::default();
        marks.push(bytes);
        marks
    }

    /// Adds the end of a write.
    pub fn push(&mut self, total: u64) {
        if total > 0 {
            self.0.push_back(total);
        }
    }

    /// Removes the ends up to `read` and returns their number.
    pub fn remove_read(&mut self, read: u64) -> usize {
        let passed = self.0.iter().take_while(|end| **end <= read).count();
        self.0.drain(..passed);
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_passed_once() {
        let mut marks = WriteMarks::starting_with(0);
        assert_eq!(marks.remove_read(10), 0);
        marks.push(30);
        marks.push(50);
        marks.push(60);
        assert_eq!(
            [29, 30, 30, 60, 70].map(|read| marks.remove_read(read)),
            [0, 1, 0, 2, 0]
        );
    }
}
