//! The harness of the fuzz target `segment`: any bytes are read without a panic, and what is read is written back as it was.

use super::{Envelope, MAX_ENVELOPE, MAX_HEADER, read, write};
use ccplane_transport::Side;

/// Takes any datagram.
pub fn segment(datagram: &[u8]) {
    let Ok((envelope, head)) = Envelope::read(datagram) else {
        return;
    };
    let mut out = [0; MAX_ENVELOPE + MAX_HEADER];
    assert_eq!(envelope.write(&mut out), Some(head));
    let mut side = Side::default();
    let Ok((segment, header)) = read(&datagram[head..], &mut side) else {
        return;
    };
    assert!(header <= MAX_HEADER);
    assert_eq!(write(&segment, &mut side, &mut out[head..], MAX_HEADER), Some(header));
    assert_eq!(out[..head + header], datagram[..head + header]);
}
