//! A cross-check of two counts of the same bytes (protocol.md §10.5, P26).

/// Compares the responder's `rcvd_bytes` with what the own table says was acknowledged; one per queue pair.
///
/// The window is clocked by the table. The responder counts duplicates of a packet once, like the table; if it runs ahead
/// nevertheless, it takes packets for larger than they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedCount {
    /// Low 24 bits of the responder's count in units of 256 bytes; `None` before the first SACK.
    prev_rcvd: Option<u32>,
    /// How far the responder is ahead since the last check.
    ahead_bytes: i64,
    packets: u32,
}

impl ReceivedCount {
    const CHECK_AFTER_PACKETS: u32 = 64;
    const MASK: u32 = 0xff_ffff;

    /// A SACK says `rcvd_bytes` (24 bits, units of 256 bytes), and newly acknowledges these packets of these bytes. Returns
    /// by how many bytes the responder ran ahead of the table, if that is too much: to be logged.
    pub fn hear(&mut self, rcvd_bytes: u32, acked_bytes: u64, acked_packets: u32, mtu_bytes: u32) -> Option<u64> {
        let count = rcvd_bytes & Self::MASK;
        let delta = count.wrapping_sub(self.prev_rcvd.unwrap_or(0)) & Self::MASK;
        // An older SACK than the newest is a negative step: nothing new.
        let newly = if delta < 1 << 23 {
            self.prev_rcvd = Some(count);
            i64::from(delta) * 256
        } else {
            0
        };
        self.ahead_bytes = self
            .ahead_bytes
            .saturating_add(newly)
            .saturating_sub(i64::try_from(acked_bytes).unwrap_or(i64::MAX));
        self.packets = self.packets.saturating_add(acked_packets);
        if self.packets < Self::CHECK_AFTER_PACKETS {
            return None;
        }
        let ahead_bytes = self.ahead_bytes;
        self.packets = 0;
        self.ahead_bytes = 0;
        // Each count is rounded up to 256 bytes once.
        (ahead_bytes > 2 * i64::from(mtu_bytes) + 256).then_some(ahead_bytes.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u32 = 4184;

    #[test]
    fn counts_that_agree_are_silent() {
        let mut count = ReceivedCount::default();
        let mut bytes = 0_u64;
        for _ in 0..10_000 {
            bytes += 4184;
            let shown = (bytes.div_ceil(256) & 0xff_ffff) as u32;
            assert_eq!(count.hear(shown, 4184, 1, MTU), None);
        }
    }

    #[test]
    fn lost_and_reordered_sacks_do_not_matter() {
        let mut count = ReceivedCount::default();
        for group in 0..100_u64 {
            let end = (group + 1) * 16 * 4184;
            assert_eq!(count.hear(end.div_ceil(256) as u32, 16 * 4184, 16, MTU), None);
            assert_eq!(count.hear((end - 4184).div_ceil(256) as u32, 0, 0, MTU), None, "older");
        }
    }

    #[test]
    fn responder_that_counts_more_is_noticed() {
        let mut count = ReceivedCount::default();
        let mut bytes = 0_u64;
        let mut noticed = 0;
        for _ in 0..128 {
            bytes += 4184 + 256;
            if let Some(ahead) = count.hear(bytes.div_ceil(256) as u32, 4184, 1, MTU) {
                assert!((63 * 256..=66 * 256).contains(&ahead), "{ahead}");
                noticed += 1;
            }
        }
        assert_eq!(noticed, 2);
    }
}
