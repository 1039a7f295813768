//! Bodies of the fuzz targets, also run by `cargo test` with seeded bytes.

use crate::{WireError, framed, v1, v2};

/// Reads `bytes` as a stream of frames, in pieces of the size in its first byte. The result must
/// not depend on the pieces, and little may be buffered.
pub fn read_framed(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    let whole = frames_of([stream].into_iter());
    let pieces = frames_of(stream.chunks(usize::from(*size).max(1)));
    assert_eq!(
        whole, pieces,
        "a stream decodes to the same frames however it is split"
    );
}

/// Returns the number of frames, their total length, and the error at the end of the stream.
fn frames_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (usize, usize, Option<WireError>) {
    let (mut frames, mut count, mut size) = (framed::FrameDecoder::new(), 0, 0);
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.next() {
                Ok(Some(framed::Frame::Packet(packet))) => {
                    (count, size) = (count + 1, size + packet.len());
                    read(packet);
                }
                Ok(Some(framed::Frame::Goodbye(words))) => {
                    (count, size) = (count + 1, size + words.len())
                }
                Ok(Some(framed::Frame::Hello(_))) => count += 1,
                Ok(None) => break,
                Err(why) => return (count, size, Some(why)),
            }
        }
        assert!(
            frames.buffered() < framed::LENGTH_FIELD_BYTES + v2::PACKET_BYTES_MAX,
            "at most one frame is buffered"
        );
    }
    (count, size, None)
}

/// Reads `bytes` as every kind of message. It must return for any input, and the messages read must
/// be encodable again.
pub fn read(bytes: &[u8]) {
    for message in v1::messages(bytes) {
        match message {
            Ok(v1::V1Message::Install(install)) => {
                if let Ok(program) = install.decode() {
                    let _ = v1::install(&mut Vec::new(), program.uid(), &program);
                }
            }
            Ok(v1::V1Message::Measure { fields, .. }) => drop(fields.iter().collect::<Vec<_>>()),
            Ok(
                v1::V1Message::UpdateField { updates, .. }
                | v1::V1Message::ChangeProgram { updates, .. },
            ) => {
                drop(updates.iter().collect::<Vec<_>>());
            }
            Ok(v1::V1Message::Create { .. } | v1::V1Message::Ready { .. }) => {}
            Err(why) => drop(why.to_string()),
        }
    }
    let mut packet = v2::PacketWriter::new();
    let _ = v2::read_events(bytes, &mut Vec::new(), &mut |event| {
        packet.clear();
        packet
            .push_event(&event)
            .expect("an event that was read can be written");
    });
    let _ = v2::read_commands(bytes, &mut |command| {
        packet.clear();
        packet
            .push_command(&command)
            .expect("a command that was read can be written");
    });
}
