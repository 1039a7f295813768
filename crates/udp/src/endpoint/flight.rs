//! What one side says in a TLS handshake, in as many datagrams as it takes.

use crate::codec::{ALERT, CRYPTO_HEAD, Cover, Crypto, Envelope, NUMBER};
use crate::tls::{Handshake, Level, TAG};

/// Writes one datagram, as long as `out` at most: `plain` for all to read, and sealed of what is to
/// be said the bytes from `at` on, with a segment behind them. Its length, and where the next one
/// begins.
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
        .checked_sub(head + CRYPTO_HEAD + segment.len() + TAG)?;
    let said = handshake.said(Level::Sealed).get(at..)?;
    let bytes = said.get(..said.len().min(room))?;
    let (offset, next) = (u16::try_from(at).ok()?, at + bytes.len());
    let end = head + Crypto { offset, bytes }.write(&mut out[head..])?;
    let place = out.get_mut(end..end + segment.len())?;
    place.copy_from_slice(segment);
    let length = handshake.seal(out, head, end + segment.len())?;
    Some((length, next))
}

/// Writes one datagram that says why the handshake is over: sealed once both sides have keys, and
/// before for all to read.
pub(super) fn write_alert(
    handshake: &mut Handshake,
    mut envelope: Envelope,
    alert: u8,
    out: &mut [u8],
) -> Option<usize> {
    let (offset, bytes) = (ALERT, &[alert][..]);
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

/// Envelope, what all may read, and room for the number; where the sealed rest begins.
fn begin(envelope: Envelope, plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let head = envelope.write(out)?;
    let part = Crypto {
        offset: 0,
        bytes: plain,
    };
    let head = head + part.write(&mut out[head..])? + NUMBER;
    (head <= out.len()).then_some(head)
}
