use proptest::prelude::*;

use super::*;

fn read(stream: &[u8], piece: usize) -> Result<(Vec<Entry>, Vec<String>, bool), WireError> {
    let (mut frames, mut list, mut said) = (Frames::default(), Vec::new(), Vec::new());
    let mut data = Vec::new();
    for mut piece in stream.chunks(piece) {
        while let Some(event) = frames.next(&mut piece)? {
            match event {
                Event::List(all) => list = all,
                // However it was cut.
                Event::Data(bytes) => data.extend_from_slice(bytes),
                other => said.push(format!("{other:?} after {}", blake3::hash(&data))),
            }
        }
        assert!(piece.is_empty());
    }
    Ok((list, said, frames.is_between()))
}

fn entry() -> impl Strategy<Value = Entry> {
    let what = prop_oneof![
        (any::<u64>(), any::<bool>()).prop_map(|(bytes, executable)| What::File { bytes, executable }),
        Just(What::Stream),
        Just(What::Folder),
    ];
    (proptest::collection::vec(any::<u8>(), 0..20), what).prop_map(|(name, what)| Entry { name, what })
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        proptest::collection::vec((any::<u32>(), any::<u64>()), 0..20).prop_map(Answer::Offer),
        (any::<u32>(), any::<Hash>()).prop_map(|(entry, hash)| Answer::Block(entry, hash)),
        any::<Hash>().prop_map(Answer::Stored),
        (any::<u32>(), any::<Hash>()).prop_map(|(entry, hash)| Answer::Differs(entry, hash)),
        "[ -~]{0,40}".prop_map(Answer::Failed),
    ]
}

proptest! {
    #[test]
    fn a_stream_says_the_same_however_it_is_cut(
        entries in proptest::collection::vec(entry(), 0..5),
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..6),
        piece in 1usize..40,
    ) {
        let mut stream = list(&entries).unwrap();
        stream.extend(guess(1));
        stream.extend(begin(7, 1 << 40));
        for chunk in &chunks {
            stream.extend(data(chunk.len() as u32));
            stream.extend(chunk);
        }
        stream.extend(end(&[9; HASH]));
        let whole = read(&stream, stream.len()).unwrap();
        prop_assert_eq!(&whole.0, &entries);
        prop_assert_eq!(whole.1.len(), 3);
        prop_assert!(whole.2);
        prop_assert_eq!(&read(&stream, piece).unwrap(), &whole);
        prop_assert!(!read(&stream[..stream.len() - 1], piece).unwrap().2, "cut");
    }

    #[test]
    fn answers_are_read_as_they_were_written(answers in proptest::collection::vec(answer(), 0..6), piece in 1usize..50) {
        let mut stream = greeting().to_vec();
        stream.extend(answers.iter().flat_map(Answer::write));
        let (mut reader, mut found) = (Answers::default(), Vec::new());
        for mut piece in stream.chunks(piece) {
            while let Some(answer) = reader.next(&mut piece).unwrap() {
                found.push(answer);
            }
        }
        prop_assert_eq!(found, answers);
    }

    #[test]
    fn nothing_that_comes_makes_a_reader_hold_more_than_the_limits(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut frames = Frames::default();
        let stream = [&SENDER[..], &bytes].concat();
        let mut input = stream.as_slice();
        while let Ok(Some(_)) = frames.next(&mut input) {}
        prop_assert!(frames.held.capacity() <= 2 * stream.len().max(64));
        let stream = [&RECEIVER[..], &bytes].concat();
        let (mut answers, mut input) = (Answers::default(), stream.as_slice());
        while let Ok(Some(_)) = answers.next(&mut input) {}
        prop_assert!(answers.held.capacity() <= 2 * stream.len().max(64));
    }
}

#[test]
fn what_is_too_much_or_unknown_is_refused() {
    let refused = |stream: &[u8]| read(stream, 7).unwrap_err();
    assert_eq!(refused(&[b'x'; 16]), WireError::Version);
    let head = |count: u32, bytes: u32| [&SENDER[..], &count.to_be_bytes(), &bytes.to_be_bytes()].concat();
    assert!(matches!(refused(&head(1 << 20, 0)), WireError::List { .. }));
    assert!(matches!(refused(&head(0, 1 << 30)), WireError::List { .. }));
    assert_eq!(refused(&[head(1, 1), vec![0]].concat()), WireError::Malformed);
    assert_eq!(refused(&[head(0, 1), vec![0]].concat()), WireError::Malformed);
    let begun = list(&[]).unwrap();
    assert_eq!(refused(&[&begun[..], &[9]].concat()), WireError::Kind(9));
    assert_eq!(
        refused(&[&begun[..], &data(1 << 30)].concat()),
        WireError::Data(1 << 30)
    );

    let answered = |stream: &[u8]| Answers::default().next(&mut &*stream);
    assert_eq!(answered(b"ccprecv1\x00"), Err(WireError::Version));
    assert_eq!(answered(&[&RECEIVER[..], &[9]].concat()), Err(WireError::Kind(9)));
    assert_eq!(
        answered(&[&RECEIVER[..], &[1, 255, 0, 0, 0]].concat()),
        Err(WireError::Malformed)
    );
    let too_many = vec![
        Entry {
            name: Vec::new(),
            what: What::Folder
        };
        MOST_ENTRIES + 1
    ];
    assert!(matches!(list(&too_many), Err(WireError::List { .. })));
}

#[test]
fn a_reason_is_cut_at_a_character_and_cannot_steer_a_terminal() {
    assert!(Answer::Failed("ß".repeat(1000)).write().len() <= 3 + MOST_REASON);
    let stream = [&RECEIVER[..], b"\x05\x00\x0a\x1b[2Jgone\xff\xff"].concat();
    let read = Answers::default().next(&mut stream.as_slice()).unwrap();
    assert_eq!(read, Some(Answer::Failed(" [2Jgone\u{fffd}\u{fffd}".to_owned())));
}

#[test]
fn only_whole_blocks_count_unless_all_is_there() {
    assert_eq!(blocks(0, 0), 0);
    assert_eq!(blocks(5, 5), 1);
    assert_eq!(blocks(BLOCK + 5, BLOCK + 6), 1);
    assert_eq!(blocks(BLOCK, BLOCK), 1);
}

#[test]
fn lengths_that_a_stranger_says_add_up_to_no_more_than_a_number_holds() {
    let file = |bytes| Entry {
        name: Vec::new(),
        what: What::File {
            bytes,
            executable: false,
        },
    };
    assert_eq!(total(&[file(1), file(2)]), Some(3));
    assert_eq!(total(&[file(u64::MAX), file(u64::MAX)]), Some(u64::MAX));
    assert_eq!(
        total(&[
            file(1),
            Entry {
                name: Vec::new(),
                what: What::Stream
            }
        ]),
        None
    );
}
