//! What the fuzz target does with arbitrary bytes, also run by `cargo test` with seeded ones.

use crate::{v1, v2};

/// Reads `bytes` as every kind of message. Whatever they are, this returns, and what was read can be written again.
pub fn read(bytes: &[u8]) {
    for message in v1::messages(bytes) {
        match message {
            Ok(v1::Message::Install(install)) => {
                if let Ok(program) = install.decode() {
                    let _ = v1::install(&mut Vec::new(), program.uid(), &program);
                }
            }
            Ok(v1::Message::Measure { fields, .. }) => drop(fields.iter().collect::<Vec<_>>()),
            Ok(v1::Message::UpdateField { updates, .. } | v1::Message::ChangeProgram { updates, .. }) => {
                drop(updates.iter().collect::<Vec<_>>());
            }
            Ok(v1::Message::Create { .. } | v1::Message::Ready { .. }) => {}
            Err(why) => drop(why.to_string()),
        }
    }
    let mut packet = v2::Packet::new();
    let _ = v2::read_events(bytes, &mut Vec::new(), &mut |event| {
        packet.clear();
        packet.event(&event).expect("an event that was read can be written");
    });
    let _ = v2::read_commands(bytes, &mut |command| {
        packet.clear();
        packet
            .command(&command)
            .expect("a command that was read can be written");
    });
}
