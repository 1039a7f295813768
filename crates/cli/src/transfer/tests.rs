//! Tests of where received files are stored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::sink::Sink;
use super::target::Destination;
use super::wire::Header;

/// Folder of a single test.
pub(crate) struct TestFolder(pub PathBuf);

impl TestFolder {
    pub fn new(name: &str) -> TestFolder {
        let path =
            std::env::temp_dir().join(format!("ccplane-transfer-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TestFolder(path)
    }

    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn header(name: &str, bytes: Option<u64>) -> Header {
    Header {
        name: name.as_bytes().to_vec(),
        bytes,
        executable: false,
    }
}

fn open(target: &Destination, name: &str) -> Sink {
    target.open(&header(name, Some(1)), true, 1).unwrap()
}

#[test]
fn a_file_gets_its_name_only_when_complete() {
    let folder = TestFolder::new("file");
    let path = folder.0.join("out");
    let target = Destination::parse(&path, false).unwrap();
    let mut given_up = open(&target, "sent");
    given_up.write(b"half").unwrap();
    drop(given_up);
    assert!(folder.names().is_empty());

    let mut sink = open(&target, "sent");
    sink.write(b"whole").unwrap();
    assert!(!path.exists());
    assert_eq!(sink.store(true).unwrap(), path.display().to_string());
    assert_eq!(
        (fs::read(&path).unwrap(), folder.names()),
        (b"whole".to_vec(), vec!["out".to_owned()])
    );

    let refused = Destination::parse(&path, false).unwrap_err();
    assert!(refused.to_string().contains("exists"));
    let mut sink = open(&Destination::parse(&path, true).unwrap(), "sent");
    sink.write(b"new").unwrap();
    sink.store(true).unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), folder.names().len()),
        (b"new".to_vec(), 1)
    );
}

#[test]
fn a_name_that_ends_in_a_slash_is_a_folder() {
    let folder = TestFolder::new("slash");
    let path = folder.0.join("new/");
    let target = Destination::parse(&path, false).unwrap();
    assert!(!target.is_single());
    let mut sink = open(&target, "sent");
    sink.write(b"whole").unwrap();
    sink.store(true).unwrap();
    assert_eq!(fs::read(folder.0.join("new/sent")).unwrap(), b"whole");
    let refused = Destination::parse(&folder.0.join("none/new/"), false).unwrap_err();
    assert!(
        refused.to_string().contains("cannot create the folder"),
        "{refused}"
    );
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let folder = TestFolder::new("meanwhile");
    let path = folder.0.join("out");
    let sink = open(&Destination::parse(&path, false).unwrap(), "sent");
    fs::write(&path, "other").unwrap();
    let error = sink.store(true).unwrap_err();
    assert!(error.contains("out") && error.contains("exists"), "{error}");
    assert_eq!(
        (fs::read(&path).unwrap(), folder.names().len()),
        (b"other".to_vec(), 1)
    );
}

#[test]
fn a_link_is_replaced_and_not_followed() {
    let folder = TestFolder::new("link");
    let [path, victim] = ["out", "victim"].map(|name| folder.0.join(name));
    symlink(&victim, &path).unwrap();
    assert!(
        Destination::parse(&path, false).is_err(),
        "a dangling link exists"
    );
    for _ in 0..2 {
        let mut sink = open(&Destination::parse(&path, true).unwrap(), "sent");
        sink.write(b"ours").unwrap();
        sink.store(false).unwrap();
        assert!(!victim.exists() && !path.is_symlink());
    }
}

#[test]
fn a_name_that_is_taken_gets_a_number() {
    let folder = TestFolder::new("both");
    let target = Destination::parse(&folder.0, false).unwrap();
    fs::write(folder.0.join("report.pdf"), "old").unwrap();
    for text in ["new", "third"] {
        let mut sink = open(&target, "report.pdf");
        sink.write(text.as_bytes()).unwrap();
        sink.store(false).unwrap();
    }
    assert_eq!(
        folder.names(),
        ["report-2.pdf", "report-3.pdf", "report.pdf"]
    );
    assert_eq!(fs::read(folder.0.join("report.pdf")).unwrap(), b"old");
    assert_eq!(fs::read(folder.0.join("report-3.pdf")).unwrap(), b"third");
}

#[test]
fn a_stream_gets_the_next_free_number() {
    let folder = TestFolder::new("numbers");
    let target = Destination::parse(&folder.0, false).unwrap();
    assert!(!target.is_single());
    fs::write(folder.0.join("received-0001"), "before").unwrap();
    let mut sinks = [1, 2, 3].map(|n| target.open(&header("", None), false, n).unwrap());
    fs::write(folder.0.join("received-0003"), "meanwhile").unwrap();
    for (sink, text) in sinks.iter_mut().zip(["a", "b", "c"]) {
        sink.write(text.as_bytes()).unwrap();
    }
    let stored = sinks.map(|sink| fs::read_to_string(sink.store(true).unwrap()).unwrap());
    assert_eq!(stored, ["a", "b", "c"]);
    assert_eq!(folder.names().len(), 5, "{:?}", folder.names());
    assert_eq!(fs::read(folder.0.join("received-0001")).unwrap(), b"before");
    assert_eq!(
        fs::read(folder.0.join("received-0003")).unwrap(),
        b"meanwhile"
    );
}

#[test]
fn invalid_names_and_insufficient_space_are_refused() {
    let folder = TestFolder::new("refused");
    let target = Destination::parse(&folder.0, false).unwrap();
    for (name, bytes, says) in [
        ("../x", 1, "not a plain file name"),
        (".profile", 1, "is a hidden file"),
        ("f", 1 << 60, "not enough space"),
    ] {
        let why = target
            .open(&header(name, Some(bytes)), false, 1)
            .err()
            .unwrap();
        assert!(why.contains(says), "{why}");
    }
    assert!(folder.names().is_empty());
    assert!(Destination::parse(&folder.0.join("none/out"), false).is_err());
    assert!(
        Destination::parse(&folder.0.join(".."), false).is_ok(),
        "a folder"
    );
    assert!(Destination::parse(Path::new("/nonesuch/.."), false).is_err());
}

#[test]
fn a_link_to_a_device_cannot_be_redirected_later() {
    let folder = TestFolder::new("device");
    let [link, victim] = ["link", "victim"].map(|name| folder.0.join(name));
    fs::write(&victim, "precious").unwrap();
    symlink("/dev/null", &link).unwrap();
    let target = Destination::parse(&link, false).unwrap();
    open(&target, "f").write(b"gone").unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&victim, &link).unwrap();
    let why = target.open(&header("f", None), true, 1).err().unwrap();
    assert!(why.contains("replaced by another device or file"), "{why}");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    if nix::unistd::geteuid().is_root() {
        let theirs = folder.0.join("theirs");
        symlink("/dev/null", &theirs).unwrap();
        std::os::unix::fs::lchown(&theirs, Some(65_534), None).unwrap();
        let why = Destination::parse(&theirs, false).unwrap_err().to_string();
        assert!(why.contains("created by another user"), "{why}");
    }
}

#[test]
fn a_full_device_is_reported() {
    let target = Destination::parse(Path::new("/dev/full"), false).unwrap();
    let mut full = open(&target, "x");
    let error = full.write(&[0; 100]).unwrap_err();
    assert!(
        error.contains("/dev/full") && error.contains("No space left"),
        "{error}"
    );
}
