//! What the run needs to know of its fabric: its shape, and captures of it.

use std::collections::BTreeMap;
use std::path::Path;

use netns_lab::plan::Role;
use netns_lab::{Capture, Lab};

use super::RunError;
use super::record::{Cable, Shape};
use crate::scenario::Scenario;

/// Nodes, links and paths of the fabric, and what will break.
pub(super) fn shape(lab: &Lab, scenario: &Scenario) -> Shape {
    let plan = lab.plan();
    let breaks = |name: &str| {
        let mut faults = scenario.timeline.iter().flat_map(|moment| &moment.fault);
        faults.any(|fault| fault.is_at(name))
    };
    let cable = |link: &netns_lab::plan::Link| {
        let [a, b] = link.ends.map(|end| &plan.nodes[end.node].name);
        Cable {
            ends: [a.clone(), b.clone()],
            plane: plan.interface(link.ends[0]).plane.unwrap_or(0),
            broke: breaks(&plan.link_name(link)),
        }
    };
    let nodes: Vec<String> = plan
        .nodes
        .iter()
        .filter(|node| node.role != Role::Management)
        .map(|node| node.name.clone())
        .collect();
    let hosts = plan.topology.hosts;
    let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
    let ways = |(from, to)| {
        let ways = lab.paths(from, to).into_iter().map(|path| {
            let hops = path.hops.iter().zip(&path.links);
            let at_switches = hops.filter(|(end, _)| plan.nodes[end.node].role == Role::Switch);
            let hops = at_switches.map(|(end, link)| (plan.nodes[end.node].name.clone(), link.clone()));
            (path.name.clone(), hops.collect())
        });
        ((from, to), ways.collect::<BTreeMap<_, _>>())
    };
    Shape {
        broken_nodes: nodes.iter().filter(|node| breaks(node)).cloned().collect(),
        links: plan.fabric_links().map(cable).collect(),
        paths: pairs.map(ways).collect(),
        nodes,
    }
}

/// Records at the first switch port that each of host 0's ports leads to.
pub(super) fn capture(lab: &Lab, directory: &Path) -> Result<Vec<Capture>, RunError> {
    let mut captures = Vec::new();
    for node in lab.plan().nodes.iter().filter(|node| node.role == Role::Switch) {
        for interface in node.interfaces.iter().filter(|interface| interface.name == "h0") {
            let file = directory.join(format!("{}-{}.pcap", node.name, interface.name));
            captures.push(lab.node(&node.name)?.capture(&interface.name, &file, "")?);
        }
    }
    Ok(captures)
}
