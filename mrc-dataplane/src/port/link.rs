//! What is known of one link, written by whoever follows it (the netlink watcher) and read by everybody.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::eventfd::EventFd;

/// State of a link. One writer, any readers, no lock: each value stands for itself.
#[derive(Debug, Default)]
pub struct LinkState {
    up: AtomicBool,
    present: AtomicBool,
    mtu: AtomicU32,
    mac: AtomicU64,
    changes: AtomicU32,
    doubted: AtomicBool,
    follower: OnceLock<Arc<EventFd>>,
}

impl LinkState {
    /// A present link with these values.
    pub fn new(up: bool, mtu: u32, mac: [u8; 6]) -> Self {
        let link = Self::default();
        link.set(up, mtu, mac);
        link
    }

    /// Whether frames can pass: administratively up, carrier there.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether the interface exists. Once `false`, the port does not come back without a new engine.
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    /// Largest IP packet in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Acquire)
    }

    /// MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let [mac @ .., _, _] = self.mac.load(Ordering::Acquire).to_le_bytes();
        mac
    }

    /// How often anything of this has changed; a cheap way to see whether to look again.
    pub fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// Something was dropped on transmission, as it is when the carrier is gone: whoever follows the link should look now,
    /// since the kernel tells of a lost carrier up to a second late.
    pub fn doubt(&self) {
        if !self.doubted.swap(true, Ordering::AcqRel)
            && let Some(follower) = self.follower.get()
        {
            // A full counter wakes as well.
            let _ = follower.write(1);
        }
    }

    /// Whether somebody has doubted since this was asked last.
    pub(crate) fn take_doubt(&self) -> bool {
        self.doubted.load(Ordering::Acquire) && self.doubted.swap(false, Ordering::AcqRel)
    }

    /// Whom a doubt wakes.
    pub(crate) fn set_follower(&self, follower: Arc<EventFd>) {
        // Nobody follows a link twice.
        let _ = self.follower.set(follower);
    }

    /// Stores what is known now; returns whether anything changed.
    pub fn set(&self, up: bool, mtu: u32, mac: [u8; 6]) -> bool {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&mac);
        let mac = u64::from_le_bytes(bytes);
        let mut changed = !self.present.swap(true, Ordering::AcqRel);
        changed |= self.mtu.swap(mtu, Ordering::AcqRel) != mtu;
        changed |= self.mac.swap(mac, Ordering::AcqRel) != mac;
        changed |= self.up.swap(up, Ordering::AcqRel) != up;
        if changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        changed
    }

    /// Only the up / down part; returns whether it changed.
    pub fn set_up(&self, up: bool) -> bool {
        let changed = self.up.swap(up, Ordering::AcqRel) != up;
        if changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        changed
    }

    /// The interface was deleted.
    pub(crate) fn set_gone(&self) -> bool {
        let was = self.present.swap(false, Ordering::AcqRel);
        self.set_up(false) | was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once() {
        let link = LinkState::new(true, 1500, [2, 0, 0, 0, 0, 1]);
        let before = link.changes();
        assert!(!link.set(true, 1500, [2, 0, 0, 0, 0, 1]));
        assert!(link.set(false, 1500, [2, 0, 0, 0, 0, 1]));
        assert_eq!(link.changes(), before + 1);
        assert_eq!(
            (link.is_up(), link.mtu(), link.mac()),
            (false, 1500, [2, 0, 0, 0, 0, 1])
        );
        assert!(link.set_gone());
        assert!(!link.is_present());
    }
}
