//! Completion queues.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mrc_dataplane::engine::CqId;
use mrc_dataplane::ring::{CompletionConsumer, CompletionEntry, CompletionWatch};

use crate::channel::ChannelInner;
use crate::completion::{WcOpcode, WcStatus, WorkCompletion};
use crate::context::ContextInner;
use crate::error::{Error, Result};
use crate::qp::SendQueue;

/// Where work requests report their end. A cheap handle; queue pairs keep their queues alive. Any thread may poll.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    context: Arc<ContextInner>,
    channel: Option<Arc<ChannelInner>>,
    id: CqId,
    depth: u32,
    watch: CompletionWatch,
    taker: Mutex<Taker>,
}

/// The consumer's end and those who want to know what was taken.
struct Taker {
    ring: CompletionConsumer,
    senders: HashMap<u32, Weak<SendQueue>>,
}

impl CompletionQueue {
    pub(crate) fn from_inner(inner: Arc<CqInner>) -> CompletionQueue {
        CompletionQueue { inner }
    }

    /// Takes completions, oldest first, and returns how many; fewer than asked for means that the queue is empty. Never
    /// blocks. On an empty queue the engine may be run for a moment in this thread.
    ///
    /// # Errors
    /// [`Error::CqOverrun`]: the queue was too small for what completed. It stays so; its queue pairs are in ERR.
    pub fn poll(&self, completions: &mut [WorkCompletion]) -> Result<usize> {
        let count = self.inner.take(completions)?;
        if count > 0 || completions.is_empty() || !self.inner.context.device().progress() {
            return Ok(count);
        }
        self.inner.take(completions)
    }

    /// Takes one completion.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_one(&self) -> Result<Option<WorkCompletion>> {
        let mut one = [WorkCompletion::EMPTY];
        Ok((self.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// Asks the channel for one event: at the next completion that is added, or, with `solicited_only`, at the next that the
    /// sender marked as solicited or that is an error. Completions that are there already give none, so poll once more
    /// before waiting. Arming twice keeps the wider condition. Without a channel nothing happens.
    pub fn arm(&self, solicited_only: bool) {
        if self.inner.channel.is_some() {
            self.inner.watch.arm(solicited_only);
        }
    }

    /// A number that tells this queue from others of the device; [`AsyncEvent::CqError`](crate::AsyncEvent) carries it.
    pub fn id(&self) -> u32 {
        self.inner.id.0
    }

    /// Completions that fit.
    pub fn depth(&self) -> u32 {
        self.inner.depth
    }

    pub(crate) fn inner(&self) -> &Arc<CqInner> {
        &self.inner
    }
}

impl PartialEq for CompletionQueue {
    fn eq(&self, other: &CompletionQueue) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({}, depth {})", self.inner.id.0, self.inner.depth)
    }
}

impl CqInner {
    pub(crate) fn create(
        context: &Arc<ContextInner>,
        depth: u32,
        channel: Option<&Arc<ChannelInner>>,
    ) -> Result<Arc<CqInner>> {
        let most = context.device().limits().max_cqe;
        if !(1..=most).contains(&depth) {
            return Err(Error::Invalid {
                what: "completion queue depth",
                value: depth.to_string(),
                limit: "1 to the device's max_cqe",
            });
        }
        let (id, ring) = context.device().create_cq(depth, channel.map(|channel| channel.fd()))?;
        let inner = Arc::new(CqInner {
            context: Arc::clone(context),
            channel: channel.cloned(),
            id,
            depth: ring.capacity(),
            watch: ring.watch(),
            taker: Mutex::new(Taker {
                ring,
                senders: HashMap::new(),
            }),
        });
        context.device().router().add_cq(id.0, context.events());
        if let Some(channel) = channel {
            channel.join(&inner);
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Taker> {
        self.taker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, completions: &mut [WorkCompletion]) -> Result<usize> {
        let mut taker = self.lock();
        let Taker { ring, senders } = &mut *taker;
        let mut sender: Option<(u32, Arc<SendQueue>)> = None;
        let mut count = 0;
        for slot in completions.iter_mut() {
            let entry = match ring.pop() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // What was taken before the overrun is still good.
                Err(_) if count > 0 => break,
                Err(_) => return Err(Error::CqOverrun { depth: self.depth }),
            };
            *slot = completion_of(&entry);
            count += 1;
            if slot.is_recv {
                continue;
            }
            if sender.as_ref().is_none_or(|(qpn, _)| *qpn != entry.qpn) {
                if let Some((_, queue)) = sender.take() {
                    queue.reclaim();
                }
                sender = senders
                    .get(&entry.qpn)
                    .and_then(Weak::upgrade)
                    .map(|queue| (entry.qpn, queue));
            }
            if let Some((_, queue)) = &sender {
                queue.polled(entry.wqe);
            }
        }
        drop(taker);
        if let Some((_, queue)) = sender {
            queue.reclaim();
        }
        Ok(count)
    }

    pub(crate) fn context(&self) -> &Arc<ContextInner> {
        &self.context
    }

    pub(crate) fn id(&self) -> u32 {
        self.id.0
    }

    pub(crate) fn engine_id(&self) -> CqId {
        self.id
    }

    pub(crate) fn watch(&self) -> &CompletionWatch {
        &self.watch
    }

    pub(crate) fn add_sender(&self, qpn: u32, queue: &Arc<SendQueue>) {
        self.lock().senders.insert(qpn, Arc::downgrade(queue));
    }

    /// Forgets the completions of a queue pair that was reset or destroyed.
    pub(crate) fn discard(&self, qpn: u32) {
        if let Err(error) = self.lock().ring.discard(qpn) {
            tracing::error!(%error, "completions of queue pair {qpn:#x} could not be removed");
        }
    }

    pub(crate) fn remove_sender(&self, qpn: u32) {
        self.lock().senders.remove(&qpn);
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.device().destroy_cq(self.id);
        self.context.device().router().remove_cq(self.id.0);
        if let Some(channel) = &self.channel {
            channel.leave(self.id.0);
        }
    }
}

fn completion_of(entry: &CompletionEntry) -> WorkCompletion {
    let is_recv = entry.opcode & CompletionEntry::RECV != 0;
    let opcode = if is_recv {
        WcOpcode::RecvRdmaWithImm
    } else {
        WcOpcode::RdmaWrite
    };
    let result = WcStatus::from_code(entry.status).map_or(Ok(opcode), Err);
    let ok = result.is_ok();
    WorkCompletion {
        wr_id: entry.wr_id,
        result,
        is_recv,
        byte_len: if ok { entry.byte_len } else { 0 },
        imm: (ok && entry.wc_flags & CompletionEntry::WITH_IMM != 0).then_some(entry.imm),
        qpn: entry.qpn,
        src_qpn: if ok { entry.src_qp } else { 0 },
        vendor_err: entry.vendor_err,
    }
}
