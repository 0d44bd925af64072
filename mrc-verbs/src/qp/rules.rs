//! Which transition takes which attribute (api.md §3.4).
//!
//! Everything here is a pure function of the present state, the attributes in force and the request, so that a refused
//! [`modify`](crate::QueuePair::modify) changes nothing.

use crate::error::{Error, Result};

use super::attr::{AttrLimits, QpAttr, QpAttrInForce, QpCapabilities, QpState};

/// Where an attribute is accepted: the states a call may lead to, and the state from which on it is in use and fixed.
struct Rule {
    name: &'static str,
    accepted: &'static [QpState],
    in_use_from: Option<QpState>,
    text: &'static str,
}

const fn rule(
    name: &'static str,
    accepted: &'static [QpState],
    in_use_from: Option<QpState>,
    text: &'static str,
) -> Rule {
    Rule {
        name,
        accepted,
        in_use_from,
        text,
    }
}

const TO_INIT: &[QpState] = &[QpState::Init];
const TO_RTR: &[QpState] = &[QpState::Rtr];
const TO_RTS: &[QpState] = &[QpState::Rts];
const UP_TO_RTR: &[QpState] = &[QpState::Init, QpState::Rtr];
const UP_TO_RTS: &[QpState] = &[QpState::Init, QpState::Rtr, QpState::Rts];

const PKEY: Rule = rule("pkey_index", TO_INIT, Some(QpState::Rtr), "it goes with INIT");
const ACCESS: Rule = rule("access", UP_TO_RTS, None, "it goes with INIT, RTR or RTS");
const ADDRESS: Rule = rule("address", UP_TO_RTR, Some(QpState::Rtr), "it goes with INIT or RTR");
const DEST_QPN: Rule = rule("dest_qpn", UP_TO_RTR, Some(QpState::Rtr), "it goes with INIT or RTR");
const RQ_PSN: Rule = rule("rq_psn", TO_RTR, Some(QpState::Rtr), "it goes with RTR");
const PMTU: Rule = rule("pmtu", TO_RTR, Some(QpState::Rtr), "it goes with RTR");
const SQ_PSN: Rule = rule("sq_psn", TO_RTS, Some(QpState::Rts), "it goes with RTS");
const MPR: Rule = rule("mpr", UP_TO_RTS, Some(QpState::Rts), "it goes with INIT, RTR or RTS");
const MPR_DEST: Rule = rule(
    "mpr_dest",
    UP_TO_RTR,
    Some(QpState::Rtr),
    "it goes with INIT or RTR, and later where both sides have DYNAMIC_MPR",
);
const MAX_WIMM: Rule = rule(
    "max_wimm",
    UP_TO_RTS,
    Some(QpState::Rts),
    "it goes with INIT, RTR or RTS",
);
const MAX_WIMM_DEST: Rule = rule(
    "max_wimm_dest",
    UP_TO_RTR,
    Some(QpState::Rtr),
    "it goes with INIT or RTR",
);
const CAPABILITIES: Rule = rule(
    "capabilities",
    UP_TO_RTS,
    Some(QpState::Rts),
    "it goes with INIT, RTR or RTS",
);

impl Rule {
    /// Takes `value` into `slot` if the rule allows it on the way from `from` to `to`.
    fn take<T: Copy>(&self, from: QpState, to: QpState, value: Option<T>, slot: &mut T) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let fixed = from == to && self.in_use_from.is_some_and(|state| to >= state);
        if !self.accepted.contains(&to) || fixed {
            return Err(Error::AttributeState {
                attribute: self.name,
                to,
                accepted: self.text,
            });
        }
        *slot = value;
        Ok(())
    }
}

/// What a modify does if it is legal: the state to go to and the attributes that are in force then.
pub(crate) fn plan(
    from: QpState,
    now: &QpAttrInForce,
    limits: &AttrLimits,
    attr: &QpAttr,
) -> Result<(QpState, QpAttrInForce)> {
    if let Some(asserted) = attr.cur_state
        && asserted != from
    {
        return Err(Error::CurrentState { asserted, actual: from });
    }
    let to = attr.state.unwrap_or(from);
    if !from.may_go_to(to) {
        return Err(Error::Transition { from, to });
    }
    let mut next = if to == QpState::Reset {
        QpAttrInForce::defaults(limits)
    } else {
        now.clone()
    };
    let mut pkey_index = 0;
    let mut pmtu = u32::MAX;
    PKEY.take(from, to, attr.pkey_index, &mut pkey_index)?;
    ACCESS.take(from, to, attr.access, &mut next.access)?;
    ADDRESS.take(from, to, attr.address.map(Some), &mut next.address)?;
    DEST_QPN.take(from, to, attr.dest_qpn.map(Some), &mut next.dest_qpn)?;
    RQ_PSN.take(from, to, attr.rq_psn.map(|psn| psn & 0xff_ffff), &mut next.rq_psn)?;
    PMTU.take(from, to, attr.pmtu, &mut pmtu)?;
    SQ_PSN.take(from, to, attr.sq_psn.map(|psn| psn & 0xff_ffff), &mut next.sq_psn)?;
    MPR.take(from, to, attr.mpr, &mut next.mpr)?;
    // protocol.md §5.4
    let dynamic = from == to
        && to >= QpState::Rtr
        && to != QpState::Err
        && now.capabilities.contains(QpCapabilities::DYNAMIC_MPR);
    match attr.mpr_dest {
        Some(mpr_dest) if dynamic => next.mpr_dest = mpr_dest,
        mpr_dest => MPR_DEST.take(from, to, mpr_dest, &mut next.mpr_dest)?,
    }
    MAX_WIMM.take(from, to, attr.max_wimm, &mut next.max_wimm)?;
    MAX_WIMM_DEST.take(from, to, attr.max_wimm_dest, &mut next.max_wimm_dest)?;
    CAPABILITIES.take(from, to, attr.capabilities, &mut next.capabilities)?;
    next.timeout = attr.timeout.unwrap_or(next.timeout);
    next.retry = attr.retry.unwrap_or(next.retry);
    if attr.pmtu.is_some() {
        next.pmtu = pmtu;
    }
    check(&next, pkey_index, limits)?;
    if to == QpState::Rtr && from == QpState::Init {
        if next.address.is_none() {
            return Err(Error::MissingAttribute { attribute: "address" });
        }
        if next.dest_qpn.is_none() {
            return Err(Error::MissingAttribute { attribute: "dest_qpn" });
        }
    }
    Ok((to, next))
}

fn check(next: &QpAttrInForce, pkey_index: u16, limits: &AttrLimits) -> Result<()> {
    let range = |what, value: u64, ok: bool, limit| {
        if ok {
            Ok(())
        } else {
            Err(Error::Invalid {
                what,
                value: value.to_string(),
                limit,
            })
        }
    };
    range("pkey_index", pkey_index.into(), pkey_index == 0, "only index 0 exists")?;
    for (what, mpr) in [("mpr", next.mpr), ("mpr_dest", next.mpr_dest)] {
        range(
            what,
            mpr.into(),
            (1..=limits.max_mpr).contains(&mpr),
            "1 to the device's max_mpr, in units of 128 packets",
        )?;
    }
    range(
        "max_wimm",
        next.max_wimm.into(),
        next.max_wimm <= limits.max_wimm,
        "at most the device's max_wimm",
    )?;
    let wimm_dest = next.max_wimm_dest;
    range(
        "max_wimm_dest",
        wimm_dest.into(),
        wimm_dest <= limits.max_wimm_dest,
        "at most the device's max_wimm_dest",
    )?;
    range(
        "timeout",
        next.timeout.into(),
        next.timeout <= 24,
        "0 to 24 (1.024 us * 2^timeout, 0 = no timer)",
    )?;
    range(
        "retry.linear",
        next.retry.linear.into(),
        next.retry.linear <= 7,
        "0 to 7",
    )?;
    range(
        "retry.exponential",
        next.retry.exponential.into(),
        next.retry.exponential <= 25,
        "0 to 25, 25 = for ever",
    )?;
    let known = next.pmtu.is_power_of_two() && (256..=4096).contains(&next.pmtu);
    range("pmtu", next.pmtu.into(), known, "256, 512, 1024, 2048 or 4096")?;
    // Whether the ports carry it, the engine says: it names the interface and the MTU that it needs (D6).
    if let Some(qpn) = next.dest_qpn {
        range("dest_qpn", qpn.into(), qpn < 1 << 24, "24 bits")?;
    }
    if let Some(address) = next.address
        && address.local.family() != address.remote.family()
    {
        return Err(Error::Invalid {
            what: "remote GID",
            value: address.remote.to_string(),
            limit: "it must be of the same address family as the local GID",
        });
    }
    let capabilities = next.capabilities.bits();
    range(
        "capabilities",
        capabilities.into(),
        capabilities < 8,
        "the bits of `QpCapabilities`",
    )?;
    if next.capabilities.contains(QpCapabilities::DYNAMIC_MPR) && !limits.dynamic_mpr {
        return Err(Error::Invalid {
            what: "capabilities",
            value: "DYNAMIC_MPR".into(),
            limit: "this device cannot change the receive window at run time",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::qp::{AddressVector, RetryCount};

    const LIMITS: AttrLimits = AttrLimits {
        max_mpr: 32,
        max_wimm: 1024,
        max_wimm_dest: 1024,
        active_pmtu: 4096,
        dynamic_mpr: false,
    };

    fn ready() -> QpAttrInForce {
        QpAttrInForce {
            address: Some(AddressVector {
                local: "192.0.2.1".parse().unwrap(),
                remote: "192.0.2.2".parse().unwrap(),
                hop_limit: 64,
                traffic_class: 0,
            }),
            dest_qpn: Some(7),
            ..QpAttrInForce::defaults(&LIMITS)
        }
    }

    fn go(from: QpState, attr: &QpAttr) -> Result<(QpState, QpAttrInForce)> {
        plan(from, &ready(), &LIMITS, attr)
    }

    #[test]
    fn the_whole_transition_table() {
        use QpState::{Err, Init, Reset, Rtr, Rts};
        let legal = [(Reset, Init), (Init, Rtr), (Rtr, Rts)];
        for from in QpState::ALL {
            for to in QpState::ALL {
                let expected = from == to || to == Err || to == Reset || legal.contains(&(from, to));
                assert_eq!(go(from, &QpAttr::to_state(to)).is_ok(), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let d = QpAttrInForce::defaults(&LIMITS);
        assert_eq!(
            (d.mpr, d.mpr_dest, d.max_wimm, d.max_wimm_dest, d.timeout),
            (8, 8, 128, 128, 14)
        );
        assert_eq!((d.retry.linear, d.retry.exponential, d.rq_psn, d.sq_psn), (3, 5, 0, 0));
        assert_eq!((d.pmtu, d.access), (4096, Access::PEER_WRITABLE));
        let small = AttrLimits {
            max_mpr: 4,
            max_wimm: 9,
            max_wimm_dest: 7,
            active_pmtu: 1024,
            dynamic_mpr: false,
        };
        let d = QpAttrInForce::defaults(&small);
        assert_eq!(
            (d.mpr, d.mpr_dest, d.max_wimm, d.max_wimm_dest, d.pmtu),
            (4, 4, 9, 7, 1024)
        );
    }

    #[test]
    fn each_attribute_is_taken_only_on_its_transitions() {
        use QpState::{Init, Reset, Rtr, Rts};
        let some = QpAttr::default;
        let cases: [(&str, QpAttr, &[QpState]); 10] = [
            (
                "pkey",
                QpAttr {
                    pkey_index: Some(0),
                    ..some()
                },
                &[Init],
            ),
            (
                "access",
                QpAttr {
                    access: Some(Access::empty()),
                    ..some()
                },
                &[Init, Rtr, Rts],
            ),
            (
                "dest_qpn",
                QpAttr {
                    dest_qpn: Some(9),
                    ..some()
                },
                &[Init, Rtr],
            ),
            (
                "rq_psn",
                QpAttr {
                    rq_psn: Some(9),
                    ..some()
                },
                &[Rtr],
            ),
            (
                "pmtu",
                QpAttr {
                    pmtu: Some(512),
                    ..some()
                },
                &[Rtr],
            ),
            (
                "sq_psn",
                QpAttr {
                    sq_psn: Some(9),
                    ..some()
                },
                &[Rts],
            ),
            ("mpr", QpAttr { mpr: Some(9), ..some() }, &[Init, Rtr, Rts]),
            (
                "mpr_dest",
                QpAttr {
                    mpr_dest: Some(9),
                    ..some()
                },
                &[Init, Rtr],
            ),
            (
                "max_wimm_dest",
                QpAttr {
                    max_wimm_dest: Some(9),
                    ..some()
                },
                &[Init, Rtr],
            ),
            (
                "timeout",
                QpAttr {
                    timeout: Some(9),
                    ..some()
                },
                &[Reset, Init, Rtr, Rts, QpState::Err],
            ),
        ];
        for (name, attr, accepted) in cases {
            for (from, to) in [
                (Reset, Reset),
                (Reset, Init),
                (Init, Rtr),
                (Rtr, Rts),
                (Rts, QpState::Err),
            ] {
                let attr = QpAttr {
                    state: Some(to),
                    ..attr.clone()
                };
                assert_eq!(
                    go(from, &attr).is_ok(),
                    accepted.contains(&to),
                    "{name} from {from} to {to}"
                );
            }
        }
    }

    #[test]
    fn staying_changes_what_is_not_in_use_yet_and_nothing_else() {
        let mpr = QpAttr {
            mpr: Some(3),
            ..QpAttr::default()
        };
        assert_eq!(go(QpState::Init, &mpr).unwrap().1.mpr, 3);
        assert_eq!(go(QpState::Rtr, &mpr).unwrap().1.mpr, 3);
        assert!(go(QpState::Rts, &mpr).is_err());
    }

    // protocol.md §5.4
    #[test]
    fn the_receive_window_changes_in_rts_only_with_dynamic_mpr() {
        let attr = QpAttr {
            mpr_dest: Some(3),
            ..QpAttr::default()
        };
        assert!(plan(QpState::Rts, &ready(), &LIMITS, &attr).is_err());
        let dynamic = QpAttrInForce {
            capabilities: QpCapabilities::DYNAMIC_MPR,
            ..ready()
        };
        let limits = AttrLimits {
            dynamic_mpr: true,
            ..LIMITS
        };
        let (to, next) = plan(QpState::Rts, &dynamic, &limits, &attr).unwrap();
        assert_eq!((to, next.mpr_dest), (QpState::Rts, 3));
        let too_large = QpAttr {
            mpr_dest: Some(33),
            ..QpAttr::default()
        };
        assert!(plan(QpState::Rts, &dynamic, &limits, &too_large).is_err());
        let dest = QpAttr {
            dest_qpn: Some(3),
            ..QpAttr::default()
        };
        assert!(go(QpState::Rtr, &dest).is_err());
        let timeout = QpAttr {
            timeout: Some(3),
            access: Some(Access::empty()),
            ..QpAttr::default()
        };
        assert_eq!(go(QpState::Rts, &timeout).unwrap().1.timeout, 3);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let init = |attr: QpAttr| {
            go(
                QpState::Reset,
                &QpAttr {
                    state: Some(QpState::Init),
                    ..attr
                },
            )
            .is_ok()
        };
        let none = QpAttr::default;
        assert!(!init(QpAttr {
            timeout: Some(25),
            ..none()
        }));
        assert!(!init(QpAttr {
            retry: Some(RetryCount {
                linear: 8,
                exponential: 0
            }),
            ..none()
        }));
        assert!(!init(QpAttr {
            retry: Some(RetryCount {
                linear: 0,
                exponential: 26
            }),
            ..none()
        }));
        assert!(!init(QpAttr { mpr: Some(0), ..none() }));
        assert!(!init(QpAttr {
            mpr: Some(33),
            ..none()
        }));
        assert!(!init(QpAttr {
            max_wimm: Some(1025),
            ..none()
        }));
        assert!(!init(QpAttr {
            pkey_index: Some(1),
            ..none()
        }));
        assert!(!init(QpAttr {
            dest_qpn: Some(1 << 24),
            ..none()
        }));
        assert!(!init(QpAttr {
            capabilities: Some(QpCapabilities::DYNAMIC_MPR),
            ..none()
        }));
        assert!(!init(QpAttr {
            capabilities: Some(QpCapabilities::from_bits_retain(8)),
            ..none()
        }));
        assert!(init(QpAttr {
            capabilities: Some(QpCapabilities::from_bits_retain(5)),
            max_wimm: Some(0),
            ..none()
        }));
        for (pmtu, ok) in [
            (4096, true),
            (256, true),
            (128, false),
            (1000, false),
            (8192, false),
            (0, false),
        ] {
            let attr = QpAttr {
                state: Some(QpState::Rtr),
                pmtu: Some(pmtu),
                ..none()
            };
            assert_eq!(go(QpState::Init, &attr).is_ok(), ok, "{pmtu}");
        }
    }

    #[test]
    fn rtr_needs_address_and_destination_and_one_family() {
        let bare = QpAttrInForce::defaults(&LIMITS);
        let rtr = QpAttr::to_state(QpState::Rtr);
        assert!(plan(QpState::Init, &bare, &LIMITS, &rtr).is_err());
        let address = AddressVector {
            remote: "2001:db8::1".parse().unwrap(),
            ..ready().address.unwrap()
        };
        assert!(
            go(
                QpState::Init,
                &QpAttr {
                    address: Some(address),
                    ..rtr
                }
            )
            .is_err()
        );
    }

    #[test]
    fn a_wrong_assertion_of_the_present_state_is_refused() {
        let attr = QpAttr {
            cur_state: Some(QpState::Rts),
            ..QpAttr::to_state(QpState::Err)
        };
        assert!(matches!(go(QpState::Rtr, &attr), Err(Error::CurrentState { .. })));
        assert!(go(QpState::Rts, &attr).is_ok());
    }

    #[test]
    fn reset_forgets_everything() {
        assert_eq!(
            go(QpState::Rts, &QpAttr::to_state(QpState::Reset)).unwrap().1,
            QpAttrInForce::defaults(&LIMITS)
        );
    }
}
