//! Posting writes and receives (api.md §3.6).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mrc_dataplane::ring::RecvEntry;

use crate::error::{Error, Result};

use super::attr::QpState;
use super::pair::QueuePair;
use super::send::{Posted, RawSendRequest, SendRequest};

/// A list was posted up to a request that was refused.
#[derive(Debug, thiserror::Error)]
#[error("request {index} of the list: {error}")]
pub struct PostListError {
    /// Which one; those before it are posted.
    pub index: usize,
    /// Why.
    #[source]
    pub error: Error,
}

impl QueuePair {
    /// Posts a write.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::PostState`] outside RTS and ERR; [`Error::Invalid`] for too many pieces, too much
    /// inline data or an immediate where `max_wimm` is 0; [`Error::Foreign`] for a region of another protection domain.
    pub fn post_write(&self, request: &SendRequest<'_>) -> Result<()> {
        let mut posted = self.send.lock();
        self.push(&mut posted, request)?;
        self.ring(posted.publish());
        Ok(())
    }

    /// Posts writes in order up to the first that is refused.
    ///
    /// # Errors
    /// Which one was refused, and why as in [`post_write`](Self::post_write); those before it are posted.
    pub fn post_write_list(&self, requests: &[SendRequest<'_>]) -> Result<(), PostListError> {
        let mut posted = self.send.lock();
        let mut outcome = Ok(());
        for (index, request) in requests.iter().enumerate() {
            outcome = self
                .push(&mut posted, request)
                .map_err(|error| PostListError { index, error });
            if outcome.is_err() {
                break;
            }
        }
        self.ring(posted.publish());
        outcome
    }

    /// Posts a write whose pieces are named by address and key.
    ///
    /// # Safety
    /// The regions that the pieces lie in must stay registered until the write has completed for it to succeed; a piece that
    /// is not registered fails and is not read. The caller answers for data races on the pieces.
    ///
    /// # Errors
    /// As [`post_write`](Self::post_write).
    #[expect(unsafe_code, reason = "the caller vouches for the memory")]
    pub unsafe fn post_write_raw(&self, request: &RawSendRequest<'_>) -> Result<()> {
        let mut posted = self.send.lock();
        self.may_send(request.imm.is_some())?;
        self.send.push_raw(&mut posted, request)?;
        self.ring(posted.publish());
        Ok(())
    }

    fn push(&self, posted: &mut Posted, request: &SendRequest<'_>) -> Result<()> {
        self.may_send(request.has_imm())?;
        if request.regions().any(|region| !Arc::ptr_eq(region.pd(), &self.pd)) {
            return Err(Error::Foreign {
                what: "memory region",
                scope: "protection domain",
            });
        }
        self.send.push(posted, request)
    }

    fn may_send(&self, imm: bool) -> Result<()> {
        let state = self.posting_state();
        if !matches!(state, QpState::Rts | QpState::Err) {
            return Err(Error::PostState {
                what: "write",
                state,
                remedy: "bring the queue pair to RTS first (QueuePair::connect)",
            });
        }
        if imm && self.max_wimm.load(Ordering::Acquire) == 0 {
            return Err(Error::Invalid {
                what: "write with immediate",
                value: "posted".into(),
                limit: "max_wimm of this queue pair is 0; set it on the way to RTS",
            });
        }
        Ok(())
    }

    /// Posts a receive, which one write with immediate of the peer will consume. It has no memory: data goes where the
    /// write says.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::PostState`] in RESET.
    pub fn post_recv(&self, wr_id: u64) -> Result<()> {
        self.post_recv_list(&[wr_id]).map_err(|refused| refused.error)
    }

    /// Posts receives in order up to the first that is refused.
    ///
    /// # Errors
    /// As [`post_recv`](Self::post_recv), with the index.
    pub fn post_recv_list(&self, wr_ids: &[u64]) -> Result<(), PostListError> {
        let mut recv = self.recv_queue();
        let state = self.posting_state();
        if state == QpState::Reset && !wr_ids.is_empty() {
            let remedy = "bring the queue pair to INIT first";
            return Err(PostListError {
                index: 0,
                error: Error::PostState {
                    what: "receive",
                    state,
                    remedy,
                },
            });
        }
        let mut outcome = Ok(());
        for (index, wr_id) in wr_ids.iter().enumerate() {
            if let Err(full) = recv.push(RecvEntry { wr_id: *wr_id }) {
                let error = Error::QueueFull {
                    queue: "receive",
                    depth: full.depth,
                    cap: "max_recv_wr",
                };
                outcome = Err(PostListError { index, error });
                break;
            }
        }
        self.ring(recv.publish());
        outcome
    }

    fn ring(&self, is_new: bool) {
        if is_new {
            self.doorbell.ring();
        }
    }
}
