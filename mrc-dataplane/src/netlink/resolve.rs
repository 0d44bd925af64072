//! The answer for one target, from route and neighbour.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::route::Neighbour;
use crate::neigh::{NextHop, Unreachable};

/// A neighbour that is asked and says nothing is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The kernel does not see our packets, so it would never check again what it once knew.
const CHECK_AGAIN: Duration = Duration::from_secs(15);

/// What is known of one target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    /// The next hop by the routing table; `None`: no route.
    pub(super) gateway: Option<IpAddr>,
    /// Whether the routing table has to be asked again.
    pub(super) route_due: bool,
    asked: Option<Instant>,
    /// What the gateway answered last.
    mac: Option<[u8; 6]>,
    failed: bool,
}

/// What follows for one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) hop: NextHop,
    /// The kernel should look for the neighbour.
    pub(super) ask: bool,
}

impl Followed {
    pub(super) fn new() -> Self {
        Self {
            gateway: None,
            route_due: true,
            asked: None,
            mac: None,
            failed: false,
        }
    }

    /// The routing table has named a next hop, or none.
    pub(super) fn set_gateway(&mut self, gateway: Option<IpAddr>) {
        if self.gateway != gateway && gateway.is_some() {
            // What was known is known of somebody else.
            *self = Self { gateway, ..Self::new() };
        }
        self.gateway = gateway;
        self.route_due = false;
    }

    pub(super) fn evaluate(&mut self, link_up: bool, neighbour: Option<Neighbour>, now: Instant) -> Outcome {
        if !link_up {
            // The kernel forgets the neighbours of a link that goes down. They are asked as soon as it is up.
            self.asked = None;
            return Outcome {
                hop: Unreachable::LinkDown.into(),
                ask: false,
            };
        }
        let Some(gateway) = self.gateway else {
            return Outcome {
                hop: Unreachable::NoRoute.into(),
                ask: false,
            };
        };
        let mut ask_after = Some(ASK_AGAIN);
        match neighbour {
            Some(Neighbour::Known { mac, stale }) => {
                (self.mac, self.failed) = (Some(mac), false);
                ask_after = stale.then_some(CHECK_AGAIN);
            }
            Some(Neighbour::Failed) => (self.mac, self.failed) = (None, true),
            // Forgotten or asked for again: what was right so far goes on until the answer is there.
            None | Some(Neighbour::Asked) => {}
        }
        let hop = match self.mac {
            Some(mac) => NextHop::Resolved(mac),
            None if self.failed => Unreachable::NeighbourFailed { gateway }.into(),
            None => NextHop::Pending,
        };
        let ask = ask_after.is_some_and(|after| {
            self.asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= after)
        });
        if ask {
            self.asked = Some(now);
        }
        Outcome { hop, ask }
    }
}

impl From<Unreachable> for NextHop {
    fn from(why: Unreachable) -> Self {
        Self::Unreachable(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn gateway() -> IpAddr {
        "fe80::1".parse().unwrap()
    }

    #[test]
    fn an_unknown_neighbour_is_asked_for_once_a_second() {
        let mut target = Followed::new();
        target.set_gateway(Some(gateway()));
        let start = Instant::now();
        assert_eq!(
            target.evaluate(true, None, start),
            Outcome {
                hop: NextHop::Pending,
                ask: true
            }
        );
        let asked = Some(Neighbour::Asked);
        assert_eq!(
            target.evaluate(true, asked, start),
            Outcome {
                hop: NextHop::Pending,
                ask: false
            }
        );
        assert!(target.evaluate(true, asked, start + ASK_AGAIN).ask);
    }

    #[test]
    fn a_failed_neighbour_stays_failed_while_it_is_asked_again() {
        let mut target = Followed::new();
        target.set_gateway(Some(gateway()));
        let start = Instant::now();
        let failed = NextHop::Unreachable(Unreachable::NeighbourFailed { gateway: gateway() });
        assert_eq!(
            target.evaluate(true, Some(Neighbour::Failed), start),
            Outcome { hop: failed, ask: true }
        );
        assert_eq!(target.evaluate(true, Some(Neighbour::Asked), start).hop, failed);
        let known = Some(Neighbour::Known { mac: MAC, stale: false });
        assert_eq!(target.evaluate(true, known, start).hop, NextHop::Resolved(MAC));
    }

    #[test]
    fn a_forgotten_neighbour_keeps_its_address_until_the_kernel_knows_better() {
        let mut target = Followed::new();
        target.set_gateway(Some(gateway()));
        let start = Instant::now();
        target.evaluate(true, Some(Neighbour::Known { mac: MAC, stale: false }), start);
        assert_eq!(
            target.evaluate(true, None, start),
            Outcome {
                hop: NextHop::Resolved(MAC),
                ask: true
            }
        );
        // Another gateway is somebody else.
        target.set_gateway(Some("fe80::2".parse().unwrap()));
        assert_eq!(target.evaluate(true, None, start).hop, NextHop::Pending);
    }

    #[test]
    fn a_stale_neighbour_is_used_and_checked() {
        let mut target = Followed::new();
        target.set_gateway(Some(gateway()));
        let start = Instant::now();
        let stale = Some(Neighbour::Known { mac: MAC, stale: true });
        assert_eq!(
            target.evaluate(true, stale, start),
            Outcome {
                hop: NextHop::Resolved(MAC),
                ask: true
            }
        );
        assert!(!target.evaluate(true, stale, start + ASK_AGAIN).ask);
        assert!(target.evaluate(true, stale, start + CHECK_AGAIN).ask);
    }

    #[test]
    fn after_a_link_was_down_the_old_address_is_used_and_checked_at_once() {
        let mut target = Followed::new();
        target.set_gateway(Some(gateway()));
        let now = Instant::now();
        target.evaluate(true, None, now);
        target.evaluate(true, Some(Neighbour::Known { mac: MAC, stale: false }), now);
        assert_eq!(
            target.evaluate(false, None, now),
            Outcome {
                hop: Unreachable::LinkDown.into(),
                ask: false
            }
        );
        assert_eq!(
            target.evaluate(true, None, now),
            Outcome {
                hop: NextHop::Resolved(MAC),
                ask: true
            }
        );
    }

    #[test]
    fn no_route_and_no_link_are_told_apart() {
        let mut target = Followed::new();
        target.set_gateway(None);
        let now = Instant::now();
        assert_eq!(target.evaluate(true, None, now).hop, Unreachable::NoRoute.into());
        assert_eq!(target.evaluate(false, None, now).hop, Unreachable::LinkDown.into());
    }
}
