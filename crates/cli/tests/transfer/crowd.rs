//! Senders that occupy a receiver's slots and send almost nothing.

use ccplane_link::identity::Identity;
use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, Tls, UdpCongestion, UdpHost, UdpOptions};

use super::*;

/// Returns a host at an address of the loopback network.
fn stranger(last: u8) -> UdpHost {
    let tls = Tls::client(None, Some(&Identity::new().unwrap())).unwrap();
    let options = UdpOptions {
        local: ([127, 0, 2, last], 0).into(),
        datagram_bytes: DATAGRAM_BYTES_DEFAULT,
        window: 1 << 16,
        tls: Some(tls),
        dscp: 0,
        stamping: Stamping::Off,
        link_rate: None,
        config: TransportConfig::default(),
        accept_congestion: Native::cubic(),
    };
    UdpHost::bind(options).unwrap()
}

#[test]
fn senders_of_one_byte_each_are_dropped_for_another_sender() {
    let folder = Folder::new("crowd");
    fs::create_dir(folder.path("in")).unwrap();
    let receiver = Receiver::start(&["--out", &folder.path("in")]);
    let to = receiver.address.parse().unwrap();
    let stop = AtomicBool::new(false);
    let held = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut hosts: Vec<UdpHost> = (1..=4).map(stranger).collect();
            let mut ids = Vec::new();
            for (n, host) in hosts.iter_mut().enumerate() {
                for _ in 0..4 {
                    let id = host
                        .connect(to, UdpCongestion::Native(Native::cubic()))
                        .unwrap();
                    host.write_buffer(id)[0] = b'c';
                    host.commit_write(id, 1);
                    ids.push((n, id));
                }
            }
            while !stop.load(Ordering::Relaxed) {
                UdpHost::poll_all(&mut hosts, ccplane_units::Duration::from_millis(5)).unwrap();
                // The receiver's greeting shows that the slot is taken.
                let greeted = |(n, id): &&(usize, u64)| !hosts[*n].received(*id).0.is_empty();
                held.store(ids.iter().filter(greeted).count(), Ordering::Relaxed);
            }
        });
        let patience = std::time::Instant::now() + Duration::from_secs(30);
        while held.load(Ordering::Relaxed) < 16 && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        let taken = held.load(Ordering::Relaxed);
        // Time after which the transfers count as slow.
        std::thread::sleep(Duration::from_secs(3));
        let outcome = send(&[&receiver.address, &folder.file("f", 10_000)]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(taken, 16, "all slots are taken");
        assert!(outcome.status.success(), "{}", said(&outcome));
    });
    receiver.signal("-INT");
}
