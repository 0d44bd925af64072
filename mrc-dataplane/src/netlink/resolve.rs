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
    hop: NextHop,
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
            hop: NextHop::Pending,
        }
    }

    /// The routing table has named a next hop, or none.
    pub(super) fn set_gateway(&mut self, gateway: Option<IpAddr>) {
        if self.gateway != gateway {
            // What was known is known of somebody else.
            self.asked = None;
            self.hop = NextHop::Pending;
        }
        self.gateway = gateway;
        self.route_due = false;
    }

    pub(super) fn evaluate(&mut self, link_up: bool, neighbour: Option<Neighbour>, now: Instant) -> Outcome {
        let due = |after| {
            self.asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= after)
        };
        let Some(gateway) = self.gateway else {
            return self.outcome(
                if link_up {
                    Unreachable::NoRoute
                } else {
                    Unreachable::LinkDown
                }
                .into(),
                false,
                now,
            );
        };
        let known = match self.hop {
            NextHop::Resolved(mac) => Some(mac),
            _ => None,
        };
        match neighbour {
            _ if !link_up => self.outcome(Unreachable::LinkDown.into(), false, now),
            Some(Neighbour::Known { mac, stale }) => {
                let ask = stale && due(CHECK_AGAIN);
                self.outcome(NextHop::Resolved(mac), ask, now)
            }
            Some(Neighbour::Failed) => {
                let ask = due(ASK_AGAIN);
                self.outcome(Unreachable::NeighbourFailed { gateway }.into(), ask, now)
            }
            // Forgotten or asked for again: what was right so far goes on until the answer is there.
            None | Some(Neighbour::Asked) => {
                let ask = due(ASK_AGAIN);
                let hop = match (known, self.hop) {
                    (Some(mac), _) => NextHop::Resolved(mac),
                    (None, hop @ NextHop::Unreachable(Unreachable::NeighbourFailed { .. })) => hop,
                    (None, _) => NextHop::Pending,
                };
                self.outcome(hop, ask, now)
            }
        }
    }

    fn outcome(&mut self, hop: NextHop, ask: bool, now: Instant) -> Outcome {
        self.hop = hop;
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
    fn no_route_and_no_link_are_told_apart() {
        let mut target = Followed::new();
        target.set_gateway(None);
        let now = Instant::now();
        assert_eq!(target.evaluate(true, None, now).hop, Unreachable::NoRoute.into());
        assert_eq!(target.evaluate(false, None, now).hop, Unreachable::LinkDown.into());
    }
}
