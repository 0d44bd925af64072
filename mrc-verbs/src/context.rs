//! Contexts: parents of completion queues and queue pairs, and receivers of their events.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::channel::CompletionChannel;
use crate::cq::{CompletionQueue, CqInner};
use crate::device::{DeviceContext, DeviceInner};
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, EventQueue};
use crate::pd::ProtectionDomain;
use crate::qp::{QpInit, QueuePair};

/// Version of the application interface that a program was written to (api.md §2): major, minor, sub-minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion(u32);

impl ApiVersion {
    /// 1.0.0.
    pub const V1_0_0: ApiVersion = ApiVersion(0x0100_0000);
    /// 1.0.1, the current version.
    pub const V1_0_1: ApiVersion = ApiVersion(0x0100_0001);
    /// The newest version of this library.
    pub const LATEST: ApiVersion = ApiVersion::V1_0_1;

    /// The effective version for a declared one (api.md D8): 0 and all ones stand for the latest, anything below 1.0.0
    /// behaves as 1.0.0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a version newer than this library.
    pub fn declared(value: u32) -> Result<ApiVersion> {
        match value {
            0 | u32::MAX => Ok(ApiVersion::LATEST),
            value if value > ApiVersion::LATEST.0 => Err(Error::Invalid {
                what: "API version",
                value: ApiVersion(value).to_string(),
                limit: "this library speaks up to 1.0.1; update it",
            }),
            value => Ok(ApiVersion(value.max(ApiVersion::V1_0_0.0))),
        }
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 >> 24, (self.0 >> 16) & 0xff, self.0 & 0xffff)
    }
}

impl fmt::Debug for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiVersion({self})")
    }
}

/// A context: parent of completion channels, completion queues and queue pairs. A cheap handle; children keep it alive.
///
/// Its [`AsFd`] is readable while asynchronous events wait.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    device: Arc<DeviceInner>,
    version: ApiVersion,
    events: Arc<EventQueue>,
}

impl Context {
    /// A context on `device` for a program written to `version`.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no file descriptors left.
    pub fn open(device: &DeviceContext, version: ApiVersion) -> Result<Context> {
        let device = Arc::clone(device.inner());
        let events = Arc::new(EventQueue::new()?);
        device.router().add_context(&events);
        Ok(Context {
            inner: Arc::new(ContextInner {
                device,
                version,
                events,
            }),
        })
    }

    /// The effective API version.
    pub fn version(&self) -> ApiVersion {
        self.inner.version
    }

    /// A completion queue for at least `depth` completions.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `depth` is 0 or above the device's limit.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue> {
        CqInner::create(&self.inner, depth, None).map(CompletionQueue::from_inner)
    }

    /// A completion queue whose events go to `channel`.
    ///
    /// # Errors
    /// As [`create_cq`](Self::create_cq); [`Error::Foreign`] for a channel of another context.
    pub fn create_cq_with_channel(&self, depth: u32, channel: &CompletionChannel) -> Result<CompletionQueue> {
        if !Arc::ptr_eq(channel.inner().context(), &self.inner) {
            return Err(Error::Foreign {
                what: "completion channel",
                scope: "context",
            });
        }
        CqInner::create(&self.inner, depth, Some(channel.inner())).map(CompletionQueue::from_inner)
    }

    /// A completion channel.
    ///
    /// # Errors
    /// As [`CompletionChannel::new`].
    pub fn create_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::new(self)
    }

    /// A queue pair in RESET.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size beyond the device's limits, [`Error::Foreign`] if a completion queue or the domain belong
    /// elsewhere, [`Error::Command`] if the engine is full.
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QpInit<'_>) -> Result<QueuePair> {
        QueuePair::create(&self.inner, pd, init)
    }

    /// The next asynchronous event, waited for at most `timeout` (`None`: for ever).
    pub fn next_event(&self, timeout: Option<Duration>) -> Option<AsyncEvent> {
        self.inner.events.next(timeout)
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.inner
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.as_fd()
    }
}

impl ContextInner {
    pub(crate) fn device(&self) -> &Arc<DeviceInner> {
        &self.device
    }

    pub(crate) fn events(&self) -> &Arc<EventQueue> {
        &self.events
    }
}

impl fmt::Debug for ContextInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.device)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_versions_follow_the_rule() {
        for (declared, effective) in [
            (0, "1.0.1"),
            (u32::MAX, "1.0.1"),
            (1, "1.0.0"),
            (0x0100_0000, "1.0.0"),
            (0x0100_0001, "1.0.1"),
        ] {
            assert_eq!(ApiVersion::declared(declared).unwrap().to_string(), effective);
        }
        assert!(ApiVersion::declared(0x0100_0002).is_err());
        assert!(ApiVersion::declared(0x0200_0000).is_err());
    }
}
