//! Controllers: the EV profiles of queue pairs, what is done with them during a run, and what is heard of their paths
//! (protocol.md §7.1, §8.2).

use crate::ensure;
use crate::host::Host;
use crate::oracle::{Breach, Checked, Oracle};
use crate::scenario::profiles::{Command, ProfilePlan, Tags};
use crate::scenario::{ConnectionPlan, Format, Scenario};
use crate::world::World;
use mrc_protocol::profile::{
    Binding, EntryState, EvChange, EvMode, EvOp, EvValue, EventMask, FormatChange, FormatField, FormatMode, Limits,
    PortEv, ProfileError, ProfileField, ProfileState, Profiles, Replace, SetState, Touched,
};
use mrc_protocol::{Cx, EvState, Instant, NoMemory, PathConfig, Qp, QpState};
use mrc_wire::{EvLayout, PortNum, PortSet};

const ID: u64 = 7;

/// A queue pair's profile, and the oracle's account of it.
#[derive(Debug)]
pub(crate) struct ProfileUse {
    profiles: Profiles,
    binding: Option<Binding>,
    /// What was set last, by entry.
    set: Vec<EntryState>,
    plan: ProfilePlan,
    replaced: u32,
    times_regenerated: u32,
}

fn refused(error: ProfileError) -> String {
    format!("the controller is refused: {error}")
}

fn widths(tags: Tags) -> &'static [u8] {
    match tags {
        Tags::Udp => &[16],
        Tags::Stev => &[16, 16],
        Tags::Srv6 => &[32, 16, 16, 16, 16],
        Tags::Srv6Srh => &[32, 32, 32, 32, 32],
    }
}

/// An EV that no other entry has.
fn explicit(tags: Tags, port: PortNum, number: u32) -> PortEv {
    let low = (0xC000 + u32::from(port.get()) * 0x400 + number) as u16;
    let [high, rest] = low.to_be_bytes();
    let index = number as u8;
    let bytes: &[u8] = match tags {
        Tags::Udp => &[high, rest],
        Tags::Stev => &[0, index.wrapping_add(1), high, rest],
        Tags::Srv6 => &[0x5f, 0, 0, port.get(), high, rest],
        Tags::Srv6Srh => &[
            0x5f,
            0,
            0,
            port.get(),
            high,
            rest,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0x5f,
            0,
            high,
            rest,
        ],
    };
    let value = EvValue::left_aligned(bytes).unwrap_or_default();
    PortEv { value, port }
}

fn masked(width: u8, init_val: u32, mask: u32) -> ProfileField {
    ProfileField {
        width: width.into(),
        init_val,
        min_val: 0,
        max_val: 0,
        mask,
    }
}

/// Fields of GENERATED; `round` makes the fixed bits others.
fn fields(tags: Tags, round: u32) -> Vec<ProfileField> {
    let fixed = 0x80 | round << 8 & 0x300;
    match tags {
        Tags::Udp => vec![masked(16, 0xC000, 0x3fff & !(0x800 << (round % 2)))],
        Tags::Stev => vec![masked(16, fixed, 0x7f), masked(16, 0xC000, 0x3fff)],
        Tags::Srv6 | Tags::Srv6Srh => {
            let mut fields = vec![masked(32, 0x5f00_0002, 0)];
            fields.extend(widths(tags).iter().skip(1).map(|width| masked(*width, fixed, 0x7f)));
            fields
        }
    }
}

impl ProfileUse {
    /// The profile of a connection's queue pair, ONLINE.
    pub(crate) fn new(
        plan: &ConnectionPlan,
        profile: ProfilePlan,
        planes: u8,
        seed: [u8; 32],
    ) -> Result<ProfileUse, String> {
        let ports = PortSet::first(planes);
        let mut profiles = Profiles::new(Limits::new(ports), seed);
        let format: Vec<FormatField> = widths(profile.tags)
            .iter()
            .map(|width| FormatField::new(*width))
            .collect();
        let mode = match profile.tags {
            Tags::Udp => FormatMode::Udp,
            Tags::Stev => FormatMode::Stev,
            Tags::Srv6 | Tags::Srv6Srh => FormatMode::Srv6,
        };
        for (state, fields, mode) in [
            (ProfileState::Offline, Some(&format[..]), Some(mode)),
            (ProfileState::Online, None, None),
        ] {
            let change = FormatChange {
                state: Some(state),
                mode,
                fields,
                ..FormatChange::default()
            };
            profiles.modify_format(1, &change).map_err(refused)?;
        }
        let count = u32::from(plan.evs_per_plane) * u32::from(planes);
        let evs = ports
            .iter()
            .flat_map(|port| (0..plan.evs_per_plane).map(move |index| explicit(profile.tags, port, index.into())));
        let list: Vec<Replace> = evs
            .map(|ev| Replace {
                old: None,
                new: Some(ev),
                state: EntryState::Good,
                all_copies: false,
            })
            .collect();
        let generated = profile.generated.then(|| fields(profile.tags, 0));
        let offline = EvChange {
            state: Some(ProfileState::Offline),
            mode: Some(if profile.generated {
                EvMode::Generated
            } else {
                EvMode::Explicit
            }),
            format_id: Some(1),
            count: Some(count),
            fields: generated.as_deref(),
            min_active: Some(u32::from(plan.ev_min_active) * u32::from(planes)),
            event_mask: Some(EventMask {
                good: true,
                assumed_bad: true,
            }),
            entries: (!profile.generated).then_some(EvOp::Replace(&list)),
            ..EvChange::default()
        };
        let online = EvChange {
            state: Some(ProfileState::Online),
            ..EvChange::default()
        };
        profiles.modify(ID, &offline).map_err(refused)?;
        profiles.modify(ID, &online).map_err(refused)?;
        Ok(ProfileUse {
            profiles,
            binding: None,
            set: vec![EntryState::Good; count as usize],
            plan: profile,
            replaced: 0,
            times_regenerated: 0,
        })
    }

    /// What the queue pair is made of.
    pub(crate) fn paths(&self, scenario: &Scenario, plan: &ConnectionPlan) -> Result<PathConfig, String> {
        let profile = self.profiles.ev(ID).ok_or("the profile is gone")?;
        let config = PathConfig::profile(profile, PortSet::first(scenario.planes), EvLayout::FlowHigh);
        let v4 = scenario.format == Format::BytesV4;
        Ok(PathConfig {
            active: Some(plan.active_per_plane * u16::from(scenario.planes)),
            fabric_trims: plan.fabric_trims,
            ev_mask: if v4 { 0xffff } else { config.ev_mask },
            ..config
        })
    }

    /// The queue pair goes to INIT.
    pub(crate) fn bind(&mut self) -> Result<(), String> {
        self.binding = Some(self.profiles.bind(ID).map_err(refused)?);
        Ok(())
    }

    /// The queue pair goes to RESET.
    pub(crate) fn unbind(&mut self, name: &str) -> Checked {
        if let Some(binding) = self.binding.take() {
            self.changing(name, false, |control| control.profiles.unbind(binding))?;
        }
        Ok(())
    }

    fn states(&self) -> Vec<(Option<PortEv>, Option<EntryState>)> {
        self.profiles
            .ev(ID)
            .map_or_else(Vec::new, |profile| profile.entries().collect())
    }

    /// Changes something, and judges the events that come of it: one for each entry that came to a state in the mask.
    fn changing<T>(
        &mut self,
        name: &str,
        rearranges: bool,
        change: impl FnOnce(&mut ProfileUse) -> T,
    ) -> Result<T, Breach> {
        let before = self.states();
        let result = change(self);
        let after = self.states();
        let mut expected = Vec::new();
        for (before, after) in before.iter().zip(&after) {
            if let (Some(ev), Some(state)) = after
                && before.1 != after.1
                && *state != EntryState::Denied
                && !rearranges
            {
                expected.push((*ev, *state));
            }
        }
        let events = std::iter::from_fn(|| self.profiles.poll_event());
        let mut seen: Vec<(PortEv, EntryState)> = events.map(|event| (event.ev, event.state)).collect();
        let key = |(ev, state): &(PortEv, EntryState)| (*ev, *state as u8);
        seen.sort_by_key(key);
        expected.sort_by_key(key);
        ensure!(
            seen == expected,
            Oracle::Path,
            "{name}: events {seen:?} of a profile, of which {expected:?} changed"
        );
        Ok(result)
    }

    fn apply(&mut self, command: Command) -> Result<Touched, ProfileError> {
        let states = self.states();
        let count = states.len() as u32;
        let ev = |index: u32| states.get((index % count.max(1)) as usize).and_then(|entry| entry.0);
        let set = |ev: PortEv, state, all_copies| SetState { ev, state, all_copies };
        let list: Vec<SetState> = match command {
            Command::Deny {
                pick,
                count: some,
                all_copies,
            } => {
                let chosen = (0..some.min(count)).filter_map(|at| ev((pick % count).wrapping_add(at)));
                chosen.map(|ev| set(ev, EntryState::Denied, all_copies)).collect()
            }
            Command::Banish { pick } => ev(pick)
                .map(|ev| set(ev, EntryState::AssumedBad, true))
                .into_iter()
                .collect(),
            Command::Allow { pick } => ev(pick).map(|ev| set(ev, EntryState::Good, true)).into_iter().collect(),
            Command::AllowAll => {
                let denied = states.iter().filter(|entry| entry.1 == Some(EntryState::Denied));
                denied
                    .filter_map(|entry| Some(set(entry.0?, EntryState::Good, true)))
                    .collect()
            }
            Command::Replace { pick, plane } => {
                self.replaced += 1;
                let port = PortNum::new(plane).or(ev(pick).map(|ev| ev.port));
                let new = port.map(|port| explicit(self.plan.tags, port, 100 + self.replaced));
                let list = [Replace {
                    old: ev(pick),
                    new,
                    state: EntryState::Good,
                    all_copies: false,
                }];
                return self.modify(EvOp::Replace(&list));
            }
            Command::Regenerate => {
                self.times_regenerated += 1;
                let fields = fields(self.plan.tags, self.times_regenerated);
                let change = EvChange {
                    fields: Some(&fields),
                    ..EvChange::default()
                };
                return self.profiles.modify(ID, &change);
            }
        };
        if list.is_empty() {
            return Ok(Touched::Nothing);
        }
        self.modify(EvOp::SetState(&list))
    }

    fn modify(&mut self, op: EvOp<'_>) -> Result<Touched, ProfileError> {
        let change = EvChange {
            entries: Some(op),
            ..EvChange::default()
        };
        self.profiles.modify(ID, &change)
    }

    /// The profile shows what the controller has said, or else what the queue pair has found (api.md §4.7); and the queue pair has
    /// the profile's paths, and uses none that is DENIED.
    fn judge(&self, name: &str, qp: &Qp) -> Checked {
        let Some(profile) = self.profiles.ev(ID) else {
            return Ok(());
        };
        let states = self.states();
        let mut bad: Vec<PortEv> = Vec::new();
        for (at, view) in qp.ev_states().enumerate() {
            let path = profile.path(at as u32, EvLayout::FlowHigh);
            ensure!(
                path.is_some_and(|path| (path.tag, path.port) == (view.entry.ev, view.entry.port)
                    && path.encap == qp.encap(at as u16)),
                Oracle::Path,
                "{name}: entry {at} of the profile is {path:?}, that of the queue pair {view:?}"
            );
            let denied = self.set[at] == EntryState::Denied;
            ensure!(
                denied == (view.state == EvState::Denied) && !(denied && view.active),
                Oracle::Path,
                "{name}: the controller has set {:?}: {view:?}",
                self.set[at]
            );
            if view.state == EvState::AssumedBad {
                bad.extend(states[at].0);
            }
        }
        for (at, (ev, state)) in states.iter().enumerate() {
            let failed = ev.is_some_and(|ev| bad.contains(&ev));
            let expected = match self.set[at] {
                EntryState::Good if failed => EntryState::AssumedBad,
                set => set,
            };
            ensure!(
                *state == Some(expected),
                Oracle::Path,
                "{name}: entry {at} of the profile is {state:?}, expected {expected:?}: set {:?}, failed {failed}",
                self.set[at]
            );
        }
        Ok(())
    }
}

impl World {
    /// A controller does something with the profile of a queue pair.
    pub(crate) fn control(&mut self, connection: usize, side: usize, command: Command) -> Checked {
        let plan = &self.scenario.connections[connection];
        let index = plan.hosts[side];
        if self.hosts[index].gone {
            return Ok(());
        }
        let Host {
            qps,
            qpccs,
            stall,
            mood,
            ..
        } = &mut self.hosts[index];
        let now = Instant(mood.clock_ns(self.now_ns));
        let found = qps
            .iter_mut()
            .find(|slot| (slot.connection, slot.side) == (connection, side));
        let Some(slot) = found else { return Ok(()) };
        let name = format!("c{connection}.{side}");
        let Some(control) = &mut slot.control else {
            return Ok(());
        };
        let touched = control.changing(&name, command == Command::Regenerate, |control| control.apply(command))?;
        let touched = touched.map_err(|error| Breach(Oracle::State, format!("{name}: {command:?}: {error}")))?;
        let mut cx = Cx {
            now,
            cc: &mut qpccs[slot.qpcc],
            memory: &mut NoMemory,
            stall: *stall,
        };
        let flight = &mut self.flows[connection][side].flight;
        let entries = match (touched, command) {
            (Touched::All, Command::Regenerate) => {
                control.set.fill(EntryState::Good);
                let config = control
                    .paths(&self.scenario, plan)
                    .map_err(|detail| Breach(Oracle::State, detail))?;
                let done = if slot.qp.state() == QpState::Reset {
                    slot.qp.handle_universe(&config)
                } else {
                    slot.qp.handle_regenerated(&mut cx, &config)
                };
                done.map_err(|error| Breach(Oracle::State, format!("{name}: {error}")))?;
                flight.withdraw(|_| false);
                slot.probed_ns = None;
                self.coverage.rule("§7.1 profile is regenerated under a queue pair", 1);
                Vec::new()
            }
            // So many that they were not listed.
            (Touched::All, _) => (0..control.set.len() as u32).collect(),
            (Touched::Entries(entries), _) => entries,
            (Touched::Nothing, _) => Vec::new(),
        };
        for entry in entries {
            let new = control
                .profiles
                .ev(ID)
                .and_then(|profile| profile.path(entry, EvLayout::FlowHigh));
            let Some(new) = new else { continue };
            let before = slot.qp.ev_states().nth(entry as usize);
            let before_encap = slot.qp.encap(entry as u16);
            control.set[entry as usize] = new.state;
            let known = slot.qp.handle_entry(&mut cx, &new);
            ensure!(known, Oracle::Path, "{name}: it does not have entry {entry}");
            let exchanged = before.filter(|before| {
                (before.entry.ev, before.entry.port) != (new.tag, new.port) || before_encap != new.encap
            });
            if let Some(before) = exchanged {
                flight.withdraw_path((before.entry.ev.0, before.entry.port.get()));
                self.coverage.rule("§7.1 entry is exchanged under a queue pair", 1);
            }
        }
        slot.balance.give_up();
        self.hosts[index].effort.causes += 1;
        self.hear_paths(index)?;
        self.wake(index, self.now_ns);
        Ok(())
    }

    /// Profiles hear what the queue pairs of a host have found out about their paths.
    pub(crate) fn hear_paths(&mut self, index: usize) -> Checked {
        for slot in &mut self.hosts[index].qps {
            let Some(control) = &mut slot.control else { continue };
            let name = format!("c{}.{}", slot.connection, slot.side);
            let mut news = false;
            while let Some((entry, bad)) = slot.qp.poll_path_report() {
                news = true;
                control.changing(&name, false, |control| {
                    if let Some(binding) = &mut control.binding {
                        control.profiles.handle_path(binding, entry, bad);
                    }
                })?;
                self.coverage.rule(
                    if bad {
                        "§7.1 profile hears of a bad path"
                    } else {
                        "§7.1 profile hears of a good path"
                    },
                    1,
                );
            }
            if (news || self.turns.is_multiple_of(64)) && control.binding.is_some() {
                control.judge(&name, &slot.qp)?;
            }
        }
        Ok(())
    }
}
