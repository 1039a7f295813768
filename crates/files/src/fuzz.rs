//! What a fuzzer looks at: that no bytes panic, and that how a stream is cut changes nothing.

use crate::name;
use crate::wire::{Answers, Event, Frames};

/// Reads a stream of either side, in one piece and byte by byte.
pub fn streams(bytes: &[u8]) {
    let (whole, single) = (frames(bytes, bytes.len()), frames(bytes, 1));
    assert_eq!(whole, single);
    let (whole, single) = (answers(bytes, bytes.len()), answers(bytes, 1));
    assert_eq!(whole, single);
    if let Ok(path) = name::path(bytes, true) {
        assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
        let part = name::part(&path, bytes, 1);
        assert_eq!(part.parent(), path.parent());
    }
}

/// What it says: the data of neighbouring frames joined.
fn frames(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut frames, mut said, mut data) = (Frames::default(), Vec::new(), Vec::new());
    'all: for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match frames.next(&mut piece) {
                Ok(Some(Event::Data(more))) => data.extend_from_slice(more),
                Ok(Some(event)) => said.push(format!("{event:?} after {}", data.len())),
                Ok(None) => break,
                Err(why) => {
                    said.push(why.to_string());
                    break 'all;
                }
            }
        }
        assert!(piece.is_empty(), "a reader that wants more has used all");
    }
    said.push(format!("{data:?}"));
    said
}

fn answers(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut answers, mut said) = (Answers::default(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match answers.next(&mut piece) {
                Ok(Some(answer)) => said.push(format!("{answer:?}")),
                Ok(None) => break,
                Err(why) => {
                    said.push(why.to_string());
                    return said;
                }
            }
        }
    }
    said
}
