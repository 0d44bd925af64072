//! Two queue pairs and a network between them: everything may be called in any order and anything may arrive
//! (protocol.md §14).

mod end;
mod foul;
mod setup;

use mrc_protocol::{AccessError, Instant, ModifyAttr, Qp, SendRequest, Shortage, Status};
use mrc_wire::{Condition, PortSet};

use self::end::{BASE, End, R_KEY, REGION, Wire, byte};
use self::setup::{Setup, entry, port, retry};
use crate::draw::Draw;

const QPNS: [u32; 2] = [0xa, 0xb];
/// Packets that the network holds; more are lost.
const NETWORK: usize = 600;
/// Calls from one input, so that none takes for ever.
const STEPS: usize = 1500;

/// Both ends and the packets between them.
struct World<'a> {
    draw: Draw<'a>,
    setup: Setup,
    ends: [End; 2],
    /// With the end to which they go.
    network: Vec<(usize, Wire)>,
    /// The first byte of each end's region that nobody was told to write to.
    next_place: [usize; 2],
    /// Nothing has happened so far that may change data on its way.
    honest: bool,
    /// Are there packets that no peer would send?
    foul: bool,
    /// Do queue pairs end before the run does?
    deaths: bool,
}

pub(crate) fn target(data: &[u8]) {
    run(data);
}

/// How many requests were seen to succeed, and whether their data could be judged.
fn run(data: &[u8]) -> (usize, bool) {
    let mut draw = Draw::new(data);
    // Who is always attacked never gets far.
    let (foul, deaths) = draw.pick(&[
        (false, false),
        (false, false),
        (false, true),
        (true, true),
        (true, true),
    ]);
    let setup = Setup::draw(&mut draw);
    let first_psn = first_psn(&mut draw);
    let mut ends = QPNS.map(|qpn| End::new(&setup, qpn));
    for (end, peer) in ends.iter_mut().zip(QPNS.iter().rev()) {
        setup.connect(end, *peer, first_psn, true);
    }
    let mut world = World {
        draw,
        setup,
        ends,
        network: Vec::new(),
        next_place: [0; 2],
        honest: true,
        foul,
        deaths,
    };
    for _ in 0..STEPS {
        if world.draw.is_empty() {
            break;
        }
        world.step();
        world.network.truncate(NETWORK);
        for end in &mut world.ends {
            end.check();
        }
    }
    world.judge();
    let succeeded = world.ends.iter().map(|end| end.written.len()).sum();
    for end in &mut world.ends {
        end.finish();
    }
    (succeeded, world.honest)
}

fn first_psn(draw: &mut Draw<'_>) -> u32 {
    let any: u32 = draw.any();
    draw.pick(&[0, 0x00ff_ffc0, any])
}

impl World<'_> {
    fn step(&mut self) {
        let at = usize::from(self.draw.any::<bool>());
        match self.draw.below(32) {
            0..=3 => self.post(at),
            4 | 5 => self.ends[at].post_recv(),
            6..=10 => self.poll(at),
            11..=18 => self.deliver(),
            20 | 21 => {
                let ns = self.draw.pick(&[1_000, 30_000, 1_000_000, 20_000_000]);
                let ns = u64::from(self.draw.below(ns));
                for end in &mut self.ends {
                    end.advance(ns);
                }
            }
            22 | 23 => self.harm(),
            24..=26 => self.surroundings(at),
            27 => self.controller(at),
            28..=30 if self.foul => foul::step(self, at),
            31 if self.deaths => self.life(at),
            _ => self.talk(),
        }
    }

    fn post(&mut self, at: usize) {
        let draw = &mut self.draw;
        let len = match draw.below(8) {
            0 if self.foul => draw.magnitude() as u32,
            1 | 2 => draw.below(16_000),
            _ => draw.below(1500),
        };
        let end = self.next_place[1 - at] + len as usize;
        let alone = end <= REGION && draw.below(8) != 7;
        let remote_addr = if alone {
            BASE + self.next_place[1 - at] as u64
        } else if !self.foul {
            return;
        } else {
            // Where others write too, or nobody may.
            self.honest = false;
            BASE.wrapping_add(draw.magnitude())
        };
        let request = SendRequest {
            wr_id: 0,
            slot: 0,
            len,
            remote_addr,
            r_key: R_KEY ^ u32::from(self.foul && draw.below(32) == 31),
            imm: draw.maybe(Draw::any),
            solicited: draw.any(),
            signaled: true,
        };
        if self.ends[at].post(request, alone) && alone {
            self.next_place[1 - at] = end;
        }
    }

    fn poll(&mut self, at: usize) {
        let room = PortSet::from_bits(if self.draw.any() { !0 } else { self.draw.any() });
        let most = self.draw.pick(&[1, 8, 700]);
        for _ in 0..most {
            let Some(wire) = self.ends[at].poll(room) else { return };
            self.network.push((1 - at, wire));
        }
        assert!(most < 700, "packets without end");
    }

    fn take(&mut self) -> Option<(usize, Wire)> {
        let last = self.network.len().checked_sub(1)?;
        // Mostly the oldest, so that a network which only waits is a network in order.
        let index = if self.draw.any() {
            0
        } else {
            self.draw.below(last as u32 + 1) as usize
        };
        Some(self.network.remove(index))
    }

    fn deliver(&mut self) {
        let count = self.draw.pick(&[1, 4, 32]);
        for _ in 0..count {
            let Some((to, wire)) = self.take() else { break };
            let port = wire.sent.port;
            self.ends[to].receive(&wire, port);
        }
        for end in &mut self.ends {
            end.qp.end_of_batch(end.now);
        }
    }

    /// A network that does what it should, for a round trip.
    fn talk(&mut self) {
        for at in 0..2 {
            for _ in 0..64 {
                let Some(wire) = self.ends[at].poll(PortSet::first(31)) else {
                    break;
                };
                self.network.push((1 - at, wire));
            }
        }
        for end in &mut self.ends {
            end.advance(10_000);
        }
        for (to, wire) in std::mem::take(&mut self.network) {
            let port = wire.sent.port;
            self.ends[to].receive(&wire, port);
        }
        for end in &mut self.ends {
            end.qp.end_of_batch(end.now);
        }
    }

    /// What networks do to packets without meaning it.
    fn harm(&mut self) {
        let Some((to, mut wire)) = self.take() else { return };
        match self.draw.below(6) {
            0 => return,
            1 => self.network.push((to, wire.clone())),
            2 => wire.ce = true,
            3 if wire.sent.bth.opcode.is_write() => {
                let last_hop = self.draw.any();
                wire.condition = Condition::Trimmed { last_hop };
            }
            4 => {
                let from = &mut self.ends[1 - to];
                // It never left, and must not arrive.
                if wire.life == Some(from.life) {
                    from.cx(|qp, cx| qp.handle_unsent(cx, &wire.sent));
                }
                return;
            }
            5 => {
                let shortage = self.shortage();
                let end = &mut self.ends[to];
                end.qp.handle_refused(end.now, &wire.packet(), shortage);
                end.qp.end_of_batch(end.now);
                return;
            }
            _ => {}
        }
        self.network.push((to, wire));
    }

    fn shortage(&mut self) -> Shortage {
        self.draw
            .pick(&[Shortage::Bitmap, Shortage::PacketBuffer, Shortage::Other])
    }

    /// Ports, memory, windows, speed, clocks.
    fn surroundings(&mut self, at: usize) {
        match self.draw.below(8) {
            0 | 1 => {
                let (local, peer) = if self.draw.any() {
                    (PortSet::first(31), PortSet::first(31))
                } else {
                    (PortSet::from_bits(self.draw.any()), PortSet::from_bits(self.draw.any()))
                };
                let end = &mut self.ends[at];
                end.local_up = local;
                end.cx(|qp, cx| qp.handle_ports(cx, local, peer));
            }
            2 => {
                let shortage = self.shortage();
                let busy = (self.draw.any(), AccessError::Busy(shortage));
                self.ends[at].region.trouble = self.draw.any::<bool>().then_some(busy);
            }
            3 => drop(self.ends[at].qp.handle_window(self.draw.below(6) as u8)),
            4 => {
                let (used, capacity) = (self.draw.magnitude() as u32, self.draw.magnitude() as u32);
                self.ends[at].qp.handle_pressure(used, capacity);
            }
            5 => self.ends[at].cc.set_link_bps(self.draw.magnitude()),
            6 => {
                let retry = self.draw.maybe(retry);
                let remote_write = self.draw.maybe(|draw| draw.below(4) != 3);
                let end = &mut self.ends[at];
                if end.qp.handle_modify(&ModifyAttr { remote_write, retry }).is_ok() {
                    end.remote_write = remote_write.unwrap_or(end.remote_write);
                }
            }
            _ => {
                // Two hundred years at most: a clock that stops at its end is no clock.
                let ns = self.draw.magnitude() >> 22;
                let until = self.ends[at].now + ns;
                if until < Instant::from_ns(1 << 62) {
                    self.ends[at].leap(until);
                }
            }
        }
    }

    /// Entries of the profile, and probes of its paths.
    fn controller(&mut self, at: usize) {
        let index = self.draw.below(12);
        let end = &mut self.ends[at];
        match self.draw.below(3) {
            0 => {
                let new = entry(&mut self.draw, index);
                end.cx(|qp, cx| qp.handle_entry(cx, &new));
            }
            1 => {
                // Only the state.
                let same = end.qp.ev_states().nth(index as usize).map(|view| view.entry);
                if let Some(same) = same {
                    let mut new = entry(&mut self.draw, index);
                    (new.tag, new.port) = (same.ev, same.port);
                    end.cx(|qp, cx| qp.handle_entry(cx, &new));
                }
            }
            _ => {
                let probe = end.cx(|qp, cx| qp.poll_ev_probe(cx));
                let any = end::path(0x1000 + index, port(&mut self.draw));
                let answered = self.draw.any();
                end.cx(|qp, cx| qp.handle_ev_probe(cx, probe.unwrap_or(any), answered));
            }
        }
    }

    /// A queue pair ends, or begins anew.
    fn life(&mut self, at: usize) {
        let first_psn = first_psn(&mut self.draw);
        let end = &mut self.ends[at];
        match self.draw.below(8) {
            0 => end.cx(Qp::handle_error),
            1 => {
                let slot = self.draw.below(40);
                end.cx(|qp, cx| qp.handle_local_fault(cx, slot, Status::LocalProtection));
            }
            2 => {
                end.cx(Qp::handle_linger);
                end.lingering = true;
                end.forget();
            }
            3 => end.region.trouble = Some((self.draw.any(), AccessError::Broken)),
            _ => {
                // Packets of the life before may still be under way.
                self.honest = false;
                let both = self.draw.any::<bool>();
                for which in 0..2 {
                    if which == at || both {
                        let end = &mut self.ends[which];
                        end.finish();
                        end.life += 1;
                        end.region.trouble = None;
                        self.setup.connect(end, QPNS[1 - which], first_psn, true);
                    }
                }
            }
        }
    }

    /// What succeeded is there, unless somebody meddled.
    fn judge(&self) {
        if !self.honest {
            return;
        }
        for at in 0..2 {
            let target = &self.ends[1 - at].region.bytes;
            for request in &self.ends[at].written {
                let place = (request.remote_addr - BASE) as usize;
                let right = (0..request.len).all(|i| target[place + i as usize] == byte(request.slot, i));
                assert!(right, "it succeeded and is not there: {request:?}");
            }
            let untouched = &target[self.next_place[1 - at]..];
            assert!(untouched.iter().all(|&byte| byte == 0), "something else was written to");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    #[test]
    fn requests_succeed_in_many_of_the_runs() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut inputs = (0..200).map(|_| {
            let mut bytes = [0; 1500];
            rng.fill_bytes(&mut bytes);
            bytes
        });
        let (mut succeeded, mut judged) = (0, 0);
        for bytes in inputs.by_ref() {
            let (requests, honest) = run(&bytes);
            succeeded += u32::from(requests > 0);
            judged += u32::from(requests > 0 && honest);
        }
        assert!(succeeded > 60 && judged > 25, "{succeeded} and {judged} of 200");
    }
}
