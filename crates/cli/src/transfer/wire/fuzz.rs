//! Harness of the fuzz target `transfer`, which includes this file.

use super::{Answers, Frames, StreamEvent};

/// Checks that no input panics, and that the result does not depend on how a stream is split.
pub fn fuzz(bytes: &[u8]) {
    assert_eq!(sent(bytes, bytes.len()), sent(bytes, 1));
    assert_eq!(answered(bytes, bytes.len()), answered(bytes, 1));
}

/// Returns the events of a stream, with the data of adjacent frames joined.
pub fn sent(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let (mut frames, mut events, mut data) = (Frames::default(), Vec::new(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match frames.next(&mut piece) {
                Ok(Some(StreamEvent::Data(more))) => data.extend_from_slice(more),
                Ok(Some(event)) => events.push(format!("{event:?} after {}", data.len())),
                Ok(None) => break,
                Err(why) => {
                    events.push(why.to_string());
                    return (events, data);
                }
            }
        }
        assert!(
            piece.is_empty(),
            "a parser that needs more data has consumed all of it"
        );
    }
    (events, data)
}

/// Returns the replies in a stream.
pub fn answered(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut answers, mut all) = (Answers::default(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match answers.next(&mut piece) {
                Ok(Some(answer)) => all.push(format!("{answer:?}")),
                Ok(None) => break,
                Err(why) => {
                    all.push(why.to_string());
                    return all;
                }
            }
        }
    }
    all
}
