//! Format profiles: how an expanded EV is cut into fields on the wire (protocol.md §7.1, api.md §4.5).

use super::VENDOR_CFG_LEN;
use super::error::ProfileError;
use super::field::{Format, FormatField, FormatMode};
use super::state::{Attr, Bar, Need, Object, ProfileState, plan};

/// One call that changes a format profile. What is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormatChange<'a> {
    /// The state to move to, one step at a time.
    pub state: Option<ProfileState>,
    /// The state that the caller believes the profile is in.
    pub current_state: Option<ProfileState>,
    /// Mode; a new one clears the fields.
    pub mode: Option<FormatMode>,
    /// Fields.
    pub fields: Option<&'a [FormatField]>,
    /// The provider's own bytes.
    pub vendor_cfg: Option<[u8; VENDOR_CFG_LEN]>,
}

impl FormatChange<'_> {
    fn attrs(&self) -> impl Iterator<Item = Attr> {
        [
            (self.mode.is_some(), Attr::Mode),
            (self.fields.is_some(), Attr::Fields),
            (self.vendor_cfg.is_some(), Attr::VendorCfg),
        ]
        .into_iter()
        .filter_map(|(set, attr)| set.then_some(attr))
    }
}

/// A format profile outside INIT.
#[derive(Clone, Debug)]
pub struct FormatProfile {
    state: ProfileState,
    mode: Option<FormatMode>,
    format: Option<Format>,
    vendor_cfg: [u8; VENDOR_CFG_LEN],
}

/// Who refers to a format, by EV profile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FormatUsers {
    /// One outside INIT.
    pub(super) configured: Option<u64>,
    /// One that is ONLINE.
    pub(super) online: Option<u64>,
}

impl Default for FormatProfile {
    fn default() -> Self {
        Self {
            state: ProfileState::Init,
            mode: None,
            format: None,
            vendor_cfg: [0; VENDOR_CFG_LEN],
        }
    }
}

impl FormatProfile {
    /// Its state.
    pub const fn state(&self) -> ProfileState {
        self.state
    }

    /// Its mode.
    pub const fn mode(&self) -> Option<FormatMode> {
        self.mode
    }

    /// Its fields, once they are set.
    pub const fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// The provider's own bytes.
    pub const fn vendor_cfg(&self) -> &[u8; VENDOR_CFG_LEN] {
        &self.vendor_cfg
    }

    /// All or nothing (api.md §4.1).
    pub(super) fn modify(&mut self, change: &FormatChange<'_>, users: FormatUsers) -> Result<(), ProfileError> {
        let plan = plan(
            Object::Format,
            self.state,
            change.current_state,
            change.state,
            change.attrs(),
            false,
        )?;
        let user = match plan.bar {
            Some(Bar::ConfiguredProfile) => users.configured,
            Some(Bar::OnlineProfile) => users.online,
            _ => None,
        };
        if let Some(id) = user {
            return Err(ProfileError::FormatInUse(id));
        }
        if plan.to == ProfileState::Init {
            *self = Self::default();
            return Ok(());
        }
        let mode = change.mode.or(self.mode);
        let format = match (change.fields, mode) {
            (Some(_), None) => {
                return Err(ProfileError::Missing {
                    need: Need::Mode,
                    to: plan.to,
                });
            }
            (Some(fields), Some(mode)) => Some(Format::new(mode, fields)?),
            (None, _) if mode != self.mode => None,
            (None, _) => self.format.clone(),
        };
        let has = |need| match need {
            Need::Mode => mode.is_some(),
            Need::Fields => format.is_some(),
            _ => true,
        };
        if let Some(&(_, need)) = plan.needs.iter().find(|(_, need)| !has(*need)) {
            return Err(ProfileError::Missing { need, to: plan.to });
        }
        self.state = plan.to;
        self.mode = mode;
        self.format = format;
        if let Some(vendor_cfg) = change.vendor_cfg {
            self.vendor_cfg = vendor_cfg;
        }
        Ok(())
    }
}
