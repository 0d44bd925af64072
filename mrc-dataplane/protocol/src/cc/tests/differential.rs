//! Both implementations hear the same random events, and must agree after each.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::string::String;

use super::reference::{Numbers, Reference};
use super::{START, fast, software};
use crate::cc::{AckSample, Network, Nscc, NsccParams, Penalty, RttSample};
use crate::time::Instant;

struct Pair {
    nscc: Nscc,
    slow: Reference,
    now: Instant,
    inflight: i64,
    rng: ChaCha8Rng,
    network: Network,
    /// Round trips differ by so much from the base; changes from time to time.
    mood_ns: u64,
    marking: bool,
}

impl Pair {
    fn new(network: Network, seed: u64) -> Self {
        Self {
            nscc: Nscc::new(NsccParams::new(&network), START),
            slow: Reference::new(Numbers::new(&network), START.as_ns() as f64),
            now: START,
            inflight: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            network,
            mood_ns: 0,
            marking: false,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit.max(1)
    }

    fn rtt(&mut self) -> Option<RttSample> {
        if self.below(8) == 0 {
            return None;
        }
        let bytes = if self.below(4) == 0 {
            self.below(u64::from(self.network.mtu_bytes)) as u32
        } else {
            self.network.mtu_bytes
        };
        let mood_ns = self.mood_ns;
        let jitter_ns = self.below(self.network.config_base_rtt_ns() / 16);
        let base_ns = self.network.config_base_rtt_ns() * (90 + self.below(12)) / 100;
        Some(RttSample {
            ns: base_ns + mood_ns + jitter_ns,
            bytes,
        })
    }

    fn step(&mut self) -> String {
        let base_ns = self.network.config_base_rtt_ns();
        let mtu = u64::from(self.network.mtu_bytes);
        self.now = self.now + self.below(base_ns / 4);
        if self.below(40) == 0 {
            self.mood_ns = self.below(7) * base_ns;
            self.marking = self.below(2) == 0;
        }
        let now = self.now.as_ns() as f64;
        let s = self.below(mtu) as u32 + 1;
        let gone = i64::from(s).min(self.inflight);
        match self.below(24) {
            0..8 => {
                self.inflight += i64::from(s);
                self.slow.on_send(f64::from(s));
                std::format!("send {s}")
            }
            8..20 => {
                let n = self.below(8 * mtu).min(self.inflight.cast_unsigned());
                self.inflight -= n.cast_signed();
                let marked = self.marking && self.below(4) > 0;
                let penalised = self.below(16) == 0;
                let penalty = Penalty {
                    rcv_cwnd_pen: if penalised { self.below(128) as u8 } else { 0 },
                    rc: self.below(2) == 0,
                };
                let sample = AckSample {
                    late_bytes: self.below(4) / 3 * mtu,
                    ce: marked,
                    rtt: self.rtt(),
                    penalty: Some(penalty),
                    ..AckSample::new(self.now, n)
                };
                self.nscc.on_ack(&sample, self.inflight);
                self.slow.on_ack(
                    now,
                    n as f64,
                    sample.late_bytes as f64,
                    sample.ce,
                    sample.rtt.map(|rtt| (rtt.ns as f64, f64::from(rtt.bytes))),
                    f64::from(penalty.rcv_cwnd_pen),
                    penalty.rc,
                );
                std::format!("{sample:?}")
            }
            20 => {
                let trim = self.below(2) == 0;
                let rtt = self.rtt();
                self.inflight -= gone;
                self.nscc.on_nack(self.now, gone as u32, rtt, trim, self.inflight);
                let slow_rtt = rtt.map(|rtt| (rtt.ns as f64, f64::from(rtt.bytes)));
                self.slow.on_nack(now, gone as f64, slow_rtt, trim);
                std::format!("nack {gone} {rtt:?} {trim}")
            }
            21 => {
                self.inflight -= gone;
                self.nscc.on_inferred_loss(gone as u32);
                self.slow.on_inferred_loss(gone as f64);
                std::format!("loss {gone}")
            }
            22 if self.below(16) == 0 => {
                let link_bps = self.network.link_bps * (1 + self.below(4)) / 4;
                self.nscc.set_link_bps(link_bps);
                self.slow.set_linkspeed(link_bps as f64 / 8e9);
                std::format!("links {link_bps}")
            }
            _ => {
                self.now = self.now + self.below(2 * base_ns);
                String::from("pause")
            }
        }
    }

    fn compare(&self, seed: u64, count: usize, what: &str) {
        let near = |fast: f64, slow: f64| (fast - slow).abs() <= 2.0 + slow.abs() * 1e-4;
        let agree = near(self.nscc.cwnd_bytes() as f64, self.slow.cwnd)
            && near(self.nscc.max_wnd_bytes() as f64, self.slow.max_wnd)
            && near(self.nscc.base_rtt_ns() as f64, self.slow.base_rtt)
            && near(self.nscc.avg_delay_ns() as f64, self.slow.avg_delay)
            && near(self.inflight as f64, self.slow.inflight)
            && self.nscc.is_fast() == self.slow.fast
            && self.nscc.is_limited() == (self.slow.saved > 0.0);
        assert!(
            agree,
            "seed {seed}, event {count}: {what}\n{:#?}\n{:#?}",
            self.nscc, self.slow
        );
    }
}

fn compare(network: Network) {
    for seed in 0..100 {
        let mut pair = Pair::new(network, seed);
        for count in 0..1000 {
            let what = pair.step();
            pair.compare(seed, count, &what);
        }
    }
}

#[test]
fn both_agree_on_the_reference_network() {
    compare(fast());
    compare(Network {
        trimming: false,
        ..fast()
    });
}

#[test]
fn both_agree_on_software_links() {
    compare(software());
    compare(Network::new(4, 10_000_000_000, 9000));
}

#[test]
fn both_agree_on_slow_links() {
    compare(Network::new(4, 25_000_000, 1112));
    compare(Network::new(2, 200_000_000, 4184));
}

#[test]
fn both_agree_on_the_fastest_links() {
    compare(Network {
        base_rtt_ns: Some(8_000),
        trimming: true,
        ..Network::new(8, 100_000_000_000, 4184)
    });
    compare(Network::new(4, 200_000_000_000, 4184));
}
