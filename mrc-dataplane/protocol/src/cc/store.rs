//! All congestion control profiles of a device (api.md §4.1, §4.11).

use alloc::collections::BTreeMap;

use super::profile::{CcChange, CcProfile, CcProfileError};
use crate::profile::{BUILT_IN, ProfileState};

/// Profiles by number. Any number exists in INIT, and costs nothing there.
///
/// ```
/// use mrc_protocol::cc::{Algorithm, CcChange, CcProfiles, Config};
/// use mrc_protocol::profile::ProfileState;
///
/// let mut profiles = CcProfiles::new(16, true);
/// let described = CcChange {
///     state: Some(ProfileState::Offline),
///     algorithm: Some(Algorithm::named(Some("uet-1.0-nscc"))?),
///     config: Some(Config::Defaults),
///     ..CcChange::default()
/// };
/// profiles.modify(7, &described)?;
/// profiles.modify(7, &CcChange { state: Some(ProfileState::Online), ..CcChange::default() })?;
/// let profile = profiles.bind(7)?;
/// assert_eq!(profile.algorithm(), Some(Algorithm::Nscc));
/// # Ok::<(), mrc_protocol::cc::CcProfileError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CcProfiles {
    max_profiles: u32,
    modify_online: bool,
    /// Those outside INIT, the built-in one included.
    profiles: BTreeMap<u64, CcProfile>,
}

impl CcProfiles {
    /// At most `max_profiles` outside INIT, the built-in one not counted. `modify_online`: configs may be changed while
    /// queue pairs use them.
    pub fn new(max_profiles: u32, modify_online: bool) -> Self {
        Self {
            max_profiles,
            modify_online,
            profiles: BTreeMap::from([(BUILT_IN, CcProfile::built_in())]),
        }
    }

    /// A profile; `None` in INIT.
    pub fn profile(&self, id: u64) -> Option<&CcProfile> {
        self.profiles.get(&id)
    }

    /// Its state.
    pub fn state(&self, id: u64) -> ProfileState {
        self.profile(id).map_or(ProfileState::Init, CcProfile::state)
    }

    /// Changes a profile, all or nothing. After a change in ONLINE the windows of its queue pairs are to be given the new
    /// [`CcProfile::params`].
    pub fn modify(&mut self, id: u64, change: &CcChange) -> Result<(), CcProfileError> {
        if id == BUILT_IN {
            return Err(CcProfileError::BuiltIn);
        }
        if let Some(profile) = self.profiles.get_mut(&id) {
            profile.modify(change, self.modify_online)?;
            if profile.state() == ProfileState::Init {
                self.profiles.remove(&id);
            }
            return Ok(());
        }
        let mut profile = CcProfile::default();
        profile.modify(change, self.modify_online)?;
        if profile.state() != ProfileState::Init {
            // The built-in one is on the map too.
            if self.profiles.len() > self.max_profiles as usize {
                return Err(CcProfileError::Slots(self.max_profiles));
            }
            self.profiles.insert(id, profile);
        }
        Ok(())
    }

    /// A queue pair begins to use a profile.
    pub fn bind(&mut self, id: u64) -> Result<&CcProfile, CcProfileError> {
        let profile = self.profiles.get_mut(&id);
        let profile = profile.filter(|profile| profile.state() == ProfileState::Online);
        let profile = profile.ok_or(CcProfileError::NotOnline(id))?;
        profile.bind();
        Ok(profile)
    }

    /// A queue pair no longer uses a profile that it was bound to.
    pub fn unbind(&mut self, id: u64) {
        if let Some(profile) = self.profiles.get_mut(&id) {
            profile.unbind();
        }
    }
}
