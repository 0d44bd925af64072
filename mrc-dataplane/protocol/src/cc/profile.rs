//! Congestion control profiles: which algorithm, with which numbers; their states as one table (api.md §4.1, §4.11).

use core::fmt;

use thiserror::Error;

use super::config::{ConfigError, NsccConfig};
use super::network::Network;
use super::params::NsccParams;
use crate::profile::{ErrorClass, ProfileState, VENDOR_CFG_LEN};

/// What decides about the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// NSCC, [`Algorithm::NSCC_NAME`].
    Nscc,
    /// Nothing: the window stays at its maximum (protocol.md §10). A null name in the C interface.
    Off,
}

impl Algorithm {
    /// Name of NSCC in profiles (protocol.md §10).
    pub const NSCC_NAME: &'static str = "uet-1.0-nscc";

    /// The algorithm of this name; no name = off.
    pub fn named(name: Option<&str>) -> Result<Self, CcProfileError> {
        match name {
            None => Ok(Self::Off),
            Some(Self::NSCC_NAME) => Ok(Self::Nscc),
            Some(_) => Err(CcProfileError::UnknownAlgorithm),
        }
    }

    /// Its name, if it has one.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Nscc => Some(Self::NSCC_NAME),
            Self::Off => None,
        }
    }
}

/// Numbers of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Config {
    /// Whatever suits the network towards each peer.
    Defaults,
    /// These.
    Nscc(NsccConfig),
}

/// What a call may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CcAttr {
    /// The algorithm; a change clears the config.
    Algorithm,
    /// Its numbers.
    Config,
    /// The provider's own bytes.
    VendorCfg,
}

impl fmt::Display for CcAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "the algorithm",
            Self::Config => "the config",
            Self::VendorCfg => "vendor_cfg",
        })
    }
}

/// Why a change of a profile is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CcProfileError {
    /// No such algorithm.
    #[error(
        "unknown algorithm: use \"{}\", or none to switch congestion control off",
        Algorithm::NSCC_NAME
    )]
    UnknownAlgorithm,
    /// The caller believed the profile to be in another state.
    #[error("the profile is {actual}, not {expected}: query it and try again")]
    CurrentState {
        /// As it is.
        actual: ProfileState,
        /// As the caller said.
        expected: ProfileState,
    },
    /// No such step.
    #[error("no step leads from {from} to {to}: go one state at a time")]
    Transition {
        /// As it is.
        from: ProfileState,
        /// As wished.
        to: ProfileState,
    },
    /// An attribute that cannot be set in this state, or with this step.
    #[error("{attr} cannot be set from {from} to {to}: move the profile to OFFLINE first")]
    NotNow {
        /// Which.
        attr: CcAttr,
        /// State before the call.
        from: ProfileState,
        /// State after it.
        to: ProfileState,
    },
    /// A step needs something that was never set.
    #[error("{to} needs {attr}: set it in this call or before")]
    Missing {
        /// Which.
        attr: CcAttr,
        /// The state that was asked for.
        to: ProfileState,
    },
    /// Numbers for an algorithm that has none.
    #[error("a profile without congestion control has no config: leave it out, or set the algorithm")]
    NoConfig,
    /// Numbers that NSCC cannot work with.
    #[error("{0}")]
    Config(ConfigError),
    /// Queue pairs use the profile.
    #[error("{0} queue pairs use the profile: move them to RESET first")]
    QpsBound(u32),
    /// All profiles are taken.
    #[error("all {0} profiles are in use: move one to INIT first")]
    Slots(u32),
    /// Profile 0 cannot be changed.
    #[error("profile 0 is built in and cannot be changed: use another number")]
    BuiltIn,
    /// Only an ONLINE profile can be used.
    #[error("profile {0} is not ONLINE: move it there first")]
    NotOnline(u64),
}

impl CcProfileError {
    /// The kind of answer (api.md §4.1, §4.11).
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::QpsBound(_) => ErrorClass::Busy,
            _ => ErrorClass::Invalid,
        }
    }
}

/// One step. Staying in a state is none: it is always possible, and needs nothing.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: ProfileState,
    to: ProfileState,
    /// The state whose attributes the call may set; `None`: no attributes.
    judged_as: Option<ProfileState>,
    /// Not while queue pairs use the profile.
    barred_by_qps: bool,
    needs: Option<CcAttr>,
}

const STEPS: [Step; 4] = {
    use ProfileState::{Init, Offline, Online};
    [
        step(Init, Offline, Some(Offline), false, Some(CcAttr::Algorithm)),
        step(Offline, Online, Some(Offline), false, Some(CcAttr::Config)),
        step(Online, Offline, Some(Online), true, None),
        step(Offline, Init, None, false, None),
    ]
};

const fn step(
    from: ProfileState,
    to: ProfileState,
    judged_as: Option<ProfileState>,
    barred_by_qps: bool,
    needs: Option<CcAttr>,
) -> Step {
    Step {
        from,
        to,
        judged_as,
        barred_by_qps,
        needs,
    }
}

/// What may be set in a state; INIT has no row.
#[derive(Clone, Copy, Debug)]
struct Permits {
    state: ProfileState,
    always: &'static [CcAttr],
    /// Only if the implementation offers online modification.
    optional: &'static [CcAttr],
}

const PERMITS: [Permits; 2] = [
    Permits {
        state: ProfileState::Offline,
        always: &[CcAttr::Algorithm, CcAttr::Config, CcAttr::VendorCfg],
        optional: &[],
    },
    Permits {
        state: ProfileState::Online,
        always: &[],
        optional: &[CcAttr::Config],
    },
];

/// One call that changes a profile. What is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct CcChange {
    /// The state to move to, one step at a time.
    pub state: Option<ProfileState>,
    /// The state that the caller believes the profile is in.
    pub current_state: Option<ProfileState>,
    /// The algorithm.
    pub algorithm: Option<Algorithm>,
    /// Its numbers.
    pub config: Option<Config>,
    /// The provider's own bytes.
    pub vendor_cfg: Option<[u8; VENDOR_CFG_LEN]>,
}

impl CcChange {
    fn attrs(&self) -> impl Iterator<Item = CcAttr> {
        [
            (self.algorithm.is_some(), CcAttr::Algorithm),
            (self.config.is_some(), CcAttr::Config),
            (self.vendor_cfg.is_some(), CcAttr::VendorCfg),
        ]
        .into_iter()
        .filter_map(|(set, attr)| set.then_some(attr))
    }
}

/// A profile, in any state.
#[derive(Clone, Debug)]
pub struct CcProfile {
    state: ProfileState,
    algorithm: Option<Algorithm>,
    config: Option<Config>,
    vendor_cfg: [u8; VENDOR_CFG_LEN],
    /// Queue pairs that use it.
    users: u32,
}

impl Default for CcProfile {
    fn default() -> Self {
        Self {
            state: ProfileState::Init,
            algorithm: None,
            config: None,
            vendor_cfg: [0; VENDOR_CFG_LEN],
            users: 0,
        }
    }
}

impl CcProfile {
    /// The profile that is always there: ONLINE, NSCC with its defaults (api.md §4.1).
    pub(super) fn built_in() -> Self {
        Self {
            state: ProfileState::Online,
            algorithm: Some(Algorithm::Nscc),
            config: Some(Config::Defaults),
            ..Self::default()
        }
    }

    /// Its state.
    pub const fn state(&self) -> ProfileState {
        self.state
    }

    /// Its algorithm; `None` in INIT.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// Its numbers as they were set.
    pub const fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// The provider's own bytes.
    pub const fn vendor_cfg(&self) -> &[u8; VENDOR_CFG_LEN] {
        &self.vendor_cfg
    }

    /// Queue pairs that use it.
    pub const fn users(&self) -> u32 {
        self.users
    }

    /// What windows on a network work with. A window without algorithm needs them for its size.
    pub fn params(&self, network: &Network) -> NsccParams {
        match &self.config {
            Some(Config::Nscc(config)) => NsccParams::with_config(config, network),
            _ => NsccParams::new(network),
        }
    }

    pub(super) fn bind(&mut self) {
        self.users += 1;
    }

    pub(super) fn unbind(&mut self) {
        self.users = self.users.saturating_sub(1);
    }

    /// All or nothing (api.md §4.1).
    pub(super) fn modify(&mut self, change: &CcChange, modify_online: bool) -> Result<(), CcProfileError> {
        let step = self.permitted(change, modify_online)?;
        let to = step.map_or(self.state, |step| step.to);
        if to == ProfileState::Init {
            *self = Self::default();
            return Ok(());
        }
        let algorithm = change.algorithm.or(self.algorithm);
        let config = match change.config {
            Some(Config::Nscc(_)) if algorithm != Some(Algorithm::Nscc) => return Err(CcProfileError::NoConfig),
            Some(Config::Nscc(config)) => {
                config.check().map_err(CcProfileError::Config)?;
                change.config
            }
            Some(Config::Defaults) => change.config,
            None if algorithm != self.algorithm => None,
            None => self.config,
        };
        let missing = match step.and_then(|step| step.needs) {
            Some(CcAttr::Algorithm) => algorithm.is_none(),
            // Nothing to configure when it is off.
            Some(CcAttr::Config) => config.is_none() && algorithm != Some(Algorithm::Off),
            _ => false,
        };
        if let (true, Some(attr)) = (missing, step.and_then(|step| step.needs)) {
            return Err(CcProfileError::Missing { attr, to });
        }
        self.state = to;
        self.algorithm = algorithm;
        self.config = config;
        self.vendor_cfg = change.vendor_cfg.unwrap_or(self.vendor_cfg);
        Ok(())
    }

    /// The step that a call makes; `None` = it stays. As far as states, attributes and users go, it may be made.
    fn permitted(&self, change: &CcChange, modify_online: bool) -> Result<Option<&'static Step>, CcProfileError> {
        let from = self.state;
        if let Some(expected) = change.current_state.filter(|&expected| expected != from) {
            return Err(CcProfileError::CurrentState { actual: from, expected });
        }
        let to = change.state.unwrap_or(from);
        let step = STEPS.iter().find(|step| (step.from, step.to) == (from, to));
        if step.is_none() && from != to {
            return Err(CcProfileError::Transition { from, to });
        }
        let judged_as = step.map_or(Some(from), |step| step.judged_as);
        let permits = PERMITS.iter().find(|permits| Some(permits.state) == judged_as);
        let permitted = |attr: &CcAttr| {
            permits.is_some_and(|permits| {
                permits.always.contains(attr) || modify_online && permits.optional.contains(attr)
            })
        };
        if let Some(attr) = change.attrs().find(|attr| !permitted(attr)) {
            return Err(CcProfileError::NotNow { attr, from, to });
        }
        if self.users > 0 && step.is_some_and(|step| step.barred_by_qps) {
            return Err(CcProfileError::QpsBound(self.users));
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    #[test]
    fn table_is_that_of_the_specification() {
        let mut text = String::new();
        for step in STEPS {
            writeln!(text, "{} -> {}: {step:?}", step.from, step.to).unwrap();
        }
        for permits in PERMITS {
            writeln!(text, "{permits:?}").unwrap();
        }
        insta::assert_snapshot!(text);
    }
}
