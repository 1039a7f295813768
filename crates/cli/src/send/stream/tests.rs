use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use ccplane_files::HASH;
use ccplane_files::wire::{Entry, Event, Frames, What};
use ccplane_transport::{Config, Native, Rc3};
use ccplane_udp::{Congestion, DATAGRAM, Options, Stamping};

use super::*;

fn item(name: &str, bytes: u64, from: From) -> Item {
    let what = What::File {
        bytes,
        executable: false,
    };
    Item {
        entry: Entry {
            name: name.as_bytes().to_vec(),
            what,
        },
        from,
    }
}

fn pattern_of(bytes: u64) -> Stream {
    Stream::new(vec![item("", bytes, From::Pattern)], true, Time::ZERO).unwrap()
}

/// What it gives with so much room at a time, until it waits or is over.
fn given(stream: &mut Stream, room: usize) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), vec![0; room]);
    loop {
        match stream.next(Time::ZERO, &mut room).unwrap() {
            Step::Gave(bytes) => all.extend_from_slice(&room[..bytes]),
            Step::Worked | Step::Compared => {}
            Step::Waits | Step::Quiet | Step::Over => return all,
        }
    }
}

/// What a receiver makes of it: the frames, with the data of each entry joined.
fn read(bytes: &[u8]) -> Vec<String> {
    let (mut frames, mut rest, mut said, mut data) = (Frames::default(), bytes, Vec::new(), 0);
    while let Some(event) = frames.next(&mut rest).unwrap() {
        match event {
            Event::List(list) => said.push(format!("{} entries", list.len())),
            Event::Guess { entry } => said.push(format!("guess {entry}")),
            Event::Begin { entry, from } => said.push(format!("begin {entry} at {from}")),
            Event::Data(bytes) => data += bytes.len(),
            Event::End(_) => said.push(format!("{} bytes", std::mem::take(&mut data))),
        }
    }
    said
}

/// A connection with a window of 16 MiB whose hello has not left, and the socket that it is for.
fn connecting() -> (Host, u64, UdpSocket) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let options = Options {
        local: "127.0.0.1:0".parse().unwrap(),
        datagram: DATAGRAM,
        window: 16 << 20,
        tls: None,
        dscp: 0,
        config: Config {
            rc3: Some(Rc3::default()),
            ..Config::default()
        },
        stamping: Stamping::Off,
        link: None,
        accepted: Native::cubic(),
    };
    let mut host = Host::bind(options).unwrap();
    let to = peer.local_addr().unwrap();
    let id = host.connect(to, Congestion::Native(Native::cubic())).unwrap();
    (host, id, peer)
}

#[test]
fn the_end_of_the_stream_is_known_before_anything_is_sent() {
    let (mut host, id, peer) = connecting();
    let mut stream = pattern_of(200_000);
    stream.read_ahead(&mut host, id, Duration::from_millis(100)).unwrap();
    let known = host.connection(id).unwrap().pending();
    assert!((200_000 + HASH as u64..202_000).contains(&known), "{known}");
    let nothing = peer.recv(&mut [0; 2000]).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    host.turn(Duration::ZERO).unwrap();
    peer.recv(&mut [0; 2000]).unwrap();
}

/// At most 64 kB, which is what a pipe holds, in 20 ms: the window would take five seconds.
#[test]
fn a_slow_source_does_not_hold_the_hello_up() {
    let (mut host, id, _peer) = connecting();
    let (slow, mut source) = io::pipe().unwrap();
    let entry = Entry {
        name: Vec::new(),
        what: What::Stream,
    };
    let from = From::Pipe(File::from(OwnedFd::from(slow)));
    let mut stream = Stream::new(vec![Item { entry, from }], true, host.now()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while source.write_all(&[7; 1 << 16]).is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        stream.read_ahead(&mut host, id, Duration::from_millis(100)).unwrap();
        // Its other end is closed, and the source stops.
        drop(stream);
    });
    let known = host.connection(id).unwrap().pending();
    assert!(known < 8 << 20, "{known}");
}

#[test]
fn a_stream_says_the_same_however_it_is_cut() {
    for bytes in [0, 1, 7, 8, 1000, 100_000] {
        let mut stream = pattern_of(bytes);
        let whole = given(&mut stream, 1 << 16);
        assert_eq!(read(&whole), ["1 entries", "guess 0", &format!("{bytes} bytes")]);
        let hash = *stream.hash().first().unwrap();
        assert_ne!(hash, whole[0], "not over yet: {hash}");
        stream.offered(Vec::new()).unwrap();
        assert_eq!(given(&mut stream, 100), b"");
        assert_eq!(&whole[whole.len() - HASH..], &stream.hash()[..]);
        for room in [1, 3, 17, 100] {
            let mut stream = pattern_of(bytes);
            let cut = given(&mut stream, room);
            assert_eq!(read(&cut), read(&whole), "{bytes} bytes in pieces of {room}");
        }
    }
}

#[test]
fn what_the_receiver_has_is_compared_and_not_sent_again() {
    let path = std::env::temp_dir().join(format!("ccplane-stream-{}", std::process::id()));
    let bytes = 3 * BLOCK + 100;
    let text: Vec<u8> = (0..bytes).map(|n| (n / BLOCK) as u8).collect();
    std::fs::write(&path, &text).unwrap();
    let blocks: Vec<Hash> = text
        .chunks(BLOCK as usize)
        .map(|block| *blake3::hash(block).as_bytes())
        .collect();
    let begun = |offer: Vec<(u32, u64)>, hashes: &[Hash]| {
        let items = vec![
            item("file", bytes, From::File(path.clone())),
            item("two", 5, From::Pattern),
        ];
        let mut stream = Stream::new(items, false, Time::ZERO).unwrap();
        let mut all = given(&mut stream, 1 << 16);
        // More than a first window is not sent before the receiver has spoken.
        assert!(
            (GUESS as usize..GUESS as usize + (1 << 17)).contains(&all.len()),
            "{}",
            all.len()
        );
        stream.offered(offer).unwrap();
        hashes.iter().for_each(|hash| stream.block(0, *hash).unwrap());
        all.extend(given(&mut stream, 1 << 16));
        let said = read(&all);
        (said[2..].join(", "), stream.had, stream.hash())
    };
    let whole = *blake3::hash(&text).as_bytes();
    let two = *blake3::hash(&{
        let mut p = [0; 5];
        pattern(&mut p, 0);
        p
    })
    .as_bytes();
    let of_both = of_all(&[whole, two]);
    let nothing = begun(Vec::new(), &[]);
    assert_eq!(nothing, (format!("{bytes} bytes, begin 1 at 0, 5 bytes"), 0, of_both));
    let part = begun(vec![(0, 2 * BLOCK)], &blocks[..2]);
    assert!(
        part.0.starts_with(&format!("begin 0 at {}", 2 * BLOCK)) && part.1 == 2 * BLOCK,
        "{part:?}"
    );
    assert_eq!(part.2, of_both);
    // The second block is another one.
    let differs = begun(vec![(0, 2 * BLOCK)], &[blocks[0], [9; HASH]]);
    assert!(
        differs.0.starts_with(&format!("begin 0 at {BLOCK}")) && differs.1 == BLOCK,
        "{differs:?}"
    );
    assert_eq!(differs.2, of_both);
    let all = begun(vec![(0, bytes)], &blocks);
    assert!(
        all.0.starts_with(&format!("begin 0 at {bytes}")) && all.1 == bytes,
        "{all:?}"
    );
    assert_eq!(all.2, of_both);
    let other = begun(vec![(0, bytes)], &[blocks[0], [9; HASH], blocks[2], blocks[3]]);
    assert!(other.0.starts_with("begin 0 at 0") && other.1 == 0, "{other:?}");
    assert_eq!(other.2, of_both);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_receiver_that_makes_no_sense_is_refused_and_makes_this_side_hold_nothing() {
    let offer = |offers: Vec<(u32, u64)>| {
        let items = vec![
            item("file", 5, From::File("/nonesuch".into())),
            item("", 5, From::Pattern),
        ];
        let mut stream = Stream::new(items, false, Time::ZERO).unwrap();
        stream.offered(offers).map(|()| stream)
    };
    for offers in [
        vec![(0, 6)],
        vec![(0, u64::MAX)],
        vec![(1, 1)],
        vec![(2, 0)],
        vec![(0, 1), (0, 1)],
    ] {
        assert!(offer(offers.clone()).is_err(), "{offers:?}");
    }
    let mut stream = offer(vec![(0, 5)]).ok().unwrap();
    assert!(stream.offered(Vec::new()).is_err(), "once");
    stream.block(0, [1; HASH]).unwrap();
    assert!(stream.block(0, [1; HASH]).is_err(), "five bytes are one block");
}
