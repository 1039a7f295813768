//! Several files and folders, names, what is there already, and the other side's death.

use std::io::Write;
use std::time::Instant;

use super::*;

/// A folder of the test's own with an empty one in it that a receiver writes to.
fn places(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let into = folder.path("in");
    fs::create_dir(&into).unwrap();
    (folder, into)
}

/// Of a file what is in it, and whether it may run; `None` of a folder.
type Inside = Option<(Vec<u8>, bool)>;

/// Every file and folder below a path.
fn tree(root: &Path) -> Vec<(String, Inside)> {
    let (mut all, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(here) = left.pop() {
        for entry in fs::read_dir(&here).unwrap().flatten() {
            let (path, about) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if about.is_dir() {
                all.push((name, None));
                left.push(path);
            } else {
                let runs = about.permissions().mode() & 0o100 != 0;
                all.push((name, Some((fs::read(&path).unwrap(), runs))));
            }
        }
    }
    all.sort();
    all
}

/// Waits until `path` has an unfinished file of so many bytes; which.
fn unfinished(path: &str, bytes: u64) -> PathBuf {
    for _ in 0..600 {
        let inside = fs::read_dir(path).unwrap().flatten();
        let part = inside.into_iter().find(|entry| {
            entry.file_name().to_string_lossy().ends_with(".ccpart") && entry.metadata().is_ok_and(|a| a.len() >= bytes)
        });
        if let Some(part) = part {
            return part.path();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing came")
}

#[test]
fn a_folder_arrives_as_it_was_and_is_not_sent_again() {
    let (folder, into) = places("folder");
    let photos = folder.0.join("photos");
    fs::create_dir_all(photos.join("day one/empty")).unwrap();
    fs::rename(folder.file("a", 300_001), photos.join("day one/a.jpg")).unwrap();
    fs::write(photos.join("nothing"), "").unwrap();
    fs::write(photos.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(photos.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let big = folder.file("big", 3_000_000);
    let photos = photos.display().to_string();

    let own = own_fingerprint();
    let receiver = || Receiver::start(&["--out", &into, "--once", "--client", &own]);
    let first = receiver();
    let summary = json(&send(&[&first.address, &photos, &big, "--json"]));
    assert_eq!(
        (&summary["files"], &summary["resumed_bytes"]),
        (&4.into(), &0.into()),
        "{summary}"
    );
    let (code, text) = first.end();
    assert!(code == 0 && text.contains("4 files, "), "{code} {text}");
    let arrived = Path::new(&into).join("photos");
    assert_eq!(tree(&arrived), tree(Path::new(&photos)));
    assert_eq!(fs::read(&big).unwrap(), fs::read(Path::new(&into).join("big")).unwrap());

    // All of it is there: only names and hashes cross the path.
    let second = receiver();
    let again = json(&send(&[&second.address, &photos, &big, "--json"]));
    assert_eq!(again["resumed_bytes"], again["bytes"], "{again}");
    assert_eq!(again["blake3"], summary["blake3"]);
    assert_eq!(second.end().0, 0);
    assert_eq!(tree(&arrived), tree(Path::new(&photos)));

    // Who is nobody known hears no hashes of files that others may have put there. What is the same stays one file.
    let stranger = Receiver::start(&["--out", &into, "--once"]);
    let sent = json(&send(&[&stranger.address, &photos, "--json"]));
    assert_eq!(sent["resumed_bytes"], 0, "{sent}");
    assert_eq!(stranger.end().0, 0);
    assert_eq!(tree(&arrived), tree(Path::new(&photos)));

    // As long as before, and different: both are kept.
    fs::write(Path::new(&photos).join("run.sh"), "#!/bin/ss\n").unwrap();
    let receiver = Receiver::start(&["--out", &into, "--once"]);
    json(&send(&[&receiver.address, &photos, "--json"]));
    let (code, text) = receiver.end();
    assert!(
        code == 0 && text.contains("run.sh was there already: the new one is"),
        "{code} {text}"
    );
    assert_eq!(fs::read_to_string(arrived.join("run.sh")).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::read_to_string(arrived.join("run-2.sh")).unwrap(), "#!/bin/ss\n");
}

#[test]
fn what_an_interrupted_attempt_brought_is_not_sent_again() {
    let (folder, into) = places("resume");
    let (file, own) = (folder.file("backup.tar", 20_000_000), own_fingerprint());
    let begin = |receiver: &Receiver| {
        command(&["send", &receiver.address, &file, "--max-rate", "30mbit"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let receiver = || Receiver::start(&["--out", &into, "--once", "--client", &own]);

    // The receiver is killed: within seconds its host says that nobody is there.
    let first = receiver();
    let sender = begin(&first);
    let part = unfinished(&into, 3 << 20);
    first.signal("-KILL");
    let killed = Instant::now();
    let output = sender.wait_with_output().unwrap();
    let text = said(&output);
    assert!(
        output.status.code() == Some(1) && text.contains("nobody is there any more"),
        "{text}"
    );
    assert!(text.contains("goes on from what has arrived"), "{text}");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let had = fs::metadata(&part).unwrap().len() >> 20 << 20;

    // The sender is interrupted.
    let second = receiver();
    let sender = begin(&second);
    unfinished(&into, had + (2 << 20));
    let status = Command::new("kill").args(["-INT", &sender.id().to_string()]).status();
    assert!(status.unwrap().success());
    assert!(said(&sender.wait_with_output().unwrap()).contains("goes on from what has arrived"));
    let (code, text) = second.end();
    assert!(code == 1 && text.contains("what came is kept"), "{code} {text}");

    // One block of what was kept is damaged, as after a loss of power.
    let kept = fs::metadata(&part).unwrap().len();
    assert!(kept >= 5 << 20, "{kept}");
    let damaged = fs::OpenOptions::new().write(true).open(&part).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&damaged, b"zeros", (3 << 20) + 17).unwrap();
    drop(damaged);
    let third = receiver();
    let summary = json(&send(&[&third.address, &file, "--json"]));
    assert_eq!(summary["resumed_bytes"], 3 << 20, "{summary}");
    assert_eq!(third.end().0, 0);
    assert_eq!(
        fs::read(&file).unwrap(),
        fs::read(Path::new(&into).join("backup.tar")).unwrap()
    );
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn standard_input_is_sent_to_its_end_however_slowly_it_comes() {
    let (_folder, into) = places("stdin");
    let receiver = Receiver::start(&["--out", &into, "--once", "--timeout", "1s"]);
    let mut sender = command(&["send", &receiver.address, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sender.stdin.take().unwrap();
    input.write_all(&[7; 200_000]).unwrap();
    // Longer than the receiver would wait for a sender that is stuck.
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
fn what_finds_no_room_is_refused_before_it_is_sent() {
    if !nix::unistd::geteuid().is_root() {
        let skipped =
            "SKIPPED: what_finds_no_room_is_refused_before_it_is_sent: it mounts a small file system, as root";
        assert!(std::env::var_os("CCPLANE_NO_SKIP").is_none(), "{skipped}");
        return eprintln!("{skipped}");
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
    assert!(Command::new("umount").arg(&into).status().unwrap().success());
    assert!(
        output.status.code() == Some(1) && text.contains("there is no room in"),
        "{text}"
    );
    assert_eq!(left, 0);
}

/// Half of all questions and answers are lost: it takes long, and arrives.
#[test]
fn a_receiver_behind_heavy_loss_is_not_taken_for_dead() {
    if !nix::unistd::geteuid().is_root() {
        let skipped = "SKIPPED: a_receiver_behind_heavy_loss_is_not_taken_for_dead: it makes namespaces, as root";
        assert!(std::env::var_os("CCPLANE_NO_SKIP").is_none(), "{skipped}");
        return eprintln!("{skipped}");
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
