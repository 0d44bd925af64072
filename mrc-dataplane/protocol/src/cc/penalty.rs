//! The responder's side of flow control: how hard to ask the peer for less (protocol.md §11, P27).

/// Turns the fill of a receive ring or placement queue into `rcv_cwnd_pen`.
///
/// ```
/// use mrc_protocol::cc::Pressure;
///
/// let mut pressure = Pressure::default();
/// pressure.observe(45, 100);
/// assert_eq!(pressure.rcv_cwnd_pen(), 0);
/// pressure.observe(95, 100);
/// assert_eq!(pressure.rcv_cwnd_pen(), 127);
/// // Below where it began: still a little, so that the queue empties before the peer is let go.
/// pressure.observe(45, 100);
/// assert_eq!(pressure.rcv_cwnd_pen(), 1);
/// pressure.observe(39, 100);
/// assert_eq!(pressure.rcv_cwnd_pen(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pen: u8,
}

impl Pressure {
    /// `rc`: the peer gets its window back afterwards, for how full a ring is says nothing about the network.
    pub const RC: bool = true;
    /// Largest penalty: about one packet per round trip.
    pub const MAX: u8 = 127;

    /// `used` of `capacity` places are taken. Capacity 0 = there is no queue, no pressure.
    pub fn observe(&mut self, used: u32, capacity: u32) {
        let capacity = u64::from(capacity);
        let percent_of_capacity = u64::from(used) * 100;
        self.pen = if percent_of_capacity >= 95 * capacity && capacity > 0 {
            Self::MAX
        } else if percent_of_capacity >= 50 * capacity && capacity > 0 {
            // From 0 at 50 % to 127 at 95 %.
            let linear = (percent_of_capacity - 50 * capacity) * u64::from(Self::MAX) / (45 * capacity);
            (linear as u8).max(u8::from(self.pen > 0))
        } else if percent_of_capacity >= 40 * capacity {
            self.pen.min(1)
        } else {
            0
        };
    }

    /// For every SACK of the queue pair.
    pub fn rcv_cwnd_pen(&self) -> u8 {
        self.pen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(fills: &[u32]) -> u8 {
        let mut pressure = Pressure::default();
        for &fill in fills {
            pressure.observe(fill, 1000);
        }
        pressure.rcv_cwnd_pen()
    }

    #[test]
    fn penalty_is_linear_between_half_full_and_nearly_full() {
        assert_eq!(after(&[499]), 0);
        assert_eq!(after(&[500]), 0);
        assert_eq!(after(&[725]), 63);
        assert_eq!(after(&[949]), 126);
        assert_eq!(after(&[950]), 127);
        assert_eq!(after(&[u32::MAX]), 127);
    }

    #[test]
    fn penalty_ends_only_when_the_ring_has_emptied() {
        assert_eq!(after(&[400]), 0, "it does not begin there");
        assert_eq!(after(&[800, 500]), 1);
        assert_eq!(after(&[800, 400]), 1);
        assert_eq!(after(&[800, 399]), 0);
        assert_eq!(after(&[800, 399, 450]), 0);
    }

    #[test]
    fn no_ring_is_no_pressure() {
        let mut pressure = Pressure::default();
        pressure.observe(7, 0);
        assert_eq!(pressure.rcv_cwnd_pen(), 0);
    }
}
