//! Every EV takes the path that the plan says: counters at every port of every switch prove it.

use std::collections::BTreeMap;

use mrc_wire::SrhEntry;
use netns_lab::plan::{adjacency_sid, node_v6};
use netns_lab::{FabricSpec, Lab, Path, PathEv, Routing, Topology};

use crate::mrc::{Injector, Write};
use crate::support::{privileged, wait_until};

fn fabric(routing: Routing) -> Lab {
    Lab::build(&Topology::fabric(FabricSpec {
        planes: 2,
        t0: 2,
        t1: 2,
        hosts_per_t0: 2,
        routing,
        ..FabricSpec::default()
    }))
    .unwrap()
}

/// MRC packets by switch and link: what each port received, and what it sent.
type Flow = BTreeMap<(String, String), (u64, u64)>;

fn flow(lab: &Lab) -> Flow {
    let ports = lab.switch_ports().unwrap().into_iter();
    let counted = ports.map(|p| ((p.switch, p.link), (p.counters.mrc_received, p.counters.mrc_sent)));
    counted.filter(|(_, (received, sent))| received + sent > 0).collect()
}

/// What `packets` on a path add to the flow: each switch on it receives by one link and sends by the next.
fn add(expected: &mut Flow, lab: &Lab, path: &Path, packets: u64) {
    for (step, end) in path.hops.iter().enumerate().skip(1) {
        let switch = lab.plan().nodes[end.node].name.clone();
        let at = |link: &str| (switch.clone(), link.to_owned());
        expected.entry(at(&path.links[step - 1])).or_default().0 += packets;
        expected.entry(at(&path.links[step])).or_default().1 += packets;
    }
}

fn send(lab: &Lab, from: usize, plane: usize, write: &Write, packets: u32) {
    let port = Injector::new(&lab.host(from), &format!("p{plane}"));
    (0..packets).for_each(|psn| port.send(&write.frame(psn)));
}

#[test]
fn every_ev_takes_its_path_and_no_other() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Structured, Routing::Srv6, Routing::Srv6Kernel] {
        let lab = fabric(routing);
        let mut expected = Flow::new();
        // Over the spines both ways, and under one leaf; a different number of packets on each path.
        for (n, (from, to)) in [(0, 2), (3, 1), (0, 1)].into_iter().enumerate() {
            for (m, path) in lab.paths(from, to).iter().enumerate() {
                let packets = 3 + 5 * n as u32 + m as u32;
                send(&lab, from, path.plane, &Write::on(&lab, from, to, path), packets);
                add(&mut expected, &lab, path, packets.into());
            }
        }
        wait_until(&format!("{routing}: {expected:?}"), || flow(&lab) == expected);
        let strayed = lab
            .switch_ports()
            .unwrap()
            .iter()
            .map(|p| p.counters.no_path)
            .sum::<u64>();
        assert_eq!(strayed, 0);
    }
}

#[test]
fn a_segment_routing_header_goes_on_where_the_first_container_ends() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Srv6, Routing::Srv6Kernel] {
        let lab = fabric(routing);
        let path = &lab.paths(0, 3)[1];
        let PathEv::Srv6 { destination, .. } = path.ev else {
            panic!("{path:?}")
        };
        let sids = destination.segments();
        // T0 and T1 in the address, T0 and host in the header's segment.
        let [first, second] = [[sids[2], sids[3]], [sids[4], sids[5]]]
            .map(|[a, b]| std::net::Ipv6Addr::new(sids[0], sids[1], a, b, 0, 0, 0, 0));
        let mut write = Write::on(&lab, 0, 3, path);
        let entry = SrhEntry {
            container: second,
            segments_left: 1,
        };
        write.tunnel(node_v6(0), first, Some(entry));
        send(&lab, 0, path.plane, &write, 4);
        let mut expected = Flow::new();
        add(&mut expected, &lab, path, 4);
        wait_until(&format!("{routing}: {expected:?}"), || flow(&lab) == expected);
    }
}

#[test]
fn adjacencies_lead_out_of_their_port() {
    if !privileged() {
        return;
    }
    let lab = fabric(Routing::Srv6);
    let path = &lab.paths(0, 2)[1];
    // At each switch the number of the port that the path leaves by, and the host last.
    let ports = path.hops.iter().skip(1).map(|end| adjacency_sid(end.interface));
    let mut sids = vec![0x5f00, 0];
    sids.extend(ports);
    sids.extend([netns_lab::plan::host_sid(path.plane, 2), 0, 0]);
    let sids: [u16; 8] = sids.try_into().unwrap();
    let mut write = Write::on(&lab, 0, 2, path);
    write.tunnel(node_v6(0), sids.into(), None);
    send(&lab, 0, path.plane, &write, 6);
    let mut expected = Flow::new();
    add(&mut expected, &lab, path, 6);
    wait_until(&format!("{expected:?}"), || flow(&lab) == expected);
}

#[test]
fn what_names_no_path_is_lost_where_it_does_and_counted() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Structured, Routing::Srv6] {
        let lab = fabric(routing);
        let path = &lab.paths(0, 2)[0];
        let mut write = Write::on(&lab, 0, 2, path);
        match path.ev {
            // Uplink 15 is none, and T1 15 is not there.
            PathEv::Structured(ev) => write.ev = ev | 0x0f00_0000,
            _ => write.tunnel(node_v6(0), "5f00:0:1100:210f:1101:4102::".parse().unwrap(), None),
        }
        send(&lab, 0, 1, &write, 3);
        let lost = || lab.port_counters("t0.0.p1", "h0-t0.0.p1").unwrap().no_path;
        wait_until("the packets are lost", || lost() == 3);
        assert!(flow(&lab).values().all(|(_, sent)| *sent == 0));
    }
}

#[test]
fn the_kernel_spreads_evs_over_all_spines() {
    if !privileged() {
        return;
    }
    let lab = fabric(Routing::Ecmp);
    for (ipv6, label) in [(true, 0x1_0000), (false, 0)] {
        let mut write = Write::plain(lab.plan(), 0, 2, 1, ipv6);
        for n in 0..64 {
            write.ev = 0xc000 + n + n * label;
            send(&lab, 0, 1, &write, 1);
        }
    }
    let sent = |link: &str| lab.port_counters("t0.0.p1", link).unwrap().mrc_sent;
    let spines = || ["t0.0.p1-t1.0.p1", "t0.0.p1-t1.1.p1"].map(sent);
    wait_until("all packets go up", || spines().iter().sum::<u64>() == 128);
    // The seed is the lab's, so this is the same in every run; the hash of any other seed passes but for one in many thousands.
    assert!(spines().iter().all(|n| *n > 32), "{:?}", spines());
}

#[test]
fn hosts_find_their_paths_and_speeds_in_their_configuration() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Ecmp, Routing::Structured, Routing::Srv6] {
        let lab = fabric(routing);
        let mut cat = std::process::Command::new("/bin/sh");
        cat.args(["-c", "cat $MRC_CONFIG"]).stdout(std::process::Stdio::piped());
        let output = lab.host(1).spawn(cat).unwrap().wait_with_output().unwrap();
        let seen = String::from_utf8(output.stdout).unwrap();
        assert_eq!(Some(&seen), lab.host(1).config().unwrap().as_ref());
        let file: toml::Table = seen.parse().unwrap();
        assert_eq!(file["port"].as_array().unwrap().len(), 2);
        assert_eq!(file["port"][0]["speed_bps"].as_integer(), Some(100_000_000));
        let names = |peer: usize| {
            let profile = file["peer"][node_v6(peer).to_string().as_str()].get("ev_profile")?;
            let profiles = file["ev_profile"].as_array().unwrap();
            let found = profiles.iter().find(|p| p["name"] == *profile).unwrap();
            let evs = found["evs"].as_array().unwrap().iter();
            Some(
                evs.map(|ev| ev["name"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let expected = |peer| lab.paths(1, peer).into_iter().map(|p| p.name).collect::<Vec<_>>();
        for peer in [0, 2, 3] {
            let known = (routing != Routing::Ecmp).then(|| expected(peer));
            assert_eq!(names(peer), known);
        }
    }
}
