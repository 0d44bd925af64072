//! What joins a queue pair to its peer, its window and its paths, on its engine thread.

use mrc_protocol::profile::ProfileEv;
use mrc_protocol::{Instant, RtrAttr};
use mrc_wire::PortSet;

use super::core::Core;
use super::flow::Way;
use super::job::Wiring;
use super::qp::Connection;
use crate::profile::CcPlan;

impl Core {
    /// The window of a queue pair towards a peer.
    pub(super) fn join_flow(&mut self, peer: u32, key: u32, attr: &RtrAttr, plan: &CcPlan, now: Instant) -> u32 {
        let ports = self.peers.get(peer).map_or(PortSet::EMPTY, |peer| peer.hopeful);
        let way = Way {
            speeds: self.speeds.clone(),
            ports: self.up.intersection(ports),
            pmtu: attr.pmtu,
            trimming: self.config.fabric_trims && attr.peer.trim_nack,
            packets_per_port: self.config.window_packets,
            host_rtt_ns: self.config.host_rtt_ns,
        };
        self.flows.join(peer, key, plan, &way, now)
    }

    /// The queue pair may send from now on.
    pub(super) fn connect(&mut self, key: u32, connection: Connection, wiring: &Wiring, now: Instant) {
        self.announce_ports(now);
        if let Some(Some(slot)) = self.qps.get_mut(key as usize) {
            slot.connection = Some(connection);
            slot.ports = (PortSet::EMPTY, PortSet::EMPTY);
            if let Some(peer) = self.peers.get_mut(connection.peer)
                && wiring.of_profile
            {
                peer.outer_source = wiring.outer_source;
                peer.set_ways(slot.ways());
            }
        }
        self.tell_ports(key, now);
    }

    /// A controller has changed entries of its profile (api.md §4.8).
    pub(super) fn change_entries(&mut self, key: u32, entries: &[ProfileEv], now: Instant) {
        self.with_qp(key, now, |slot, cx| {
            slot.forget_tunnels();
            for entry in entries {
                slot.qp.handle_entry(cx, entry);
            }
        });
    }

    /// What these queue pairs have found out about the paths of their profiles since they were asked last.
    pub(super) fn path_reports(&mut self, keys: &[u32]) -> Vec<(u32, u32, bool)> {
        let mut reports = Vec::new();
        for &key in keys {
            if let Some(Some(slot)) = self.qps.get_mut(key as usize) {
                while let Some((entry, bad)) = slot.qp.poll_path_report() {
                    reports.push((key, entry, bad));
                }
            }
        }
        reports
    }
}
