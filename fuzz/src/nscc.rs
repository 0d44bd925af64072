//! Congestion control: whatever a peer, a clock or a controller says, the window stays between one packet and its maximum
//! (protocol.md §10).

use crate::draw::Draw;
use mrc_protocol::Instant;
use mrc_protocol::cc::{AckSample, Network, Nscc, NsccConfig, NsccParams, Penalty, RttSample};

pub(crate) fn target(data: &[u8]) {
    let mut draw = Draw::new(data);
    let network = network(&mut draw);
    let mut now = Instant::from_ns(1_000_000);
    let mut nscc = Nscc::new(NsccParams::new(&network), now);
    while !draw.is_empty() {
        match draw.below(7) {
            0 | 1 => {
                let sample = AckSample {
                    late_bytes: draw.magnitude(),
                    ce: draw.any(),
                    rtt: draw.maybe(rtt),
                    penalty: draw.maybe(|draw| Penalty {
                        rcv_cwnd_pen: draw.any(),
                        rc: draw.any(),
                    }),
                    ..AckSample::new(now, draw.magnitude())
                };
                let inflight = inflight(&mut draw);
                nscc.on_ack(&sample, inflight);
            }
            2 => {
                let (bytes, rtt, trim) = (draw.magnitude() as u32, draw.maybe(rtt), draw.any());
                let inflight = inflight(&mut draw);
                nscc.on_nack(now, bytes, rtt, trim, inflight);
            }
            3 => nscc.on_inferred_loss(draw.magnitude() as u32),
            4 => nscc.on_base_probe(rtt(&mut draw)),
            5 => match draw.below(4) {
                0 => nscc.set_link_bps(draw.magnitude()),
                1 => {
                    if let Some(config) = config(&mut draw) {
                        nscc.set_params(NsccParams::with_config(&config, &network));
                    }
                }
                _ => {}
            },
            _ => now = now + draw.magnitude(),
        }
        let (cwnd, max, mtu) = (
            nscc.cwnd_bytes(),
            nscc.max_wnd_bytes(),
            u64::from(nscc.params().mtu_bytes),
        );
        assert!((mtu..=max).contains(&cwnd), "a window of {cwnd} outside {mtu} to {max}");
        assert!(nscc.base_rtt_ns() > 0);
        let _ = (
            nscc.can_send(i64::MIN),
            nscc.can_send(i64::MAX),
            nscc.nearly_closed(inflight(&mut draw), draw.any()),
        );
    }
}

fn network(draw: &mut Draw<'_>) -> Network {
    let planes = 1 + draw.below(16) as u8;
    let bps = draw.pick(&[25_000_000, 10_000_000_000, 800_000_000_000_u64]);
    let mtu = draw.pick(&[344, 1112, 4184, 9304]);
    Network {
        base_rtt_ns: draw.maybe(|draw| 1_000 + u64::from(draw.below(100_000_000))),
        trimming: draw.any(),
        ..Network::new(planes, bps / u64::from(planes), mtu)
    }
}

fn rtt(draw: &mut Draw<'_>) -> RttSample {
    RttSample {
        ns: draw.magnitude(),
        bytes: draw.magnitude() as u32,
    }
}

fn inflight(draw: &mut Draw<'_>) -> i64 {
    let size = draw.magnitude().cast_signed();
    if draw.any() { size } else { size.wrapping_neg() }
}

/// One that the check lets through.
fn config(draw: &mut Draw<'_>) -> Option<NsccConfig> {
    let config = NsccConfig {
        disable_qa: draw.any(),
        adjust_bytes_threshold: draw.magnitude() as u32,
        adjust_period_threshold_ns: draw.magnitude() as u32,
        base_rtt_ns: draw.magnitude() as u32,
        eta: draw.any(),
        fi: draw.any(),
        fi_scale: draw.any(),
        gamma: draw.any(),
        max_md_jump: draw.any(),
        max_cwnd_bytes: draw.magnitude() as u32,
        qa_gate: draw.any(),
        qa_threshold_ns: draw.magnitude() as u32,
        target_delay_ns: draw.magnitude() as u32,
    };
    config.check().is_ok().then_some(config)
}
