//! What breaks, breaks as told, and is whole again when healed.

use std::time::{Duration, Instant};

use netns_lab::fault::{BitErrors, Flap, HostDelay, Loss, OneWay, SlowReceiver};
use netns_lab::{FabricSpec, Fault, Lab, LabError, PortCounters, Routing, Topology};

use crate::mrc::{Injector, Write};
use crate::support::{check_planes, ping, privileged, wait_until};

fn fabric() -> Lab {
    Lab::build(&Topology::fabric(FabricSpec {
        planes: 2,
        routing: Routing::Structured,
        ..FabricSpec::default()
    }))
    .unwrap()
}

const UP: &str = "t0.0.p1-t1.0.p1";

fn at(lab: &Lab, switch: &str, link: &str) -> PortCounters {
    lab.port_counters(switch, link).unwrap()
}

/// Sends packets from host 0 to host 1 over T1 0 of plane 1 and tells how many arrived at the last switch's port, once `all` of them
/// are accounted for.
fn deliver(lab: &Lab, packets: u32, lost: impl Fn() -> u64) -> u64 {
    let arrived = || at(lab, "t0.1.p1", "h1-t0.1.p1").mrc_sent;
    let (arrived_before, lost_before) = (arrived(), lost());
    let write = Write::on(lab, 0, 1, &lab.paths(0, 1)[0]);
    let port = Injector::new(&lab.host(0), "p1");
    (0..packets).for_each(|psn| port.send(&write.frame(psn)));
    wait_until("every packet has arrived or is lost", || {
        // Where nothing passes, what the kernel sends of its own is lost too.
        arrived() - arrived_before + lost() - lost_before >= u64::from(packets)
    });
    arrived() - arrived_before
}

fn loss(link: &str) -> Loss {
    Loss {
        link: link.to_owned(),
        ..Loss::default()
    }
}

#[test]
fn every_nth_packet_is_lost_in_the_direction_and_on_the_ev_that_are_named() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let lost_at = |switch: &'static str, link: &'static str| {
        let lab = &lab;
        move || at(lab, switch, link).lost
    };
    // Between switches, from a host, to a host: each is seen at another place.
    for (link, from, switch) in [
        (UP, "t0.0.p1", "t0.0.p1"),
        ("h0-t0.0.p1", "h0", "t0.0.p1"),
        ("h1-t0.1.p1", "t0.1.p1", "t0.1.p1"),
    ] {
        let fault = Fault::Loss(Loss {
            from: Some(from.to_owned()),
            every: Some(5),
            ..loss(link)
        });
        lab.fault(&fault).unwrap();
        assert_eq!(deliver(&lab, 50, lost_at(switch, link)), 40, "{fault}");
        lab.heal(&fault).unwrap();
        assert_eq!(deliver(&lab, 5, lost_at(switch, link)), 5, "{fault}");
    }
    let paths = lab.paths(0, 1);
    let back = Fault::Loss(Loss {
        from: Some("t1.0.p1".to_owned()),
        every: Some(1),
        ..loss(UP)
    });
    let other = Fault::Loss(
        Loss {
            every: Some(1),
            ..loss("h0-t0.0.p1")
        }
        .of_path(paths[1].ev),
    );
    let this = Fault::Loss(
        Loss {
            every: Some(1),
            ..loss("h0-t0.0.p1")
        }
        .of_path(paths[0].ev),
    );
    for (fault, arrive) in [(back, 5), (other, 5), (this, 0)] {
        lab.fault(&fault).unwrap();
        assert_eq!(deliver(&lab, 5, lost_at("t0.0.p1", "h0-t0.0.p1")), arrive, "{fault}");
        lab.heal_all().unwrap();
    }
}

#[test]
fn a_chance_of_loss_takes_about_as_many_as_it_says_and_spares_the_fabrics_own() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    lab.fault(&Fault::Loss(Loss {
        percent: Some(20.0),
        ..loss("h0-*")
    }))
    .unwrap();
    let arrived = deliver(&lab, 1000, || at(&lab, "t0.0.p1", "h0-t0.0.p1").lost);
    // Seven standard deviations.
    assert!((710..=890).contains(&arrived), "{arrived} of 1000");
    for _ in 0..30 {
        ping(&lab.host(0), lab.host(1).gid_v6().into());
    }
}

#[test]
fn bit_errors_change_one_bit_behind_the_opcode() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let fault = Fault::BitErrors(BitErrors {
        link: UP.to_owned(),
        from: None,
        percent: 100.0,
    });
    lab.fault(&fault).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let capture = lab
        .node("t0.1.p1")
        .unwrap()
        .capture("h1", file.path(), "udp port 4791")
        .unwrap();
    assert_eq!(deliver(&lab, 1, || 0), 1);
    assert_eq!(at(&lab, "t0.0.p1", UP).flipped, 1);
    let sent = Write::on(&lab, 0, 1, &lab.paths(0, 1)[0]).frame(0);
    let seen = || {
        let bytes = std::fs::read(file.path()).unwrap();
        // One record behind the file's header, 24 bytes, and its own, 16.
        bytes.get(40..).filter(|f| f.len() == sent.len()).map(<[u8]>::to_vec)
    };
    wait_until("the packet is in the file", || seen().is_some());
    capture.stop().unwrap();
    let frame = seen().unwrap();
    let changed: u32 = (54 + 8..sent.len()).map(|n| (frame[n] ^ sent[n]).count_ones()).sum();
    assert_eq!((changed, frame[62]), (1, sent[62]));
}

#[test]
fn a_blackhole_takes_mrc_and_lets_ping_through() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let fault = Fault::Blackhole("t1.0.p1".to_owned());
    lab.fault(&fault).unwrap();
    assert_eq!(deliver(&lab, 10, || at(&lab, "t1.0.p1", UP).lost), 0);
    check_planes(&lab, 0, 1, 1..=2);
    ping(&lab.host(0), lab.host(1).gid_v4().into());
    lab.heal(&fault).unwrap();
    assert_eq!(deliver(&lab, 10, || 0), 10);
}

#[test]
fn one_way_nothing_passes_and_the_link_stays_up() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let fault = Fault::OneWay(OneWay {
        link: "h0-t0.0.p1".to_owned(),
        from: "h0".to_owned(),
    });
    lab.fault(&fault).unwrap();
    assert_eq!(deliver(&lab, 10, || at(&lab, "t0.0.p1", "h0-t0.0.p1").lost), 0);
    let carrier = || std::fs::read_to_string("/sys/class/net/p1/carrier").unwrap();
    assert_eq!(lab.host(0).enter(carrier).unwrap().trim(), "1");
    lab.heal(&fault).unwrap();
    assert_eq!(deliver(&lab, 10, || 0), 10);
}

#[test]
fn a_dead_switch_takes_its_links_down_and_overlapping_faults_heal_apart() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let carrier = |node: &str, port: &str| {
        let read = || std::fs::read_to_string(format!("/sys/class/net/{port}/carrier"));
        lab.node(node)
            .unwrap()
            .enter(read)
            .unwrap()
            .is_ok_and(|text| text.trim() == "1")
    };
    let (dead, cable) = (Fault::Dead("t1.0.p1".to_owned()), Fault::LinkDown(UP.to_owned()));
    lab.fault(&dead).unwrap();
    lab.fault(&cable).unwrap();
    assert!(!carrier("t0.0.p1", "t1.0") && !carrier("t0.1.p1", "t1.0") && carrier("t0.0.p1", "t1.1"));
    lab.heal(&dead).unwrap();
    assert!(!carrier("t0.0.p1", "t1.0") && carrier("t0.1.p1", "t1.0"));
    assert_eq!(lab.faults(), [cable]);
    lab.heal_all().unwrap();
    assert_eq!(deliver(&lab, 10, || 0), 10);
    check_planes(&lab, 0, 1, 1..=2);
}

#[test]
fn a_flapping_link_comes_and_goes_until_it_is_healed() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let fault = Fault::LinkFlap(Flap {
        link: "h0-t0.0.p1".to_owned(),
        down_ms: 5,
        up_ms: 5,
    });
    lab.fault(&fault).unwrap();
    let read = || std::fs::read_to_string("/sys/class/net/p1/carrier_down_count").unwrap();
    let downs = || lab.host(0).enter(read).unwrap().trim().parse::<u32>().unwrap();
    let before = downs();
    wait_until("the carrier was lost three times more", || downs() >= before + 3);
    lab.heal(&fault).unwrap();
    check_planes(&lab, 0, 1, 1..=2);
    assert_eq!(deliver(&lab, 10, || 0), 10);
}

#[test]
fn a_slow_receiver_fills_the_queue_of_the_port_to_it() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let fault = Fault::SlowReceiver(SlowReceiver {
        host: "h1".to_owned(),
        percent: 1,
    });
    lab.fault(&fault).unwrap();
    let last = || at(&lab, "t0.1.p1", "h1-t0.1.p1");
    assert_eq!(deliver(&lab, 300, || 0), 300);
    assert!(last().trimmed > 0, "{:?}", last());
    lab.heal(&fault).unwrap();
    // The queue empties at full speed again.
    let trimmed = last().trimmed;
    wait_until("nothing is trimmed any more", || {
        let before = last().trimmed;
        deliver(&lab, 10, || 0);
        last().trimmed == before
    });
    assert!(last().trimmed < trimmed + 300);
}

#[test]
fn what_a_delayed_host_sends_comes_late_and_whole_and_in_order() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Structured, Routing::Ecmp] {
        let lab = Lab::build(&Topology::fabric(FabricSpec {
            planes: 2,
            routing,
            ..FabricSpec::default()
        }))
        .unwrap();
        let (round_trip, late) = (
            || {
                let start = Instant::now();
                ping(&lab.host(1), lab.host(0).gid_v6().into());
                start.elapsed()
            },
            Duration::from_millis(100),
        );
        let fault = Fault::HostDelay(HostDelay {
            host: "h0".to_owned(),
            us: late.as_micros() as u32,
        });
        lab.fault(&fault).unwrap();
        // Never earlier, however busy the machine is.
        assert!(round_trip() >= late);
        let file = tempfile::NamedTempFile::new().unwrap();
        let capture = lab.node("t0.1.p1").unwrap().capture("h1", file.path(), "udp port 4791");
        let capture = capture.unwrap();
        assert_eq!(deliver(&lab, 20, || 0), 20);
        let write = Write::on(&lab, 0, 1, &lab.paths(0, 1)[0]);
        // Records of the same length: 16 bytes of their own, then the frame, whose PSN ends 12 bytes after the UDP header.
        let length = write.frame(0).len();
        let psns = || {
            let bytes = std::fs::read(file.path()).unwrap();
            let records = bytes[24.min(bytes.len())..].chunks_exact(16 + length);
            records.map(|r| r[16 + 54 + 8 + 11]).collect::<Vec<_>>()
        };
        wait_until("all packets are in the file", || psns().len() == 20);
        capture.stop().unwrap();
        assert_eq!(psns(), (0..20).collect::<Vec<u8>>());
        lab.heal(&fault).unwrap();
        wait_until("the delay is gone", || round_trip() < late);
        assert_eq!(deliver(&lab, 20, || 0), 20);
    }
}

#[test]
fn faults_of_one_lab_do_not_reach_another() {
    if !privileged() {
        return;
    }
    let (one, two) = (fabric(), fabric());
    one.fault(&Fault::Blackhole("t0.0.p1".to_owned())).unwrap();
    assert_eq!(deliver(&two, 20, || 0), 20);
    assert_eq!(at(&one, "t0.0.p1", "h0-t0.0.p1").mrc_received, 0);
    drop(one);
    assert_eq!(deliver(&two, 20, || 0), 20);
}

#[test]
fn a_fault_that_cannot_be_changes_nothing() {
    if !privileged() {
        return;
    }
    let lab = fabric();
    let every = |n| {
        Fault::Loss(Loss {
            every: Some(n),
            ..loss(UP)
        })
    };
    lab.fault(&every(2)).unwrap();
    let refused = lab.fault(&every(3)).unwrap_err();
    assert!(matches!(refused, LabError::Fault { .. }), "{refused}");
    assert_eq!(lab.faults(), [every(2)]);
    let message = lab.heal(&every(3)).unwrap_err().to_string();
    assert_eq!(
        message,
        format!("loss of every 3. packet on {UP}: there is no such fault to heal")
    );
}
