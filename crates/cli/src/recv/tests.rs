use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ccplane_files::wire::{Answer, Entry, Event, What};
use ccplane_files::{BLOCK, Hash};

use super::received::Received;
use super::sink::Sink;
use super::target::{Found, Target};
use super::unfinished::{Hashing, sweep};

/// Of nothing that is there.
const ANY: Hash = [1; 32];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ccplane-place-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file(name: &str, bytes: u64) -> Entry {
    let what = What::File {
        bytes,
        executable: false,
    };
    Entry {
        name: name.as_bytes().to_vec(),
        what,
    }
}

fn nameless() -> Entry {
    Entry {
        name: Vec::new(),
        what: What::Stream,
    }
}

fn open(target: &Target, entry: &Entry, n: u64) -> Sink {
    let place = target.place(entry, true).unwrap();
    target.open(entry, place.as_deref(), n).unwrap()
}

#[test]
fn a_file_has_its_name_when_it_is_complete_and_leaves_nothing_else() {
    let folder = Folder::new("file");
    let path = folder.0.join("out");
    let target = Target::parse(&path, false).unwrap();
    let mut given_up = open(&target, &file("sent", 4), 1);
    given_up.write(b"half").unwrap();
    drop(given_up);
    assert!(folder.names().is_empty());

    let mut sink = open(&target, &file("sent", 5), 1);
    sink.write(b"whole").unwrap();
    assert!(!path.exists());
    sink.store(&ANY, true).unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), folder.names()),
        (b"whole".to_vec(), vec!["out".to_owned()])
    );

    let refused = Target::parse(&path, false).unwrap_err();
    assert!(refused.to_string().contains("exists"));
    let mut sink = open(&Target::parse(&path, true).unwrap(), &file("sent", 3), 2);
    sink.write(b"new").unwrap();
    sink.store(&ANY, true).unwrap();
    assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"new".to_vec(), 1));
}

#[test]
fn what_appears_meanwhile_is_not_replaced() {
    let folder = Folder::new("meanwhile");
    let path = folder.0.join("out");
    let sink = open(&Target::parse(&path, false).unwrap(), &file("sent", 0), 1);
    fs::write(&path, "other").unwrap();
    let error = sink.store(&ANY, true).unwrap_err();
    assert!(error.contains("out") && error.contains("exists"), "{error}");
    assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"other".to_vec(), 1));
}

#[test]
fn a_name_that_is_taken_is_kept_beside_the_new_one() {
    let folder = Folder::new("both");
    let target = Target::parse(&folder.0, false).unwrap();
    fs::write(folder.0.join("report.pdf"), "old").unwrap();
    for text in ["new", "third"] {
        let mut sink = open(&target, &file("report.pdf", text.len() as u64), 1);
        sink.write(text.as_bytes()).unwrap();
        sink.store(&ANY, false).unwrap();
    }
    // The same once more is the same file.
    let mut sink = open(&target, &file("report.pdf", 3), 1);
    sink.write(b"old").unwrap();
    let name = sink.store(blake3::hash(b"old").as_bytes(), false).unwrap();
    assert!(name.ends_with("/report.pdf"), "{name}");
    assert_eq!(folder.names(), ["report-2.pdf", "report-3.pdf", "report.pdf"]);
    assert_eq!(fs::read(folder.0.join("report.pdf")).unwrap(), b"old");
    assert_eq!(fs::read(folder.0.join("report-3.pdf")).unwrap(), b"third");
}

#[test]
fn the_next_attempt_finds_whole_blocks_and_nobody_else_at_the_same_time() {
    let folder = Folder::new("again");
    let target = Target::parse(&folder.0, false).unwrap();
    let bytes = 3 * BLOCK + 5;
    let (entry, place) = (file("a/big", bytes), folder.0.join("a/big"));
    target.make_folder(place.parent().unwrap()).unwrap();
    let mut sink = open(&target, &entry, 1);
    sink.write(&vec![7; 2 * BLOCK as usize + 9]).unwrap();
    assert_eq!(sink.keep(), 2 * BLOCK);

    let Found::Part(part) = target.found(&entry, &place, true, true) else {
        panic!("nothing was kept")
    };
    let have = part.blocks();
    assert_eq!(have, 2 * BLOCK);
    assert!(
        matches!(target.found(&entry, &place, true, true), Found::Nothing),
        "it is locked"
    );
    // Who sends the same at the same time has a place of his own.
    let mut other = open(&target, &entry, 2);
    other.write(b"other").unwrap();
    assert_eq!(other.keep(), 0);

    let mut hashing = Hashing::new(part.reader(), have);
    let block = *blake3::hash(&vec![7; BLOCK as usize]).as_bytes();
    assert_eq!(
        [hashing.next(), hashing.next(), hashing.next()],
        [Some(block), Some(block), None]
    );
    let mut sink = Sink::resume(part, &entry, &place, target.taken(), have).unwrap();
    sink.write(&vec![8; BLOCK as usize + 5]).unwrap();
    sink.store(&ANY, true).unwrap();
    let stored = fs::read(&place).unwrap();
    assert_eq!(
        (
            stored.len() as u64,
            stored[2 * BLOCK as usize - 1],
            stored[2 * BLOCK as usize]
        ),
        (bytes, 7, 8)
    );
    assert!(matches!(target.found(&entry, &place, true, true), Found::Whole(_)));
    assert!(
        matches!(target.found(&entry, &place, false, true), Found::Nothing),
        "a stranger hears nothing of it"
    );
    assert!(matches!(
        target.found(&file("a/big", bytes + 1), &place, true, true),
        Found::Nothing
    ));
    assert_eq!(fs::read_dir(folder.0.join("a")).unwrap().count(), 1);
}

#[test]
fn links_on_the_way_and_too_little_room_are_refused() {
    let folder = Folder::new("way");
    let target = Target::parse(&folder.0, false).unwrap();
    std::os::unix::fs::symlink("/tmp", folder.0.join("out")).unwrap();
    let error = target.check_folder(&folder.0.join("out")).unwrap_err();
    assert!(error.contains("in the way"), "{error}");
    let error = target.has_room(1 << 60).unwrap_err();
    assert!(error.contains("no room") && error.contains("free"), "{error}");
    assert_eq!(target.has_room(1), Ok(()));
    // A stranger's hidden names.
    assert!(target.place(&file(".ssh/authorized_keys", 1), false).is_err());
    // What somebody else put where an unfinished file is to be is not written to.
    let victim = folder.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    let entry = file("f", 4);
    let part = ccplane_files::name::part(&folder.0.join("f"), &entry.name, 4);
    std::os::unix::fs::symlink(&victim, &part).unwrap();
    let mut sink = open(&target, &entry, 1);
    sink.write(b"mine").unwrap();
    sink.store(blake3::hash(b"mine").as_bytes(), true).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::read(folder.0.join("f")).unwrap(), b"mine");
}

fn folder_entry(name: &str) -> Entry {
    Entry {
        name: name.as_bytes().to_vec(),
        what: What::Folder,
    }
}

/// What a receiver answers to a list, or why it refuses; and the receiver.
fn listed(target: &Target, entries: Vec<Entry>) -> (Received, Result<(), Answer>) {
    let mut received = Received::new(1, true);
    let outcome = received.take(Event::List(entries), target, &mut VecDeque::new());
    (received, outcome)
}

#[test]
fn a_list_that_cannot_be_meant_is_refused_and_makes_nothing() {
    let folder = Folder::new("lists");
    let target = Target::parse(&folder.0, false).unwrap();
    let whole = u64::MAX;
    for (entries, says) in [
        (vec![file("a/b", 1)], "not on the list"),
        (vec![folder_entry("a"), file("a/b/c", 1)], "not on the list"),
        (vec![folder_entry("a"), file("x", whole), file("y", whole)], "no room"),
        (vec![file("../x", 1)], "not on the list"),
        (vec![file("..", 1)], "no name inside"),
    ] {
        let (received, outcome) = listed(&target, entries.clone());
        let Err(Answer::Failed(why)) = outcome else {
            panic!("{entries:?}")
        };
        assert!(why.contains(says), "{why}");
        assert!(
            !received.is_complete() && folder.names().is_empty(),
            "{:?}",
            folder.names()
        );
    }
    // Nothing counts what has no place.
    let (mut received, outcome) = listed(
        &Target::parse(Path::new("/dev/null"), false).unwrap(),
        vec![file("x", whole), file("y", whole)],
    );
    assert_eq!(outcome, Ok(()));
    assert_eq!(received.total(), Some(whole));
    received.give_up();
}

#[test]
fn frames_out_of_order_are_refused() {
    let folder = Folder::new("frames");
    let target = Target::parse(&folder.0, false).unwrap();
    let hash = *blake3::hash(b"12345").as_bytes();
    let out = &mut VecDeque::new();
    let begin = |from| Event::Begin { entry: 0, from };
    for (events, says) in [
        (vec![Event::Begin { entry: 7, from: 0 }], "not on its list"),
        (vec![begin(1)], "where nothing is"),
        (vec![begin(BLOCK)], "where nothing is"),
        (vec![Event::Data(b"x")], "nothing that has begun"),
        (vec![Event::End(hash)], "nothing that has begun"),
        (vec![begin(0), Event::Data(b"123456")], "more bytes"),
        (vec![begin(0), Event::Data(b"1234"), Event::End(hash)], "fewer bytes"),
        (
            vec![begin(0), Event::Data(b"12345"), Event::End(hash), begin(0)],
            "or twice",
        ),
    ] {
        let (mut received, outcome) = listed(&target, vec![file("f", 5)]);
        assert_eq!(outcome, Ok(()));
        let refused = events
            .into_iter()
            .find_map(|event| received.take(event, &target, out).err());
        let Some(Answer::Failed(why)) = refused else {
            panic!("{refused:?}, not {says}")
        };
        assert!(why.contains(says), "{why}");
        received.give_up();
    }
    let (mut received, _) = listed(&target, vec![file("f", 5)]);
    for event in [begin(0), Event::Data(b"12346")] {
        received.take(event, &target, out).unwrap();
    }
    let refused = received.take(Event::End(hash), &target, out);
    assert!(matches!(refused, Err(Answer::Differs(0, _))), "{refused:?}");
    drop(received);
    assert_eq!(folder.names(), [""; 0], "nothing of them is left");
}

#[test]
fn a_part_is_gone_on_with_once_and_its_offer_is_good_once() {
    let folder = Folder::new("once");
    let target = Target::parse(&folder.0, false).unwrap();
    let bytes = 3 * BLOCK;
    let mut sink = open(&target, &file("f", bytes), 1);
    sink.write(&vec![7; 2 * BLOCK as usize]).unwrap();
    assert_eq!(sink.keep(), 2 * BLOCK);
    let (mut received, outcome) = listed(&target, vec![file("f", bytes)]);
    assert_eq!(outcome, Ok(()));
    let out = &mut VecDeque::new();
    // The sender finds the second block another, and begins at its start; the rest of the hashes is not made any more.
    received.hash(out);
    received
        .take(Event::Begin { entry: 0, from: BLOCK }, &target, out)
        .unwrap();
    assert!(received.is_behind());
    while received.is_hashing() {
        received.hash(out);
    }
    let again = received.take(Event::Begin { entry: 0, from: BLOCK }, &target, out);
    assert!(matches!(again, Err(Answer::Failed(_))), "{again:?}");
}

#[test]
fn what_was_forgotten_is_removed_and_nothing_else() {
    let folder = Folder::new("forgotten");
    for name in [".a.0123.ccpart", ".b.0123.ccpart", ".profile", "old"] {
        fs::write(folder.0.join(name), "x").unwrap();
    }
    let long_ago = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    for name in [".a.0123.ccpart", ".profile", "old"] {
        File::options()
            .write(true)
            .open(folder.0.join(name))
            .unwrap()
            .set_times(long_ago)
            .unwrap();
    }
    sweep(&folder.0);
    assert_eq!(folder.names(), [".b.0123.ccpart", ".profile", "old"]);
}

#[test]
fn what_has_no_name_has_a_number_and_none_is_lost() {
    let folder = Folder::new("claims");
    let target = Target::parse(&folder.0, false).unwrap();
    fs::write(folder.0.join("received-0001"), "before").unwrap();
    let mut sinks: Vec<_> = (1..=3).map(|n| open(&target, &nameless(), n)).collect();
    // Somebody else takes a name that was claimed.
    fs::write(folder.0.join("received-0003"), "meanwhile").unwrap();
    for (sink, text) in sinks.iter_mut().zip(["a", "b", "c"]) {
        sink.write(text.as_bytes()).unwrap();
    }
    let mut found = Vec::new();
    for sink in sinks {
        found.push(fs::read_to_string(sink.store(&ANY, true).unwrap()).unwrap());
    }
    assert_eq!(found, ["a", "b", "c"]);
    assert_eq!(folder.names().len(), 5, "{:?}", folder.names());
    assert_eq!(fs::read(folder.0.join("received-0001")).unwrap(), b"before");
    assert_eq!(fs::read(folder.0.join("received-0003")).unwrap(), b"meanwhile");
}

#[test]
fn a_folder_takes_many_and_a_full_device_is_named() {
    let folder = Folder::new("many");
    let target = Target::parse(&folder.0, false).unwrap();
    assert!(!target.is_single());
    for n in [1, 1, 2] {
        open(&target, &nameless(), n).store(&ANY, true).unwrap();
    }
    assert_eq!(folder.names(), ["received-0001", "received-0002", "received-0003"]);

    let mut full = open(
        &Target::parse(Path::new("/dev/full"), false).unwrap(),
        &file("x", 100),
        1,
    );
    let error = full.write(&[0; 100]).unwrap_err();
    assert!(
        error.contains("/dev/full") && error.contains("No space left"),
        "{error}"
    );
    assert!(Target::parse(&folder.0.join("none/out"), false).is_err());
}
