//! NSCC against the text: examples, events one by one, sequences, properties, a second implementation, a network.

mod decisions;
mod differential;
mod events;
mod fluid;
mod grid;
mod network;
mod params;
mod penalty;
mod profiles;
mod properties;
mod quick_adapt;
mod reference;

use super::{AckSample, Network, Nscc, NsccParams, Penalty, RttSample};
use crate::time::Instant;

/// PMTU 4096 with TSETH.
const MTU: u32 = 4184;
const START: Instant = Instant(1_000_000);

/// The first example of protocol.md §10.3: 100 Gbit/s and 12 us, with trimming.
fn fast() -> Network {
    Network {
        base_rtt_ns: Some(12_000),
        trimming: true,
        ..Network::new(4, 25_000_000_000, MTU)
    }
}

/// The second: 10 Gbit/s and 50 us in software, target 37.5 us.
fn software() -> Network {
    Network {
        base_rtt_ns: Some(50_000),
        trimming: true,
        ..Network::new(1, 10_000_000_000, MTU)
    }
}

/// A window with time.
struct Bench {
    nscc: Nscc,
    now: Instant,
    inflight: i64,
}

impl Bench {
    fn new(params: NsccParams) -> Self {
        Self {
            nscc: Nscc::new(params, START),
            now: START,
            inflight: 0,
        }
    }

    /// Nothing is applied unless a test says so.
    fn without_apply(network: &Network) -> Self {
        Self::new(NsccParams {
            adjust_bytes: u64::MAX,
            adjust_period_ns: u64::MAX,
            ..NsccParams::new(network)
        })
    }

    /// Loses packets until the window has this size.
    fn shrunk_to(mut self, bytes: u64) -> Self {
        let excess = self.nscc.cwnd_bytes() - bytes;
        self.nscc.on_inferred_loss(u32::try_from(excess).unwrap());
        assert_eq!(self.cwnd(), bytes);
        self
    }

    fn cwnd(&self) -> u64 {
        self.nscc.cwnd_bytes()
    }

    fn wait(&mut self, ns: u64) -> &mut Self {
        self.now = self.now + ns;
        self
    }

    /// A full packet's SACK that acknowledges `n` bytes after this queueing delay.
    fn sack(&mut self, n: u64, delay_ns: u64, ce: bool) -> &mut Self {
        let sample = AckSample {
            ce,
            rtt: Some(RttSample {
                ns: self.nscc.base_rtt_ns() + delay_ns,
                bytes: self.nscc.params().mtu_bytes,
            }),
            ..AckSample::new(self.now, n)
        };
        self.nscc.on_ack(&sample, self.inflight);
        self
    }

    fn penalty(&mut self, n: u64, pen: u8, rc: bool) -> &mut Self {
        let sample = AckSample {
            penalty: Some(Penalty { rcv_cwnd_pen: pen, rc }),
            ..AckSample::new(self.now, n)
        };
        self.nscc.on_ack(&sample, self.inflight);
        self
    }

    fn trim(&mut self, bytes: u32) -> &mut Self {
        self.nscc.on_nack(self.now, bytes, None, true, self.inflight);
        self
    }
}
