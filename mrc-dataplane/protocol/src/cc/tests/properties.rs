//! What holds whatever happens.

use proptest::prelude::*;
use std::vec::Vec;

use super::START;
use crate::cc::{AckSample, Network, Nscc, NsccConfig, NsccParams, Penalty, RttSample, SchedulerState};
use crate::time::Instant;

#[derive(Clone, Debug)]
enum Event {
    Ack(AckSample, i64),
    Nack(u32, Option<RttSample>, bool, i64),
    Loss(u32),
    Probe(RttSample),
    Links(u64),
    Params(NsccConfig),
    Pause(u64),
}

/// Mostly plausible, sometimes anything.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200_000_u64, 1 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()]
}

fn inflight() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..1_000_000_i64, 1 => any::<i64>()]
}

fn rtt() -> impl Strategy<Value = RttSample> {
    let ns = prop_oneof![8 => 0..500_000_u64, 1 => 0..100_000_000_u64, 1 => any::<u64>()];
    let bytes = prop_oneof![8 => 64..9_300_u32, 1 => any::<u32>()];
    (ns, bytes).prop_map(|(ns, bytes)| RttSample { ns, bytes })
}

fn ack() -> impl Strategy<Value = AckSample> {
    let pen = prop_oneof![4 => Just(0), 1 => any::<u8>()];
    let penalty = (pen, any::<bool>()).prop_map(|(rcv_cwnd_pen, rc)| Penalty { rcv_cwnd_pen, rc });
    (
        size(),
        size(),
        any::<bool>(),
        proptest::option::of(rtt()),
        proptest::option::of(penalty),
    )
        .prop_map(|(newly, late, ce, rtt, penalty)| AckSample {
            late_bytes: late,
            ce,
            rtt,
            penalty,
            ..AckSample::new(START, newly)
        })
}

fn config() -> impl Strategy<Value = NsccConfig> {
    let factor = || prop_oneof![4 => 0.0..2.0_f32, 1 => 0.0..1.0e6_f32, 1 => Just(f32::MAX)];
    let whole = || prop_oneof![4 => 1..200_000_u32, 1 => Just(1), 1 => Just(u32::MAX)];
    (
        (any::<bool>(), whole(), whole(), whole(), factor(), factor(), factor()),
        (0.0..=1.0_f32, 0.0..=1.0_f32, whole(), 0..32_u8, whole(), whole()),
    )
        .prop_map(|(a, b)| NsccConfig {
            disable_qa: a.0,
            adjust_bytes_threshold: a.1,
            adjust_period_threshold_ns: a.2,
            base_rtt_ns: a.3,
            eta: a.4,
            fi: a.5,
            fi_scale: a.6,
            gamma: b.0,
            max_md_jump: b.1,
            max_cwnd_bytes: b.2,
            qa_gate: b.3,
            qa_threshold_ns: b.4,
            target_delay_ns: b.5,
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (ack(), inflight()).prop_map(|(sample, inflight)| Event::Ack(sample, inflight)),
        2 => (any::<u32>(), proptest::option::of(rtt()), any::<bool>(), inflight())
            .prop_map(|(bytes, rtt, trim, inflight)| Event::Nack(bytes, rtt, trim, inflight)),
        2 => (0..10_000_u32).prop_map(Event::Loss),
        1 => rtt().prop_map(Event::Probe),
        1 => prop_oneof![0..800_000_000_000_u64, any::<u64>()].prop_map(Event::Links),
        1 => config().prop_map(Event::Params),
        4 => prop_oneof![8 => 0..1_000_000_u64, 1 => any::<u64>()].prop_map(Event::Pause),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    let speed = prop_oneof![
        Just(25_000_000_u64),
        Just(10_000_000_000),
        Just(800_000_000_000),
        25_000_000..800_000_000_000_u64
    ];
    let mtu = prop_oneof![Just(344_u32), Just(1112), Just(4184), Just(9304)];
    let base = proptest::option::of(1_000..100_000_000_u64);
    (1..=16_u8, speed, mtu, base, any::<bool>()).prop_map(|(planes, bps, mtu, base_rtt_ns, trimming)| Network {
        base_rtt_ns,
        trimming,
        ..Network::new(planes, bps / u64::from(planes), mtu)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// Between one packet and the maximum, without overflow (tests check for it), whatever a peer or a clock says.
    #[test]
    fn window_stays_within_its_limits(network in network(), events in proptest::collection::vec(event(), 0..200)) {
        let mut now = START;
        let mut nscc = Nscc::new(NsccParams::new(&network), now);
        for event in events {
            let before = (nscc.base_rtt_ns(), nscc.params().config_base_rtt_ns);
            match event {
                Event::Ack(sample, inflight) => nscc.on_ack(&AckSample { now, ..sample }, inflight),
                Event::Nack(bytes, rtt, trim, inflight) => nscc.on_nack(now, bytes, rtt, trim, inflight),
                Event::Loss(bytes) => nscc.on_inferred_loss(bytes),
                Event::Probe(rtt) => nscc.on_base_probe(rtt),
                Event::Links(bps) => nscc.set_link_bps(bps),
                Event::Params(config) => {
                    prop_assert_eq!(config.check(), Ok(()));
                    nscc.set_params(NsccParams::with_config(&config, &network));
                }
                Event::Pause(ns) => now = now + ns,
            }
            let mtu = u64::from(nscc.params().mtu_bytes);
            prop_assert!(mtu <= nscc.cwnd_bytes(), "{} {:?}", nscc.cwnd_bytes(), nscc);
            prop_assert!(nscc.cwnd_bytes() <= nscc.max_wnd_bytes(), "{:?}", nscc);
            prop_assert!(nscc.base_rtt_ns() <= nscc.params().config_base_rtt_ns);
            prop_assert!(nscc.base_rtt_ns() >= nscc.params().config_base_rtt_ns / 2);
            if before.1 == nscc.params().config_base_rtt_ns {
                prop_assert!(nscc.base_rtt_ns() <= before.0, "it never rises by itself");
            }
            prop_assert!(nscc.can_send(0), "an empty network always takes a packet");
        }
    }

    /// Losses, trims and marks never make it larger; nothing but restoring makes it larger than what arrived calls for.
    #[test]
    fn bad_news_never_open_the_window(network in network(), events in proptest::collection::vec(event(), 0..100)) {
        let mut now = START;
        let params = NsccParams { disable_qa: true, ..NsccParams::new(&network) };
        let mut nscc = Nscc::new(params, now);
        for event in events {
            let before = nscc.cwnd_bytes();
            let good = match event {
                Event::Ack(sample, inflight) => {
                    nscc.on_ack(&AckSample { now, ..sample }, inflight);
                    sample.penalty.is_none_or(|penalty| penalty.rcv_cwnd_pen == 0)
                }
                Event::Nack(bytes, rtt, trim, inflight) => {
                    nscc.on_nack(now, bytes, rtt, trim, inflight);
                    false
                }
                Event::Loss(bytes) => {
                    nscc.on_inferred_loss(bytes);
                    false
                }
                Event::Pause(ns) => {
                    now = now + ns;
                    false
                }
                _ => continue,
            };
            prop_assert!(good || nscc.cwnd_bytes() <= before);
        }
    }

    /// What `can_send` permits exceeds the window by less than the packet that was sent last.
    #[test]
    fn sender_that_asks_stays_within_the_window(
        network in network(),
        steps in proptest::collection::vec((1..9_304_u32, 0..4_u8, any::<bool>()), 1..300),
    ) {
        let mut nscc = Nscc::new(NsccParams::new(&network), START);
        let mut now = START;
        let mut flying: Vec<(Instant, u32)> = Vec::new();
        let mut inflight = 0_i64;
        let (mut sent, mut left) = (0_i64, 0_i64);
        for (bytes, fate, ce) in steps {
            let bytes = bytes.min(network.mtu_bytes);
            now = now + 1_000;
            let state = SchedulerState::of(true, nscc.can_send(inflight), flying.len() as u32);
            prop_assert_eq!(state.is_ready(), nscc.can_send(inflight));
            if state.is_ready() {
                inflight += i64::from(bytes);
                sent += i64::from(bytes);
                flying.push((now, bytes));
                prop_assert!(inflight < nscc.cwnd_bytes().cast_signed() + i64::from(bytes));
            }
            if fate == 0 || flying.is_empty() {
                continue;
            }
            let (at, gone) = flying.remove(0);
            inflight -= i64::from(gone);
            left += i64::from(gone);
            let rtt = Some(RttSample { ns: now.since(at), bytes: gone });
            match fate {
                1 => nscc.on_ack(&AckSample { ce, rtt, ..AckSample::new(now, u64::from(gone)) }, inflight),
                2 => nscc.on_nack(now, gone, rtt, ce, inflight),
                _ => nscc.on_inferred_loss(gone),
            }
            prop_assert_eq!(sent - left, inflight);
            prop_assert_eq!(inflight, flying.iter().map(|&(_, bytes)| i64::from(bytes)).sum::<i64>());
        }
    }
}
