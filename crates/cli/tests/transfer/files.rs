//! File names, standard input, disk space, and death of the peer.

use std::io::Write;
use std::time::Instant;

use super::*;

/// Creates a folder for the test and an empty subfolder for a receiver.
fn places(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let into = folder.path("in");
    fs::create_dir(&into).unwrap();
    (folder, into)
}

#[test]
fn a_file_keeps_its_name_and_replaces_nothing() {
    let (folder, into) = places("names");
    let file = folder.file("run.sh", 1000);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let receiver = Receiver::start(&["--out", &into]);
    for _ in 0..2 {
        json(&send(&[&receiver.address, &file, "--json"]));
    }
    receiver.signal("-INT");
    let (code, text) = receiver.end();
    assert!(
        code == 0 && text.contains("run-2.sh: 1000 bytes"),
        "{code} {text}"
    );
    for name in ["run.sh", "run-2.sh"] {
        let path = Path::new(&into).join(name);
        assert_eq!(fs::read(&path).unwrap(), fs::read(&file).unwrap());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o100, 0o100, "{mode:o}");
    }
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
}

#[test]
fn control_characters_of_a_name_are_escaped() {
    let (folder, into) = places("control");
    let file = folder.file("a\x1b]0;title\x07\nccplane: forged\u{9b}31m", 10);
    let receiver = Receiver::start(&["--out", &into, "--once"]);
    json(&send(&[&receiver.address, &file, "--json"]));
    let (code, text) = receiver.end();
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("a\\u{1b}]0;title\\u{7}\\nccplane: forged\\u{9b}31m"),
        "{text}"
    );
    assert!(!text.contains(char::is_control), "{text:?}");

    // Both sides refuse hidden names and escape them in messages.
    let file = folder.file(".a\x1b[2J", 10);
    let receiver = Receiver::start(&["--out", &into, "--once"]);
    let output = send(&[&receiver.address, &file]);
    let (_, text) = receiver.end();
    for text in [said(&output), text] {
        assert!(text.contains(".a\\u{1b}[2J"), "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

#[test]
fn a_receiver_that_is_killed_is_noticed_within_seconds() {
    let (folder, into) = places("killed");
    let file = folder.file("backup.tar", 20_000_000);
    let receiver = Receiver::start(&["--out", &into, "--once"]);
    let sender = command(&["send", &receiver.address, &file, "--max-rate", "30mbit"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..600 {
        let begun = fs::read_dir(&into).unwrap().flatten();
        if begun
            .into_iter()
            .any(|part| part.metadata().is_ok_and(|about| about.len() > 1 << 20))
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    receiver.signal("-KILL");
    let killed = Instant::now();
    let output = sender.wait_with_output().unwrap();
    let text = said(&output);
    assert!(
        output.status.code() == Some(1) && text.contains("the receiving process has exited"),
        "{text}"
    );
    assert!(
        killed.elapsed() < Duration::from_secs(5),
        "{:?}",
        killed.elapsed()
    );
}

#[test]
fn standard_input_is_sent_completely_even_if_slow() {
    let (_folder, into) = places("stdin");
    let receiver = Receiver::start(&["--out", &into, "--once", "--timeout", "1s"]);
    let mut sender = command(&["send", &receiver.address, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sender.stdin.take().unwrap();
    input.write_all(&[7; 200_000]).unwrap();
    // Longer than the receiver's timeout for a stuck sender.
    std::thread::sleep(Duration::from_millis(4500));
    input.write_all(b"end").unwrap();
    drop(input);
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(receiver.end().0, 0);
    let arrived = fs::read(Path::new(&into).join("received-0001")).unwrap();
    assert!(arrived.len() == 200_003 && arrived.ends_with(b"\x07end"));
}

#[test]
fn files_without_space_are_refused_before_sending() {
    if !is_root("files_without_space_are_refused_before_sending") {
        return;
    }
    let (folder, into) = places("room");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4M", "ccplane-test", &into])
        .status();
    assert!(mounted.unwrap().success());
    let receiver = Receiver::start(&["--out", &into]);
    let output = send(&[&receiver.address, &folder.file("f", 9_000_000)]);
    let text = said(&output);
    let left = fs::read_dir(&into).unwrap().count();
    receiver.signal("-INT");
    receiver.end();
    assert!(
        Command::new("umount")
            .arg(&into)
            .status()
            .unwrap()
            .success()
    );
    assert!(
        output.status.code() == Some(1) && text.contains("not enough space in"),
        "{text}"
    );
    assert_eq!(left, 0);
}

/// With 30 % loss in each direction half of all exchanges fail: the transfer is slow but completes.
#[test]
fn a_receiver_behind_heavy_loss_is_not_taken_for_dead() {
    if !is_root("a_receiver_behind_heavy_loss_is_not_taken_for_dead") {
        return;
    }
    let folder = Folder::new("heavy");
    let (file, out) = (folder.file("f", 60_000), folder.path("out"));
    let receiver = Receiver::listen("0.0.0.0:0", &["--out", &out]);
    let port = receiver.address.rsplit(':').next().unwrap();
    let line = format!(
        "{} send {} {file} --json",
        env!("CARGO_BIN_EXE_ccplane"),
        receiver.known(&format!("$CCPLANE_HOST:{port}"))
    );
    let link = ["emu", "--rate", "30mbit", "--delay", "5ms", "--loss", "30%"];
    let output = command(&[&link[..], &["--", "sh", "-c", &line]].concat())
        .output()
        .unwrap();
    json(&output);
    assert_eq!(receiver.end().0, 0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(&out).unwrap());
}
