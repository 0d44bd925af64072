//! A cross-check of two counts of the same bytes (protocol.md §10.5, P26).

/// Compares the responder's `rcvd_bytes` with what the own table says was acknowledged; one per queue pair.
///
/// The window is clocked by the table. The responder counts duplicates of a packet once, like the table; if it runs ahead
/// nevertheless, it takes packets for larger than they are. What it has received out of order no SACK may have shown yet, so
/// both are compared only when it holds nothing of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedCount {
    /// Low 24 bits of the responder's count in units of 256 bytes.
    prev_rcvd: u32,
    /// How far the responder is ahead since the last check.
    ahead_bytes: i64,
    packets: u32,
}

impl ReceivedCount {
    const CHECK_AFTER_PACKETS: u32 = 64;
    const MASK: u32 = 0xff_ffff;

    /// A SACK or Transport ACK newly acknowledged these packets of these bytes, late ones included.
    pub fn acked(&mut self, bytes: u64, packets: u32) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        self.packets = self.packets.saturating_add(packets);
    }

    /// Then, that the SACK says `rcvd_bytes` (24 bits, units of 256 bytes). `all_shown`: the responder has nothing beyond
    /// `cack_psn`. Returns by how many bytes it ran ahead of the table in at least 64 packets, if that is more than two packets.
    pub fn hear(&mut self, rcvd_bytes: u32, all_shown: bool, mtu_bytes: u32) -> Option<u64> {
        let count = rcvd_bytes & Self::MASK;
        let delta = count.wrapping_sub(self.prev_rcvd) & Self::MASK;
        // An older SACK than the newest is a negative step: nothing new.
        if delta >= 1 << 23 {
            return None;
        }
        self.prev_rcvd = count;
        self.ahead_bytes = self.ahead_bytes.saturating_add(i64::from(delta) * 256);
        if !all_shown || self.packets < Self::CHECK_AFTER_PACKETS {
            return None;
        }
        let ahead_bytes = self.ahead_bytes;
        self.packets = 0;
        // A Transport ACK may have told more than any SACK yet: that stays.
        self.ahead_bytes = ahead_bytes.min(0);
        // Each count is rounded up to 256 bytes once.
        (ahead_bytes > 2 * i64::from(mtu_bytes) + 256).then_some(ahead_bytes.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u32 = 4184;

    fn shown(bytes: u64) -> u32 {
        (bytes.div_ceil(256) & 0xff_ffff) as u32
    }

    #[test]
    fn counts_that_agree_are_silent() {
        let mut count = ReceivedCount::default();
        let mut bytes = 0_u64;
        // Beyond 2^24 units: 2^32 bytes.
        for _ in 0..1_100_000 {
            bytes += 4184;
            count.acked(4184, 1);
            assert_eq!(count.hear(shown(bytes), true, MTU), None);
        }
        assert!(bytes > 1 << 32);
    }

    #[test]
    fn lost_and_reordered_sacks_do_not_matter() {
        let mut count = ReceivedCount::default();
        for group in 0..100_u64 {
            let end = (group + 1) * 16 * 4184;
            count.acked(16 * 4184, 16);
            assert_eq!(count.hear(shown(end), true, MTU), None);
            assert_eq!(count.hear(shown(end - 4184), true, MTU), None, "older");
        }
    }

    #[test]
    fn transport_acks_ahead_of_sacks_do_not_matter() {
        let mut count = ReceivedCount::default();
        let mut bytes = 0_u64;
        for _ in 0..100 {
            count.acked(64 * 4184, 64);
            // It tells of no more than before.
            assert_eq!(count.hear(shown(bytes), true, MTU), None);
            bytes += 64 * 4184;
            assert_eq!(count.hear(shown(bytes), true, MTU), None);
        }
    }

    #[test]
    fn packets_that_no_sack_has_shown_yet_do_not_matter() {
        let mut count = ReceivedCount::default();
        // Of 1000 packets behind a gap the first 64 are shown.
        count.acked(64 * 4184, 64);
        assert_eq!(count.hear(shown(1000 * 4184), false, MTU), None);
        count.acked(937 * 4184, 937);
        assert_eq!(count.hear(shown(1001 * 4184), true, MTU), None);
    }

    #[test]
    fn responder_that_counts_more_is_noticed() {
        let mut count = ReceivedCount::default();
        let mut bytes = 0_u64;
        let mut noticed = 0;
        for _ in 0..128 {
            bytes += 4184 + 256;
            count.acked(4184, 1);
            if let Some(ahead) = count.hear(shown(bytes), true, MTU) {
                assert!((63 * 256..=66 * 256).contains(&ahead), "{ahead}");
                noticed += 1;
            }
        }
        assert_eq!(noticed, 2);
    }

    // protocol.md §10.5: more than 2 MTU (and what rounding may add) in 64 packets.
    #[test]
    fn limit_is_two_packets_and_a_unit_in_sixty_four_packets() {
        let limit = 2 * u64::from(MTU) + 256;
        let shown_bytes = 300 * 1024;
        for (ahead, packets, expected) in [
            (limit, 64, None),
            (limit + 1, 64, Some(limit + 1)),
            (limit + 1, 63, None),
        ] {
            let mut count = ReceivedCount::default();
            count.acked(shown_bytes - ahead, packets);
            assert_eq!(
                count.hear(shown(shown_bytes), true, MTU),
                expected,
                "{ahead} in {packets}"
            );
        }
    }

    // protocol.md §4, §10.5: 24-bit arithmetic; half the circle is a step back.
    #[test]
    fn count_that_goes_back_is_that_of_an_older_sack() {
        for (step, is_news) in [(1 << 23, false), ((1 << 23) - 1, true)] {
            let mut count = ReceivedCount::default();
            count.acked(0, 64);
            assert_eq!(count.hear(step, true, MTU).is_some(), is_news);
        }
    }
}
