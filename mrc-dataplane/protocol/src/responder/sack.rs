//! What a SACK says (protocol.md §6.5).

use mrc_wire::{CcState, PathVerdict, Psn, Seth};

use super::Responder;
use super::answers::{Base, Trigger};
use crate::cc::Pressure;
use crate::time::Instant;

impl Responder {
    pub(super) fn build_sack(&mut self, trigger: &Trigger, now: Instant) -> (Seth, CcState) {
        let cack_psn = self.cack_psn;
        let (base, sack_bitmap) = self.bitmap(trigger.base);
        let offset = trigger.psn.diff(cack_psn);
        let seth = Seth {
            // P14: ALWAYS_SKIP is never generated.
            m: if trigger.ce {
                PathVerdict::SkipOnce
            } else {
                PathVerdict::None
            },
            pr: trigger.probe_id.is_some(),
            // A very old duplicate does not fit: 0.
            ack_psn_offset_or_probe_id: trigger
                .probe_id
                .unwrap_or(i16::try_from(offset).unwrap_or(0).cast_unsigned()),
            entropy: trigger.entropy,
            spdcid: self.conn.qpn.low16(),
            dpdcid: self.conn.dest_qpn.low16(),
            cack_psn,
            cc_type: Seth::CC_NSCC,
            cc_fl: 0,
            // §5.4
            mpr: if self.limits.dynamic_mpr {
                (self.limits.window / 128) as u8
            } else {
                0
            },
            // At most the window, 32640.
            sack_offset: base.diff(cack_psn) as i16,
            sack_bitmap,
        };
        let state = CcState {
            tx_timestamp: trigger.stamp(self.limits.svc_time, now),
            ooo_count: self.ooo_count.min(u32::from(CcState::MAX_OOO_COUNT)) as u16,
            // §11, P27
            rc: self.pressure.is_some() && Pressure::RC,
            rcv_cwnd_pen: self.pressure.map_or(0, |pressure| pressure.rcv_cwnd_pen()),
            rcvd_bytes: CcState::rcvd_bytes_of(self.rcvd_bytes),
        };
        (seth, state)
    }

    /// Which 64 PSNs are shown, and what is known of them. Long windows are shown part by part, in turn.
    fn bitmap(&mut self, choice: Base) -> (Psn, u64) {
        let first = self.cack_psn.next();
        let fits = self.max_rcv_psn.diff(self.cack_psn) <= 64;
        let wish = match choice {
            Base::Start => first,
            _ if fits => first,
            Base::Scan => self.lowest_unsacked_psn,
            Base::Part => first.add(64 * u32::from(self.answers.part_number)),
            Base::News => self.unshown.first_set(first, self.max_rcv_psn.next()).unwrap_or(first),
        };
        let latest = self.max_rcv_psn.sub(63);
        let base = match choice {
            _ if wish.diff(first) <= 0 => first,
            Base::Scan | Base::News if wish.diff(latest) > 0 => latest,
            _ => wish,
        };
        if choice != Base::News {
            let next = base.add(64);
            self.lowest_unsacked_psn = if next.diff(self.max_rcv_psn) > 0 { first } else { next };
        }
        // Bits beyond max_rcv_psn: none is set in the window, and beyond it the ring shows what it has forgotten.
        let shown = self.max_rcv_psn.diff(base) + 1;
        let mask = match shown {
            64.. => u64::MAX,
            1..64 => (1 << shown) - 1,
            _ => 0,
        };
        self.unshown_count -= self.unshown.clear_window(base, mask);
        (base, self.received.window(base) & mask)
    }
}
