//! Draws a whole scenario from a seed.

use crate::fabric::FabricPlan;
use crate::fabric::delay::DelayPlan;
use crate::fabric::fault::{Fault, Kind, Scope};
use crate::rng::Rng;
use crate::scenario::traffic::{READ_ONLY_LEN, flow, spoil};
use crate::scenario::{
    ANSWERS, Class, ConnectionPlan, Control, FlowPlan, Format, Happening, HostPlan, RegionPlan, Scenario, Speed,
    faults, links, profiles, shortage, upset,
};
use mrc_wire::Pmtu;

/// At least so many data packets in every seeded run.
pub const MIN_PACKETS: u64 = 500;
const PSN_SPACE: u64 = 1 << 24;

impl Scenario {
    /// The scenario of `seed`.
    pub fn from_seed(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed, "scenario");
        let class = match rng.below(100) {
            0..=4 => Class::PeerVanishes,
            5..=7 => Class::Partition,
            8..=10 => Class::TooFewReceives,
            11..=14 => Class::BadAccess,
            15..=16 => Class::TooManyImmediates,
            17..=20 => Class::LocalError,
            21..=26 => Class::Restart,
            _ => Class::Survivable,
        };
        let wants = &mut shortage::rng(seed);
        let class = shortage::class(wants, class);
        let format = match seed % 4 {
            0 if rng.one_in(2) => Format::BytesV4,
            0 => Format::BytesV6,
            _ => Format::Values,
        };
        let planes = rng.pick(&[1, 2, 2, 3, 4, 4, 8]);
        let host_count = rng.pick(&[2, 2, 2, 2, 3, 4]);
        let mut scenario = Scenario {
            seed,
            class,
            format,
            planes,
            hosts: (0..host_count).map(|_| host(rng)).collect(),
            fabric: fabric(rng, planes),
            faults: Vec::new(),
            happenings: Vec::new(),
            connections: Vec::new(),
            updates: true,
            calm_from_ns: 0,
            deadline_ns: 0,
            packets: 0,
        };
        add_connections(rng, &mut scenario);
        let span_ns = span_ns(&scenario);
        if class.must_succeed() || rng.one_in(2) {
            faults::add(rng, &mut scenario, span_ns);
        }
        // Of its own stream, so that all else is as without.
        links::add(&mut Rng::new(seed, "links"), &mut scenario, span_ns);
        profiles::add(&mut Rng::new(seed, "profiles"), &mut scenario, span_ns);
        end_as_the_class_says(rng, &mut scenario, span_ns);
        shortage::add(wants, &mut scenario, span_ns);
        faults::make_sure(&mut scenario);
        set_limits(rng, &mut scenario, span_ns);
        scenario
    }
}

fn host(rng: &mut Rng) -> HostPlan {
    let read_only = RegionPlan {
        rkey: rng.word() as u32,
        len: READ_ONLY_LEN,
        guard: 64,
        remote_write: false,
    };
    HostPlan {
        poll_delay_ns: rng.pick(&[0, 200, 1_000, 5_000, 20_000]),
        rx_batch: rng.pick(&[1, 4, 16, 32, 64]),
        tx_batch: rng.pick(&[1, 8, 16, 32]),
        rate_mbps: rng.pick(&[1_000, 10_000, 10_000, 100_000]),
        tx_queue: rng.pick(&[1, 4, 16, 64]),
        cwnd_packets: rng.pick(&[4, 16, 64, 192]),
        control: rng.pick(&[
            Control::Ports,
            Control::Ports,
            Control::Nscc,
            Control::Nscc,
            Control::Off,
        ]),
        shared_qpcc: !rng.one_in(3),
        regions: vec![read_only],
        speed: Speed::default(),
    }
}

fn fabric(rng: &mut Rng, planes: u8) -> FabricPlan {
    let base_ns = rng.pick(&[500, 2_000, 5_000, 20_000]);
    FabricPlan::Delay(DelayPlan {
        delay_ns: (0..planes).map(|_| base_ns + rng.below(base_ns)).collect(),
        skew_ns: rng.pick(&[0, 1_000, 10_000, 40_000, 200_000]),
        noise_ns: rng.pick(&[1, 100, 1_000]),
    })
}

fn add_connections(rng: &mut Rng, scenario: &mut Scenario) {
    let hosts = scenario.hosts.len();
    let count = rng.pick(&[1, 1, 1, 2, 3, 4]).max(hosts - 1);
    let target = MIN_PACKETS + rng.below(300);
    let mut next_qpn = rng.range(3, 1 << 20) as u32;
    for index in 0..count {
        let first = index % hosts;
        let pair = [first, (first + 1 + index / hosts % (hosts - 1)) % hosts];
        let both_ways = rng.one_in(2);
        let share = target.div_ceil(count as u64 * if both_ways { 2 } else { 1 });
        let pmtu = rng.pick(&[
            Pmtu::B256,
            Pmtu::B256,
            Pmtu::B256,
            Pmtu::B256,
            Pmtu::B512,
            Pmtu::B512,
            Pmtu::B1024,
            Pmtu::B1024,
            Pmtu::B2048,
            Pmtu::B4096,
        ]);
        let mut flows = [FlowPlan::default(), FlowPlan::default()];
        for (side, plan) in flows.iter_mut().enumerate().take(if both_ways { 2 } else { 1 }) {
            let target = &mut scenario.hosts[pair[1 - side]];
            *plan = flow(rng, pmtu.bytes() as u32, share, target);
            scenario.packets += plan
                .messages
                .iter()
                .map(|m| u64::from(m.packets(pmtu.bytes() as u32)))
                .sum::<u64>();
        }
        let qpn = [next_qpn, next_qpn + rng.range(1, 9) as u32];
        next_qpn = qpn[1] + 1;
        scenario.connections.push(connection(rng, pair, qpn, pmtu, flows));
    }
}

fn connection(rng: &mut Rng, hosts: [usize; 2], qpn: [u32; 2], pmtu: Pmtu, flows: [FlowPlan; 2]) -> ConnectionPlan {
    let psn = [(); 2].map(|()| {
        if rng.one_in(3) {
            (PSN_SPACE - rng.range(1, 300)) as u32
        } else {
            rng.below(PSN_SPACE) as u32
        }
    });
    let max_wimm = [(); 2].map(|()| rng.pick(&[1, 2, 8, 32, 128]));
    let evs_per_plane = rng.pick(&[1, 2, 4, 8, 16]);
    let active_per_plane = rng.range(1, u64::from(evs_per_plane)) as u16;
    let mut plan = ConnectionPlan {
        hosts,
        qpn,
        psn,
        pmtu,
        mpr: [(); 2].map(|()| rng.pick(&[1, 1, 2, 8])),
        max_wimm,
        believed_wimm: max_wimm,
        timeout: rng.pick(&[8, 9, 10, 11, 12]),
        linear_cnt: rng.range(0, 7) as u8,
        exp_cnt: rng.range(1, 6) as u8,
        evs_per_plane,
        active_per_plane,
        ev_min_active: rng.range(1, u64::from(active_per_plane)) as u16,
        trim_nack: [(); 2].map(|()| rng.one_in(2)),
        svc_time: [(); 2].map(|()| rng.one_in(3)),
        dynamic_mpr: [(); 2].map(|()| !rng.one_in(3)),
        answers_per_s: ANSWERS.0,
        answers_burst: ANSWERS.1,
        sack_gen_threshold: rng.pick(&[0, 4096, 16_384, 65_536]),
        reo_min_ns: 50_000,
        sq_depth: rng.pick(&[1, 4, 64, 1024]),
        profile: None,
        verdict_ppm: 0,
        auto_evs: rng.one_in(4),
        fabric_trims: rng.one_in(2),
        ready_ns: [(); 2].map(|()| if rng.one_in(6) { rng.below(400_000) } else { 0 }),
        flows,
    };
    for side in 0..2 {
        let wimm = u32::from(plan.max_wimm[1 - side]);
        plan.flows[side].receive_depth = wimm.min(plan.flows[side].immediates()) + rng.below(4) as u32;
    }
    plan
}

/// How long the applications take to post everything, and the packets to pass: the stretch in which faults are interesting.
fn span_ns(scenario: &Scenario) -> u64 {
    let posting = scenario
        .connections
        .iter()
        .flat_map(|connection| &connection.flows)
        .map(|flow| flow.gap_ns * flow.messages.len() as u64);
    posting.max().unwrap_or(0).max(400_000)
}

fn end_as_the_class_says(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let at_ns = rng.range(span_ns / 20, span_ns / 2);
    match scenario.class {
        Class::Survivable => {}
        Class::MemoryBreaks => shortage::break_down(rng, scenario, at_ns),
        Class::Restart => upset::restart(rng, scenario, at_ns),
        Class::PeerVanishes => {
            let host = rng.below(scenario.hosts.len() as u64) as usize;
            scenario.happenings.push((at_ns, Happening::Vanish { host }));
        }
        Class::Partition => scenario.faults.push(Fault {
            kind: Kind::Blackhole,
            scope: Scope::default(),
            from_ns: at_ns,
            until_ns: u64::MAX,
        }),
        Class::TooFewReceives => {
            for flow in flows_with_immediates(scenario) {
                flow.receives = rng.below(u64::from(flow.receives)) as u32;
                flow.receive_depth = flow.receive_depth.min(flow.receives);
            }
        }
        Class::BadAccess => {
            let index = rng.below(scenario.connections.len() as u64) as usize;
            // Side 0 always sends; a flow of empty messages only stays as it is.
            spoil(rng, &mut scenario.connections[index].flows[0]);
        }
        Class::TooManyImmediates => {
            for connection in &mut scenario.connections {
                connection.max_wimm = [1, 1];
                connection.believed_wimm = [128, 128];
                for flow in &mut connection.flows {
                    flow.receive_depth = flow.receives;
                }
            }
        }
        Class::LocalError => {
            let connection = rng.below(scenario.connections.len() as u64) as usize;
            let side = rng.below(2) as usize;
            scenario
                .happenings
                .push((at_ns, Happening::GiveUp { connection, side }));
        }
    }
}

fn flows_with_immediates(scenario: &mut Scenario) -> impl Iterator<Item = &mut FlowPlan> {
    scenario
        .connections
        .iter_mut()
        .flat_map(|connection| &mut connection.flows)
        .filter(|flow| flow.receives > 0)
}

/// Where all must succeed, the retry budget must outlast the faults; elsewhere it must end within reason.
fn set_limits(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    scenario.calm_from_ns = faults::calm_from_ns(scenario).max(span_ns);
    // Where a whole plane may be dead for ever, each answer is a matter of luck, and up to 17 s pass between two tries.
    let for_ever = scenario
        .faults
        .iter()
        .any(|fault| fault.kind == Kind::Blackhole && fault.until_ns == u64::MAX);
    let mut longest_ns = if for_ever { 1_200_000_000_000 } else { 0 };
    for host in scenario.hosts.iter_mut().filter(|_| for_ever) {
        // Without tail probes (protocol.md §5.7), packets on dead paths hold a small window until their backoff ends.
        host.cwnd_packets = host.cwnd_packets.max(64);
    }
    for connection in &mut scenario.connections {
        if scenario.class.must_succeed() {
            let failures = scenario.calm_from_ns / connection.t0_ns() + 12;
            connection.linear_cnt = 7;
            connection.exp_cnt = match failures.saturating_sub(7) {
                // R grows by at most one per T0 (protocol.md §5.7), so such a budget cannot be spent.
                exp_cnt @ 0..=23 if !for_ever && rng.one_in(2) => exp_cnt.max(4) as u8,
                _ => 25,
            };
            longest_ns = longest_ns.max(64 * connection.t0_ns());
        } else {
            longest_ns = longest_ns.max(2 * connection.retry_budget_ns());
        }
    }
    // Path verdicts are taken back by probes with a backoff of up to one second (protocol.md §9.1).
    scenario.deadline_ns = 4 * scenario.calm_from_ns + longest_ns + 4_000_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_scenario_and_every_scenario_has_its_packets_and_a_fault() {
        for seed in 0..300 {
            let scenario = Scenario::from_seed(seed);
            assert_eq!(format!("{scenario:?}"), format!("{:?}", Scenario::from_seed(seed)));
            assert!(
                scenario.packets >= MIN_PACKETS,
                "seed {seed}: {} packets",
                scenario.packets
            );
            let disturbed = !scenario.faults.is_empty() || !scenario.happenings.is_empty();
            assert!(
                disturbed || scenario.class != Class::Survivable,
                "seed {seed}: nothing happens"
            );
        }
    }

    #[test]
    fn messages_of_a_flow_do_not_overlap_and_stay_inside_their_regions() {
        for seed in 0..100 {
            let scenario = Scenario::from_seed(seed);
            for connection in &scenario.connections {
                for (side, flow) in connection.flows.iter().enumerate() {
                    let regions = &scenario.hosts[connection.hosts[1 - side]].regions;
                    let mut ends = vec![0; regions.len()];
                    for message in flow.messages.iter().filter(|message| message.wrong.is_none()) {
                        assert!(message.offset >= ends[message.region], "seed {seed}: overlap");
                        ends[message.region] = message.offset + u64::from(message.len);
                        assert!(
                            ends[message.region] <= regions[message.region].len,
                            "seed {seed}: out of region"
                        );
                    }
                }
            }
        }
    }
}
