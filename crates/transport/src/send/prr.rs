//! Proportional rate reduction, RFC 9937 section 6, in packets.
//!
//! Above the target, packets are sent in proportion to those delivered: target over packets in
//! flight when the reduction began. Below the target one is sent per delivered packet, and one more
//! per "safeACK": the cumulative ACK advances and no further loss is detected. ccplane's datapath
//! in Linux does the same.

/// State of one reduction, of a connection or of one of its paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// RecoverFS: packets in flight when the reduction began. 0 before its first ACK.
    recover_fs: u32,
    prr_delivered: u32,
    /// Packets sent since the reduction began.
    prr_out: u32,
}

impl Prr {
    /// Returns true after the first ACK of the reduction.
    #[inline(always)]
    pub fn has_started(&self) -> bool {
        self.recover_fs != 0
    }

    /// Records a transmission.
    #[inline(always)]
    pub fn on_sent(&mut self) {
        self.prr_out += 1;
    }

    /// Returns the window after an ACK, packets; `None` leaves it unchanged. `flying`: packets in
    /// flight now. `outstanding`: sent, neither acknowledged nor SACKed. `newly`: delivered by this
    /// ACK.
    pub fn window(
        &mut self,
        target: u32,
        flying: u32,
        outstanding: u32,
        newly: u32,
        safe_ack: bool,
    ) -> Option<u32> {
        if self.recover_fs == 0 {
            self.recover_fs = outstanding.saturating_add(newly).max(1);
            self.prr_delivered = 0;
            self.prr_out = 0;
        }
        if newly == 0 {
            return None;
        }
        self.prr_delivered = self.prr_delivered.saturating_add(newly);
        let (target, flying, out, newly) = (
            i64::from(target),
            i64::from(flying),
            i64::from(self.prr_out),
            i64::from(newly),
        );
        let (delivered, flight) = (i64::from(self.prr_delivered), i64::from(self.recover_fs));
        let mut count = if flying > target {
            // Rounded up, as in the RFC.
            (delivered * target + flight - 1) / flight - out
        } else {
            let mut count = (delivered - out).max(newly);
            if safe_ack {
                count += 1;
            }
            count.min(target - flying)
        };
        // The first retransmission is sent in any case.
        if self.prr_out == 0 {
            count = count.max(1);
        }
        Some(u32::try_from((flying + count.max(0)).max(1)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9937 section 7, first example: 20 packets in flight, packet 1 is lost, the target is 14
    /// (Cubic). Each of the 19 SACKs allows 14/20 packets.
    #[test]
    fn seven_of_ten_acks_send_a_packet() {
        let mut prr = Prr::default();
        let mut flying = 20u32;
        let mut sent = Vec::new();
        for ack in 1..=19 {
            flying -= if ack == 1 { 2 } else { 1 };
            let window = prr.window(14, flying, 20 - 1, 1, false).unwrap();
            let now = window.saturating_sub(flying);
            prr.prr_out += now;
            flying += now;
            sent.push(now);
        }
        assert_eq!(sent.iter().sum::<u32>(), 14, "{sent:?}");
        assert!(
            sent.iter().all(|packets| *packets <= 1),
            "no burst: {sent:?}"
        );
        assert_eq!(flying, 14);
    }

    /// Section 7, second example: 15 of 20 packets are lost. The packets in flight fall below the
    /// target, then grow by one per delivered packet and one more per safe ACK.
    #[test]
    fn heavy_loss_grows_by_slow_start() {
        let mut prr = Prr::default();
        let mut flying = 4;
        let mut sent = 0;
        for _ in 0..5 {
            flying = u32::saturating_sub(flying, 1);
            let window = prr.window(10, flying, 19, 1, true).unwrap();
            let now = window - flying;
            assert_eq!(now, 2);
            prr.prr_out += now;
            sent += now;
            flying += now;
        }
        assert_eq!((sent, flying), (10, 9));
    }
}
