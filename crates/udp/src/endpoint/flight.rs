//! Datagrams of one side's TLS handshake flight.

use crate::codec::{
    ALERT_OFFSET, CRYPTO_HEADER_BYTES, Cover, Crypto, Envelope, PACKET_NUMBER_BYTES,
};
use crate::tls::{Handshake, Level, TAG_BYTES};

/// Writes one datagram of at most `out.len()` bytes: `plain` in plain text, then, sealed, handshake
/// bytes from offset `at` on and a segment. Returns its length and the offset for the next
/// datagram.
pub(super) fn write_part(
    handshake: &mut Handshake,
    envelope: Envelope,
    plain: &[u8],
    at: usize,
    segment: &[u8],
    out: &mut [u8],
) -> Option<(usize, usize)> {
    let head = begin(envelope, plain, out)?;
    let room = out
        .len()
        .checked_sub(head + CRYPTO_HEADER_BYTES + segment.len() + TAG_BYTES)?;
    let said = handshake.output(Level::Sealed).get(at..)?;
    let bytes = said.get(..said.len().min(room))?;
    let (offset, next) = (u16::try_from(at).ok()?, at + bytes.len());
    let end = head + Crypto { offset, bytes }.write(&mut out[head..])?;
    let place = out.get_mut(end..end + segment.len())?;
    place.copy_from_slice(segment);
    let length = handshake.seal(out, head, end + segment.len())?;
    Some((length, next))
}

/// Writes one datagram with a TLS alert: sealed if both sides have keys, else in plain text.
pub(super) fn write_alert(
    handshake: &mut Handshake,
    mut envelope: Envelope,
    alert: u8,
    out: &mut [u8],
) -> Option<usize> {
    let (offset, bytes) = (ALERT_OFFSET, &[alert][..]);
    if !handshake.has_keys() {
        envelope.cover = Cover::Handshake;
        let head = envelope.write(out)?;
        return Some(head + Crypto { offset, bytes }.write(&mut out[head..])?);
    }
    envelope.cover = Cover::SealedHandshake;
    let head = begin(envelope, &[], out)?;
    let end = head + Crypto { offset, bytes }.write(&mut out[head..])?;
    handshake.seal(out, head, end)
}

/// Writes the envelope and the plain-text fragment, leaves room for the packet number, and returns
/// the start of the sealed part.
fn begin(envelope: Envelope, plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let head = envelope.write(out)?;
    let part = Crypto {
        offset: 0,
        bytes: plain,
    };
    let head = head + part.write(&mut out[head..])? + PACKET_NUMBER_BYTES;
    (head <= out.len()).then_some(head)
}
