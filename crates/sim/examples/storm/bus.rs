//! Simulated stream socket: packets travel in the frames of `ccplane_wire::framed`, cut into pieces
//! of any size.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};
use ccplane_wire::framed::{self, Frame, FrameDecoder};

use crate::random::Draw;

/// Maximum number of pieces of a frame. Each models a partial write.
const PIECES_MAX: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub struct Bus {
    /// Send buffer, bytes: data in flight before a write has to wait.
    pub send_buffer: usize,
    /// Read buffer, bytes.
    pub read_buffer: usize,
    /// One-way delay.
    pub delay: Duration,
    pub seed: u64,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Stream {
    bus: Bus,
    draw: Draw,
    /// Pieces in flight, with their arrival times.
    pieces: VecDeque<(Time, Vec<u8>)>,
    /// Pieces that occupy the send buffer, with their arrival times and sizes; `in_buffer` is the
    /// sum of the sizes.
    unacknowledged: VecDeque<(Time, usize)>,
    in_buffer: usize,
    frames: FrameDecoder,
    /// Packets read from the stream but not taken yet, and the time of the read.
    read: VecDeque<Vec<u8>>,
    read_at: Time,
    /// Packets sent but not read yet.
    sent: VecDeque<Vec<u8>>,
    /// Bytes that form no valid frame were sent or read.
    garbage: bool,
    broken: bool,
}

impl Stream {
    pub fn new(bus: Bus) -> Stream {
        Stream {
            bus,
            draw: Draw::new(bus.seed, 4),
            pieces: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            in_buffer: 0,
            frames: FrameDecoder::new(),
            read: VecDeque::new(),
            read_at: Time::ZERO,
            sent: VecDeque::new(),
            garbage: false,
            broken: false,
        }
    }

    /// Resets the stream for the next connection. Data in flight is lost, including partial frames.
    pub fn reset(&mut self) {
        let draw = self.draw.clone();
        *self = Stream::new(self.bus);
        self.draw = draw;
    }

    /// Returns the number of packets sent but not taken.
    pub fn waiting(&self) -> usize {
        self.sent.len() + self.read.len()
    }

    /// Returns the time at which data can be read.
    pub fn next(&self) -> Time {
        match (self.read.is_empty(), self.pieces.front()) {
            (false, _) => self.read_at,
            (true, Some((due, _))) => *due,
            (true, None) => Time::MAX,
        }
    }

    /// Sends a packet. Its first byte arrives at `due`, or after the data sent before.
    pub fn send(&mut self, due: Time, packet: Vec<u8>) {
        let frame = [&framed::encode_length(&packet)[..], &packet].concat();
        self.sent.push_back(packet);
        self.write(due, &frame);
    }

    /// Sends bytes that form no valid frame.
    pub fn send_garbage(&mut self, due: Time, bytes: &[u8]) {
        self.garbage = true;
        self.write(due, bytes);
    }

    fn write(&mut self, mut due: Time, mut bytes: &[u8]) {
        let cuts = self.draw.below(PIECES_MAX);
        for cut in 0..=cuts {
            if bytes.is_empty() {
                return;
            }
            let length = match cut == cuts {
                true => bytes.len(),
                false => 1 + self.draw.below(bytes.len() as u64) as usize,
            };
            let (piece, rest) = bytes.split_at(length);
            bytes = rest;
            if self.draw.hits(300) {
                due += Duration::from_micros(self.draw.log(1, 1_000));
            }
            // A piece leaves when an earlier one has arrived and its ACK has returned.
            while self.in_buffer + length > self.bus.send_buffer
                && let Some((arrived, bytes)) = self.unacknowledged.pop_front()
            {
                self.in_buffer -= bytes;
                due = due.max(arrived + self.bus.delay * 2);
            }
            due = due.max(self.pieces.back().map_or(Time::ZERO, |(last, _)| *last));
            self.in_buffer += length;
            self.unacknowledged.push_back((due, length));
            self.pieces.push_back((due, piece.to_vec()));
        }
    }

    /// Returns the next packet that has arrived by now. Invalid bytes are returned as an empty
    /// packet, which no decoder accepts.
    pub fn receive(&mut self, now: Time) -> Result<Option<Vec<u8>>, String> {
        while self.read.is_empty()
            && !self.broken
            && let Some((_, piece)) = self.pieces.pop_front_if(|(due, _)| *due <= now)
        {
            self.read_at = now;
            for bytes in piece.chunks(self.bus.read_buffer) {
                self.take(bytes)?;
            }
        }
        Ok(self.read.pop_front())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.broken {
            return Ok(());
        }
        self.frames.push(bytes);
        loop {
            match self.frames.next() {
                Ok(Some(Frame::Packet(packet))) => {
                    let sent = self.sent.pop_front();
                    if !self.garbage && sent.as_deref() != Some(packet) {
                        return Err(format!(
                            "received a frame of {} bytes that was not sent",
                            packet.len()
                        ));
                    }
                    self.read.push_back(packet.to_vec());
                }
                Ok(Some(Frame::Hello(_) | Frame::Goodbye(_))) if self.garbage => {}
                Ok(None) => return Ok(()),
                wrong if self.garbage => {
                    self.broken = true;
                    self.read.push_back(Vec::new());
                    return wrong.map(drop).or(Ok(()));
                }
                wrong => {
                    return Err(format!(
                        "only whole packets were sent, but received: {wrong:?}"
                    ));
                }
            }
        }
    }
}
