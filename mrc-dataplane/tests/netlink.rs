//! Links, addresses and next hops as the kernel of a namespace has them, followed live.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use common::{Netns, privileged, wait_until};
use mrc_dataplane::neigh::{NextHop, NextHops, Unreachable};
use mrc_dataplane::netlink::{WatchOptions, Watcher};
use mrc_wire::PortNum;

/// MAC address of the other side of plane 1, as [`Netns::join`] sets it.
const PEER: NextHop = NextHop::Resolved([2, 0, 0, 0, 1, 2]);

fn port(num: u8) -> PortNum {
    PortNum::new(num).unwrap()
}

fn watch(netns: &Netns, names: &[&str], options: WatchOptions) -> Arc<Watcher> {
    let ports: Vec<_> = (1..)
        .map(port)
        .zip(names.iter().map(|name| (*name).to_owned()))
        .collect();
    netns.run(move || Arc::new(Watcher::start(&ports, options).unwrap_or_else(|error| panic!("{error}"))))
}

fn lookup(watcher: &Watcher, destination: &str) -> NextHop {
    watcher.lookup(port(1), destination.parse().unwrap())
}

fn becomes(watcher: &Watcher, destination: &str, hop: NextHop) {
    let mut last = NextHop::Pending;
    wait_until(&format!("{destination} is {hop:?}"), || {
        last = lookup(watcher, destination);
        last == hop
    });
}

fn failed(gateway: &str) -> NextHop {
    NextHop::Unreachable(Unreachable::NeighbourFailed {
        gateway: gateway.parse::<IpAddr>().unwrap(),
    })
}

fn pair() -> (Netns, Netns) {
    let (a, b) = (Netns::new(), Netns::new());
    a.join(&b, "p1", 1, 1500);
    (a, b)
}

#[test]
fn an_unknown_interface_is_named() {
    if !privileged("an_unknown_interface_is_named") {
        return;
    }
    let netns = Netns::new();
    let error = netns.run(|| Watcher::start(&[(port(1), "nope".into())], WatchOptions::default()).unwrap_err());
    assert_eq!(
        error.to_string(),
        "unknown interface nope: `ip link` lists those of this network namespace"
    );
}

#[test]
fn links_are_followed_down_up_and_away() {
    if !privileged("links_are_followed_down_up_and_away") {
        return;
    }
    let (a, b) = pair();
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    let link = watcher.link(port(1)).unwrap();
    wait_until("the link is up", || link.is_up());
    assert_eq!((link.mtu(), link.mac()), (1500, [2, 0, 0, 0, 1, 1]));

    a.ip("link set p1 mtu 4000");
    wait_until("the MTU has changed", || link.mtu() == 4000);
    for side in [&a, &b] {
        let generation = watcher.generation();
        side.ip("link set p1 down");
        wait_until("the link is down", || !link.is_up());
        // The link is stored first, then the change is announced.
        wait_until("the change is announced", || watcher.generation() > generation);
        side.ip("link set p1 up");
        wait_until("the link is up again", || link.is_up());
    }
    b.ip("link del p1");
    wait_until("the interface is gone", || !link.is_present());
    assert!(!link.is_up());
}

#[test]
fn addresses_are_followed_and_those_on_lo_name_the_host() {
    if !privileged("addresses_are_followed_and_those_on_lo_name_the_host") {
        return;
    }
    let (a, _b) = pair();
    a.ip("addr add 192.0.2.1/32 dev lo");
    a.ip("addr add 2001:db8::1/128 dev lo");
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    let node = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    assert_eq!(watcher.node_addresses(), (Some(node.0), Some(node.1)));
    let on_port = |ip: &str| {
        let ip: IpAddr = ip.parse().unwrap();
        watcher
            .addresses()
            .iter()
            .any(|address| address.ip == ip && address.port == Some(port(1)) && address.global)
    };
    assert!(on_port("10.9.1.1") && on_port("fd09:1::1"));
    a.ip("addr del 10.9.1.1/24 dev p1");
    wait_until("the address is gone", || !on_port("10.9.1.1"));
    a.ip("addr del 192.0.2.1/32 dev lo");
    wait_until("the host has no IPv4 address", || {
        watcher.node_addresses() == (None, Some(node.1))
    });
}

#[test]
fn neighbours_on_the_link_are_resolved_when_missing() {
    if !privileged("neighbours_on_the_link_are_resolved_when_missing") {
        return;
    }
    let (a, _b) = pair();
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    for destination in ["10.9.1.2", "fd09:1::2"] {
        assert_eq!(lookup(&watcher, destination), NextHop::Pending);
        becomes(&watcher, destination, PEER);
    }
    assert_eq!(
        watcher.lookup(port(2), "10.9.1.2".parse().unwrap()),
        NextHop::Unreachable(Unreachable::NoSuchPort)
    );
}

#[test]
fn destinations_behind_gateways_get_the_gateways_address() {
    if !privileged("destinations_behind_gateways_get_the_gateways_address") {
        return;
    }
    let (a, b) = pair();
    b.ip("addr add fe80::2/64 dev p1 nodad");
    a.ip("addr add fe80::1/64 dev p1 nodad");
    a.ip("route add 192.0.2.1/32 via 10.9.1.2");
    a.ip("route add 192.0.2.2/32 via inet6 fe80::2 dev p1");
    a.ip("route add 2001:db8::1/128 via fd09:1::2");
    a.ip("route add 2001:db8::2/128 via fe80::2 dev p1");
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    for destination in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"] {
        becomes(&watcher, destination, PEER);
    }
}

#[test]
fn each_port_takes_its_own_leg_of_a_route_over_several() {
    if !privileged("each_port_takes_its_own_leg_of_a_route_over_several") {
        return;
    }
    let (a, b) = pair();
    a.join(&b, "p2", 2, 1500);
    a.ip("route add 192.0.2.1/32 nexthop via 10.9.1.2 nexthop via 10.9.2.2");
    a.ip("route add 2001:db8::1/128 nexthop via fd09:1::2 nexthop via fd09:2::2");
    a.ip("route add 192.0.2.2/32 via 10.9.1.2 metric 1");
    a.ip("route add 192.0.2.2/32 via 10.9.2.2 metric 2");
    let watcher = watch(&a, &["p1", "p2"], WatchOptions::default());
    for destination in ["192.0.2.1", "2001:db8::1", "192.0.2.2"] {
        for plane in [1, 2] {
            let hop = NextHop::Resolved([2, 0, 0, 0, plane, 2]);
            wait_until(&format!("{destination} is resolved on port {plane}"), || {
                watcher.lookup(port(plane), destination.parse().unwrap()) == hop
            });
        }
    }
}

#[test]
fn a_destination_without_a_route_is_unreachable_until_there_is_one() {
    if !privileged("a_destination_without_a_route_is_unreachable_until_there_is_one") {
        return;
    }
    let (a, b) = pair();
    a.join(&b, "p2", 2, 1500);
    let watcher = watch(&a, &["p1", "p2"], WatchOptions::default());
    let no_route = NextHop::Unreachable(Unreachable::NoRoute);
    // Also when only another port has a route.
    a.ip("route add 192.0.2.1/32 via 10.9.2.2");
    a.ip("route add 2001:db8::1/128 via fd09:2::2");
    for destination in ["192.0.2.1", "2001:db8::1"] {
        becomes(&watcher, destination, no_route);
    }
    a.ip("route add 192.0.2.1/32 via 10.9.1.2 metric 9");
    a.ip("route add 2001:db8::1/128 via fd09:1::2 metric 9");
    for destination in ["192.0.2.1", "2001:db8::1"] {
        becomes(&watcher, destination, PEER);
    }
    a.ip("route del 192.0.2.1/32 via 10.9.1.2");
    a.ip("route del 2001:db8::1/128 via fd09:1::2");
    for destination in ["192.0.2.1", "2001:db8::1"] {
        becomes(&watcher, destination, no_route);
    }
}

#[test]
fn a_silent_neighbour_fails_and_comes_back_when_it_answers() {
    if !privileged("a_silent_neighbour_fails_and_comes_back_when_it_answers") {
        return;
    }
    let (a, b) = pair();
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    for destination in ["10.9.1.7", "fd09:1::7"] {
        assert_eq!(lookup(&watcher, destination), NextHop::Pending);
    }
    for destination in ["10.9.1.7", "fd09:1::7"] {
        becomes(&watcher, destination, failed(destination));
    }
    b.ip("addr add 10.9.1.7/24 dev p1");
    b.ip("addr add fd09:1::7/64 dev p1 nodad");
    for destination in ["10.9.1.7", "fd09:1::7"] {
        becomes(&watcher, destination, PEER);
    }
}

#[test]
fn a_link_that_bounces_and_a_peer_that_changes_its_mac_are_followed() {
    if !privileged("a_link_that_bounces_and_a_peer_that_changes_its_mac_are_followed") {
        return;
    }
    let (a, b) = pair();
    let watcher = watch(&a, &["p1"], WatchOptions::default());
    becomes(&watcher, "10.9.1.2", PEER);
    a.ip("link set p1 down");
    becomes(&watcher, "10.9.1.2", NextHop::Unreachable(Unreachable::LinkDown));
    a.ip("link set p1 up");
    becomes(&watcher, "10.9.1.2", PEER);
    b.ip("link set p1 address 02:00:00:00:01:42");
    a.ip("neigh flush dev p1");
    becomes(&watcher, "10.9.1.2", NextHop::Resolved([2, 0, 0, 0, 1, 0x42]));
}

#[test]
fn lost_events_are_made_good() {
    if !privileged("lost_events_are_made_good") {
        return;
    }
    let (a, _b) = pair();
    let watcher = watch(&a, &["p1"], WatchOptions { event_buffer: 1 });
    becomes(&watcher, "10.9.1.2", PEER);
    // Bursts that a small buffer hardly holds, each with something that matters at its end, until one was too much for it.
    for burst in 1..=50 {
        let script = format!(
            "for i in $(seq 1 40); do for j in $(seq 1 40); do echo neigh replace 10.9.1.$j lladdr 02:00:00:00:02:$(printf %02x $i) dev p1; done; done \
             | ip -batch - && ip neigh replace 10.9.1.2 lladdr 02:00:00:00:03:{burst:02x} dev p1"
        );
        let done = a.run(move || std::process::Command::new("sh").args(["-c", &script]).status().unwrap());
        assert!(done.success());
        becomes(&watcher, "10.9.1.2", NextHop::Resolved([2, 0, 0, 0, 3, burst]));
        if watcher.resyncs() > 0 {
            break;
        }
    }
    assert!(watcher.resyncs() > 0, "no event was lost: the test tests nothing");
}
