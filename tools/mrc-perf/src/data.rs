//! Filling sources, and comparing destinations byte for byte.

use crate::cli::Plan;
use crate::failure::Failure;
use crate::layout::GUARD;
use crate::pattern::Pattern;
use crate::setup::{Setup, Side};

/// Changes the expected bytes of a piece: slot, offset of the piece in the message, bytes.
pub(crate) type Expect<'a> = &'a dyn Fn(u64, usize, &mut [u8]);

/// Bytes handled at once.
const PIECE: usize = 64 << 10;

impl Setup {
    /// Fills the sources of a step, and clears the destinations so that old data cannot pass for new.
    pub(crate) fn prepare(&self, plan: &Plan, step: usize, size: u64) -> Result<(), Failure> {
        let mut piece = vec![0; PIECE];
        for qp in 0..self.qps.len() {
            for slot in 0..self.layout.slots(size) {
                let start = self.layout.source(qp, slot, size);
                let mut pattern = pattern(plan, self.side, step, qp, slot);
                for at in (0..size as usize).step_by(PIECE) {
                    let piece = &mut piece[..PIECE.min(size as usize - at)];
                    pattern.fill(piece);
                    self.region.write_at(start + at, piece)?;
                }
            }
            if plan.verify || plan.test == crate::cli::Test::Lat {
                self.region
                    .fill(self.layout.destination(qp, 0, size), self.layout.area(), 0)?;
            }
        }
        Ok(())
    }

    /// Compares what arrived with what the peer sent: `sent` messages per queue pair, nothing else. The first difference, in
    /// words. `expect` may change the expected bytes of a piece:
    /// slot, offset of the piece in the message, bytes.
    pub(crate) fn compare(
        &self,
        plan: &Plan,
        step: usize,
        size: u64,
        sent: &[u64],
        expect: Expect<'_>,
    ) -> Result<Option<String>, Failure> {
        for (qp, &messages) in sent.iter().enumerate().take(self.qps.len()) {
            let slots = self.layout.slots(size);
            let used = messages.min(slots);
            for slot in 0..used {
                if let Some(difference) = self.compare_slot(plan, step, size, (qp, slot), expect)? {
                    return Ok(Some(difference));
                }
            }
            let first_unused = self.layout.destination(qp, used, size);
            let end = self.layout.destination(qp, 0, size) + self.layout.area();
            if let Some(at) = self.first_nonzero(first_unused, end - first_unused)? {
                return Ok(Some(format!(
                    "{size} B, queue pair {qp}: byte {at} behind the last slot was written"
                )));
            }
        }
        if let Some(at) = self.first_nonzero(self.layout.guard(), GUARD)? {
            return Ok(Some(format!("{size} B: guard byte {at} was written")));
        }
        Ok(None)
    }

    /// Compares one slot.
    pub(crate) fn compare_slot(
        &self,
        plan: &Plan,
        step: usize,
        size: u64,
        (qp, slot): (usize, u64),
        expect: Expect<'_>,
    ) -> Result<Option<String>, Failure> {
        let start = self.layout.destination(qp, slot, size);
        let mut pattern = pattern(plan, self.side.other(), step, qp, slot);
        let (mut expected, mut got) = (vec![0; PIECE], vec![0; PIECE]);
        for at in (0..size as usize).step_by(PIECE) {
            let len = PIECE.min(size as usize - at);
            let (expected, got) = (&mut expected[..len], &mut got[..len]);
            pattern.fill(expected);
            expect(slot, at, expected);
            self.region.read_at(start + at, got)?;
            if let Some(first) = expected.iter().zip(&*got).position(|(a, b)| a != b) {
                let (wanted, found) = (expected[first], got[first]);
                return Ok(Some(format!(
                    "{size} B, queue pair {qp}, slot {slot}: byte {} is {found:#04x}, not {wanted:#04x}",
                    at + first
                )));
            }
        }
        Ok(None)
    }

    fn first_nonzero(&self, start: usize, len: usize) -> Result<Option<usize>, Failure> {
        let mut piece = vec![0; PIECE];
        for at in (0..len).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(len - at)];
            self.region.read_at(start + at, piece)?;
            if let Some(first) = piece.iter().position(|&byte| byte != 0) {
                return Ok(Some(at + first));
            }
        }
        Ok(None)
    }
}

fn pattern(plan: &Plan, writer: Side, step: usize, qp: usize, slot: u64) -> Pattern {
    Pattern::new(plan.seed, [writer.direction(), step as u64, qp as u64, slot])
}
