//! Harness of the fuzz target `segment`: arbitrary bytes are read without a panic, and valid input
//! is re-encoded to the same bytes.

use super::{Cover, Crypto, ENVELOPE_BYTES_MAX, Envelope, HEADER_BYTES_MAX, read, write};
use ccplane_transport::SideData;

/// Reads an arbitrary datagram and checks that it is re-encoded to the same bytes.
pub fn segment(datagram: &[u8]) {
    let Ok((envelope, head)) = Envelope::read(datagram) else {
        return;
    };
    let mut out = [0; ENVELOPE_BYTES_MAX + HEADER_BYTES_MAX];
    assert_eq!(envelope.write(&mut out), Some(head));
    let rest = &datagram[head..];
    let mut start = head;
    if matches!(envelope.cover, Cover::Handshake | Cover::SealedHandshake) {
        let Ok((part, length)) = Crypto::read(rest) else {
            return;
        };
        let mut again = vec![0; length];
        assert_eq!(part.write(&mut again), Some(length));
        assert_eq!(again, rest[..length]);
        start += length;
    }
    let mut side = SideData::default();
    let Ok((segment, proof, header)) = read(&datagram[start..], &mut side) else {
        return;
    };
    assert!(header <= HEADER_BYTES_MAX);
    let written = write(
        &segment,
        &mut side,
        &mut out[head..],
        HEADER_BYTES_MAX,
        |_| proof,
    );
    assert_eq!(written, Some(header));
    assert_eq!(out[..head], datagram[..head]);
    assert_eq!(out[head..head + header], datagram[start..start + header]);
}
