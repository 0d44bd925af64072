//! The faults of a scenario file.

use crate::fabric::FabricPlan;
use crate::fabric::clos::plan::Outage;
use crate::fabric::clos::topology::{Link, Place, Shape, Switch};
use crate::fabric::fault::{Fault, Kind, Nth, Scope};
use crate::host::explicit_ev;
use crate::rng::Rng;
use crate::run::file::{FileError, Section};
use crate::run::plan::Plan;
use crate::scenario::{ConnectionPlan, Happening};

const KINDS: [&str; 12] = [
    "loss",
    "burst",
    "duplicate",
    "reorder",
    "blackhole",
    "ce",
    "trim",
    "port_down",
    "link_down",
    "spine_down",
    "leaf_down",
    "stall",
];
/// Faults of frames that a fabric looks through for each frame.
const MOST: usize = 8192;
/// Longest time that an engine does nothing.
const LONGEST_STALL_NS: u64 = 1_000_000_000;

impl Plan {
    /// Plans a fault.
    pub(super) fn add_fault(&mut self, section: &Section<'_>, template: &ConnectionPlan) -> Result<(), FileError> {
        if !section.has("kind") {
            return Err(section.error("kind", format_args!("is missing: give one of {}", KINDS.join(", "))));
        }
        let kind = section.word("kind", &KINDS)?;
        let windows = windows(section)?;
        match kind {
            "port_down" => self.add_port_down(section, &windows),
            "stall" => self.add_stall(section, &windows),
            "link_down" | "spine_down" | "leaf_down" => self.add_outage(section, kind, &windows),
            _ => self.add_frame_fault(section, kind, template, &windows),
        }
    }

    fn plane(&self, section: &Section<'_>) -> Result<u8, FileError> {
        Ok(section.number("plane", 1..=self.scenario.planes.into(), 1)? as u8)
    }

    fn host(&self, section: &Section<'_>, key: &'static str) -> Result<usize, FileError> {
        Ok(section.number(key, 0..=self.scenario.hosts.len() as u64 - 1, 0)? as usize)
    }

    fn add_port_down(&mut self, section: &Section<'_>, windows: &[Window]) -> Result<(), FileError> {
        let (plane, host) = (self.plane(section)?, self.host(section, "host")?);
        let own_ns = section.number("own_us", 0..=10_000_000, 10)? * 1000;
        let peer_ns = section.number("peer_us", 0..=10_000_000, 100)? * 1000;
        for (at_ns, up) in windows
            .iter()
            .flat_map(|window| [(window.from_ns, false), (window.until_ns, true)])
        {
            let happening = Happening::Link {
                host,
                plane,
                up,
                own_ns,
                peer_ns,
            };
            if at_ns < u64::MAX {
                self.scenario.happenings.push((at_ns, happening));
            }
        }
        Ok(())
    }

    fn add_stall(&mut self, section: &Section<'_>, windows: &[Window]) -> Result<(), FileError> {
        let host = self.host(section, "host")?;
        for window in windows {
            let for_ns = window.until_ns - window.from_ns;
            if for_ns > LONGEST_STALL_NS {
                return Err(section.error(
                    "until_us",
                    "must be there, and at most 1000000 after from_us: a stall ends",
                ));
            }
            let happening = Happening::Stall { host, for_ns };
            self.scenario.happenings.push((window.from_ns, happening));
        }
        Ok(())
    }

    /// A part of the fabric swallows everything.
    fn add_outage(&mut self, section: &Section<'_>, kind: &str, windows: &[Window]) -> Result<(), FileError> {
        let FabricPlan::Clos(clos) = &self.scenario.fabric else {
            return Err(section.error("kind", NEEDS_SWITCHES));
        };
        let (plane, shape) = (self.plane(section)?, clos.shape);
        let place = if kind == "link_down" {
            let place = place(section, &shape, plane)?;
            let is_link = |place: &Place| matches!(place, Place::Link(_) | Place::Cable(_));
            place
                .filter(is_link)
                .ok_or_else(|| section.error("kind", "= \"link_down\" needs a link: give host, or leaf and spine"))?
        } else {
            let (what, count) = if kind == "leaf_down" {
                ("leaf", shape.leaves)
            } else {
                ("spine", shape.spines)
            };
            if count == 0 {
                return Err(section.error(
                    "kind",
                    format_args!("= \"{kind}\" needs a {what}, and fabric.spines is 0"),
                ));
            }
            let number = section.number("switch", 0..=count as u64 - 1, 0)? as usize;
            Place::Switch(if kind == "leaf_down" {
                Switch::Leaf { plane, leaf: number }
            } else {
                Switch::Spine { plane, spine: number }
            })
        };
        let reroute = section.has("reroute_us");
        let reroute_ns = section.number("reroute_us", 0..=100_000_000, 0)? * 1000;
        self.outages.extend(windows.iter().map(|window| Outage {
            place,
            from_ns: window.from_ns,
            until_ns: window.until_ns,
            reroute_ns: reroute.then_some(reroute_ns),
        }));
        Ok(())
    }

    /// Something happens to single frames.
    fn add_frame_fault(
        &mut self,
        section: &Section<'_>,
        kind: &str,
        template: &ConnectionPlan,
        windows: &[Window],
    ) -> Result<(), FileError> {
        let kind = frame_fault(section, kind)?;
        let given = self.plane(section)?;
        let on_plane = section.has("plane").then_some(given);
        let end = |key| Ok(section.has(key).then_some(self.host(section, key)?));
        let scope = Scope {
            plane: on_plane,
            src: end("from_host")?,
            dst: end("to_host")?,
            data: match section.word("packets", &["all", "data", "control"])? {
                "data" => Some(true),
                "control" => Some(false),
                _ => None,
            },
            nth: nth(section)?,
            ..Scope::default()
        };
        let planes = on_plane.map_or(1..=self.scenario.planes, |plane| plane..=plane);
        let mut scopes = Vec::new();
        match &self.scenario.fabric {
            FabricPlan::Clos(clos) => {
                let shape = clos.shape;
                for plane in planes.clone() {
                    if let Some(place) = place(section, &shape, plane)? {
                        scopes.push(Scope {
                            plane: Some(plane),
                            place: Some(place),
                            ..scope
                        });
                    }
                }
            }
            FabricPlan::Delay(_) => {
                if let Some(key) = PLACE_KEYS.into_iter().find(|key| section.has(key)) {
                    return Err(section.error(key, NEEDS_SWITCHES));
                }
            }
        }
        let mut scopes = if scopes.is_empty() { vec![scope] } else { scopes };
        let share = section.fraction("paths", 0.0..=1.0)?;
        let each = section.number("paths_per_plane", 0..=template.evs_per_plane.into(), 0)?;
        let count = match share {
            Some(share) => (share * f64::from(template.evs_per_plane)).round() as u64,
            None => each,
        };
        if count == 0 && (share.is_some() || section.has("paths_per_plane")) {
            let key = if share.is_some() { "paths" } else { "paths_per_plane" };
            return Err(section.error(key, "leaves no path: give more, or leave it out for all paths"));
        }
        if count > 0 {
            let mut rng = Rng::new(self.scenario.seed, "bad paths");
            let mut of_paths = Vec::new();
            for plane in planes {
                let mut indices: Vec<u16> = (0..template.evs_per_plane).collect();
                for _ in 0..count {
                    let index = indices.swap_remove(rng.below(indices.len() as u64) as usize);
                    let ev = explicit_ev(self.scenario.format, plane, index);
                    self.bad_paths.push((ev, plane, windows[0].from_ns));
                    let on = scopes
                        .iter()
                        .filter(|scope| scope.plane.is_none_or(|other| other == plane));
                    of_paths.extend(on.map(|scope| Scope {
                        ev: Some(ev),
                        plane: Some(plane),
                        ..*scope
                    }));
                }
            }
            scopes = of_paths;
        }
        let all = self.scenario.faults.len() + scopes.len() * windows.len();
        if all > MOST {
            return Err(section.error(
                "kind",
                format_args!(
                    "makes it {all} faults of single paths and times, of {MOST} at most: take fewer paths or times"
                ),
            ));
        }
        for window in windows {
            self.scenario.faults.extend(scopes.iter().map(|scope| Fault {
                kind,
                scope: *scope,
                from_ns: window.from_ns,
                until_ns: window.until_ns,
            }));
        }
        Ok(())
    }
}

const NEEDS_SWITCHES: &str = "needs switches: set fabric.kind = \"clos\"";
const PLACE_KEYS: [&str; 4] = ["host", "leaf", "spine", "way"];

/// A link, by the host below it or the switches at its ends, or a switch.
fn place(section: &Section<'_>, shape: &Shape, plane: u8) -> Result<Option<Place>, FileError> {
    let number = |key, count: usize| -> Result<Option<usize>, FileError> {
        let has = section.has(key);
        if has && count == 0 {
            return Err(section.error(key, "is not there: the fabric has none"));
        }
        let number = section.number(key, 0..=count.max(1) as u64 - 1, 0)? as usize;
        Ok(has.then_some(number))
    };
    let host = number("host", shape.hosts())?;
    let leaf = number("leaf", shape.leaves)?;
    let spine = number("spine", shape.spines)?;
    let way = section.word("way", &["both", "up", "down"])?;
    let link = match (host, leaf, spine) {
        (Some(host), None, None) => Link::HostUp { plane, host },
        (None, Some(leaf), Some(spine)) => Link::SpineUp { plane, leaf, spine },
        (Some(_), _, _) => return Err(section.error("host", "names a link by itself: leave leaf and spine out")),
        _ if section.has("way") => {
            return Err(section.error("way", "is a way of a link: give host, or leaf and spine"));
        }
        (None, Some(leaf), None) => return Ok(Some(Place::Switch(Switch::Leaf { plane, leaf }))),
        (None, None, Some(spine)) => return Ok(Some(Place::Switch(Switch::Spine { plane, spine }))),
        (None, None, None) => return Ok(None),
    };
    Ok(Some(match way {
        "up" => Place::Link(link),
        "down" => Place::Link(link.reverse()),
        _ => Place::Cable(link),
    }))
}

fn frame_fault(section: &Section<'_>, kind: &str) -> Result<Kind, FileError> {
    if kind == "blackhole" {
        return Ok(Kind::Blackhole);
    }
    let ppm = section
        .fraction("percent", 0.0..=100.0)?
        .map_or(1_000_000, |percent| (percent * 10_000.0).round() as u32);
    let within_ns = || -> Result<u64, FileError> {
        let within_us = section.fraction("within_us", 0.001..=1e6)?.unwrap_or(10.0);
        Ok((within_us * 1000.0) as u64)
    };
    Ok(match kind {
        "loss" => Kind::Loss { ppm },
        "burst" => Kind::Burst {
            enter_ppm: ppm,
            within_ns: within_ns()?,
        },
        "duplicate" => Kind::Duplicate {
            ppm,
            within_ns: within_ns()?,
        },
        "reorder" => Kind::Jitter {
            ppm,
            within_ns: within_ns()?,
        },
        "ce" => Kind::CeMark { ppm },
        _ => Kind::Trim {
            ppm,
            last_hop: section.flag("last_hop", false)?,
        },
    })
}

/// Only some of the frames, by number.
fn nth(section: &Section<'_>) -> Result<Option<Nth>, FileError> {
    let many = 1 << 40;
    let nth = Nth {
        first: section.number("nth", 1..=many, 1)?,
        count: section.number("count", 1..=many, 1)?,
    };
    match (section.has("nth"), section.has("count")) {
        (true, _) => Ok(Some(nth)),
        (false, true) => Err(section.error("count", "counts from the packet nth on: give nth too")),
        (false, false) => Ok(None),
    }
}

/// When a fault is there.
#[derive(Debug, Clone, Copy)]
struct Window {
    from_ns: u64,
    until_ns: u64,
}

/// All times of a fault: one, or several that follow each other.
fn windows(section: &Section<'_>) -> Result<Vec<Window>, FileError> {
    let instant = |key| -> Result<Option<u64>, FileError> {
        let us = section.fraction(key, 0.0..=1e9)?;
        Ok(us.map(|us| (us * 1000.0) as u64))
    };
    let from_ns = instant("from_us")?.unwrap_or(0);
    let until = instant("until_us")?;
    let until_ns = until.unwrap_or(u64::MAX);
    if until_ns <= from_ns {
        return Err(section.error("until_us", "is not after from_us: give a later instant, or none"));
    }
    let every = instant("every_us")?;
    let times = section.number("times", 1..=10_000, 10)?;
    let Some(every_ns) = every else {
        if section.has("times") {
            return Err(section.error("times", "is of what comes again: give every_us too"));
        }
        return Ok(vec![Window { from_ns, until_ns }]);
    };
    if until.is_none() {
        return Err(section.error("until_us", "is missing: what comes again (every_us) has to end first"));
    }
    if every_ns <= until_ns - from_ns {
        let lasts_us = (until_ns - from_ns) as f64 / 1000.0;
        return Err(section.error(
            "every_us",
            format_args!("is not more than the {lasts_us} us that it lasts: give more"),
        ));
    }
    let window = |time: u64| Window {
        from_ns: from_ns + time * every_ns,
        until_ns: until_ns + time * every_ns,
    };
    Ok((0..times).map(window).collect())
}
