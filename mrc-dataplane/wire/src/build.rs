//! From values to a frame in the caller's buffer, data and ICRC in one pass.

use crate::icrc::Icrc;
use crate::{
    Aeth, Bth, CcState, Ecn, Eeth, Erth, Ev, EvLayout, Headers, ICRC_LEN, ImmDt, L3Template, Meth, Neth, Opcode,
    Payload, Peth, Reth, Seth, Tseth, UdpHeader,
};

/// One packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// `pad` and `ts` are filled in from the rest.
    pub bth: Bth,
    /// What follows the BTH; must fit its opcode.
    pub headers: Headers,
    /// The path.
    pub ev: Ev,
    /// How the EV is put into the packet.
    pub ev_layout: EvLayout,
    /// Code point, see [`crate::Dscps::of`].
    pub dscp: u8,
    /// ECT(0) on requests, not capable on answers (W9).
    pub ecn: Ecn,
    /// Data bytes; writes only.
    pub payload_len: usize,
}

/// A packet that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The headers do not belong to the opcode.
    #[error("opcode {0} was given the headers of another packet: use the headers that wire-format.md §6 lists for it")]
    Headers(Opcode),
    /// Only writes carry data.
    #[error("opcode {0} carries no data: set payload_len to 0")]
    Data(Opcode),
    /// The data does not fit an IP packet.
    #[error("{payload_len} bytes of data exceed an IP packet of 65535 bytes: split the message at the PMTU")]
    TooLong {
        /// Data bytes.
        payload_len: usize,
    },
    /// The buffer is too small.
    #[error("the frame needs {needed} bytes and the buffer has {room}: see `frame_len`")]
    Room {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// Headers may not straddle two buffers.
    #[error("the headers need {needed} bytes in the first buffer, which has {room}: give a larger first buffer")]
    HeadRoom {
        /// Bytes up to the end of the MRC headers.
        needed: usize,
        /// Bytes in the first buffer.
        room: usize,
    },
    /// More data than `payload_len`, or, at the end, less.
    #[error("the packet was to carry {payload_len} bytes of data and was given {given}")]
    DataLength {
        /// Data bytes announced.
        payload_len: usize,
        /// Data bytes given so far.
        given: usize,
    },
}

/// Pad bytes behind that much data.
const fn pad_len(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// Bytes of the whole frame, without FCS.
#[inline]
pub const fn frame_len(template: &L3Template, headers: &Headers, payload_len: usize) -> usize {
    headers_len(template, headers)
        .saturating_add(payload_len)
        .saturating_add(pad_len(payload_len) + ICRC_LEN)
}

/// Bytes before the data.
const fn headers_len(template: &L3Template, headers: &Headers) -> usize {
    template.header_len() + Bth::LEN + headers.wire_len()
}

/// Writes everything before the data to the start of `buf`, lengths, pad count and checksums filled in, and returns how
/// many bytes that is. The data, the pad and the ICRC are the caller's: [`seal`] adds the last two.
#[inline]
pub fn write_headers(buf: &mut [u8], template: &L3Template, packet: &Outgoing) -> Result<usize, BuildError> {
    let Outgoing {
        bth,
        headers,
        payload_len,
        ..
    } = *packet;
    if !headers.fit(bth.opcode) {
        return Err(BuildError::Headers(bth.opcode));
    }
    if payload_len != 0 && !bth.opcode.is_write() {
        return Err(BuildError::Data(bth.opcode));
    }
    let pad = pad_len(payload_len);
    // All of the packet must fit the 16-bit lengths of the outermost IP header; Ethernet's bytes are too many by some.
    if payload_len > u16::MAX as usize || frame_len(template, &headers, payload_len) > u16::MAX as usize {
        return Err(BuildError::TooLong { payload_len });
    }
    let udp_len = UdpHeader::LEN + Bth::LEN + headers.wire_len() + payload_len + pad + ICRC_LEN;

    let needed = headers_len(template, &headers);
    let room = buf.len();
    let out = buf.get_mut(..needed).ok_or(BuildError::HeadRoom { needed, room })?;
    let (below, behind) = out.split_at_mut(template.header_len());
    template.write(
        below,
        packet.ev,
        packet.ev_layout,
        packet.dscp,
        packet.ecn,
        udp_len as u16,
    );

    let mut out = Emitter { out: behind };
    let ts = matches!(headers, Headers::Write { tseth: Some(_), .. });
    let bth = Bth {
        pad: pad as u8,
        ts: if bth.opcode.is_write() { ts } else { bth.ts },
        ..bth
    };
    out.put(|b| bth.emit(b));
    emit_headers(&mut out, &headers);
    Ok(needed)
}

#[inline]
fn emit_headers(out: &mut Emitter<'_>, headers: &Headers) {
    match headers {
        Headers::Write { meth, tseth, reth, imm } => {
            out.put::<{ Meth::LEN }>(|b| meth.emit(b));
            if let Some(tseth) = tseth {
                out.put::<{ Tseth::LEN }>(|b| tseth.emit(b));
            }
            out.put::<{ Reth::LEN }>(|b| reth.emit(b));
            if let Some(imm) = imm {
                out.put::<{ ImmDt::LEN }>(|b| imm.emit(b));
            }
        }
        Headers::Ack(aeth) => out.put::<{ Aeth::LEN }>(|b| aeth.emit(b)),
        Headers::Sack(seth, state) => {
            out.put::<{ Seth::LEN }>(|b| seth.emit(b));
            out.put::<{ CcState::LEN }>(|b| state.unwrap_or_default().emit(b));
        }
        Headers::Nack(neth) => out.put::<{ Neth::LEN }>(|b| neth.emit(b)),
        Headers::Probe(peth) => out.put::<{ Peth::LEN }>(|b| peth.emit(b)),
        Headers::EndpointRequest(erth) => out.put::<{ Erth::LEN }>(|b| erth.emit(b)),
        Headers::EndpointResponse(eeth) => out.put::<{ Eeth::LEN }>(|b| eeth.emit(b)),
    }
}

struct Emitter<'a> {
    out: &'a mut [u8],
}

impl Emitter<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, emit: impl FnOnce(&mut [u8; N])) {
        if let Some((room, rest)) = core::mem::take(&mut self.out).split_first_chunk_mut() {
            emit(room);
            self.out = rest;
        }
    }
}

/// Adds pad and ICRC to a frame whose headers [`write_headers`] wrote and whose data stands behind them. Returns the
/// frame's length.
pub fn seal(buf: &mut [u8], template: &L3Template, headers: &Headers, payload_len: usize) -> Result<usize, BuildError> {
    let needed = frame_len(template, headers, payload_len);
    let room = buf.len();
    let frame = buf.get_mut(..needed).ok_or(BuildError::Room { needed, room })?;
    let icrc_at = needed - ICRC_LEN;
    frame[icrc_at - pad_len(payload_len)..icrc_at].fill(0);
    let body = Payload::new(&frame[template.ip_at()..icrc_at]);
    let icrc = Icrc::of(template.kind(), body).ok_or(BuildError::Room { needed, room })?;
    frame[icrc_at..].copy_from_slice(&icrc);
    Ok(needed)
}

/// Builds a whole frame from data in one piece. Returns its length.
pub fn build_frame(
    buf: &mut [u8],
    template: &L3Template,
    packet: &Outgoing,
    payload: &[u8],
) -> Result<usize, BuildError> {
    let mut frame = FrameWriter::start(buf, &mut [], template, packet)?;
    frame.copy(payload)?;
    frame.finish()
}

/// Builds a frame in one or two buffers while its data comes in pieces: each byte is copied and taken into the ICRC in
/// the same pass.
///
/// The headers go to `head`; data, pad and ICRC may straddle both buffers. A `head` that is longer than the frame stays
/// unused behind it; `tail` is used only behind a full `head`.
pub struct FrameWriter<'b> {
    head: &'b mut [u8],
    tail: &'b mut [u8],
    at: usize,
    data_at: usize,
    payload_len: usize,
    icrc: Icrc,
}

impl<'b> FrameWriter<'b> {
    /// Checks the room for the whole frame and writes the headers.
    #[inline]
    pub fn start(
        head: &'b mut [u8],
        tail: &'b mut [u8],
        template: &L3Template,
        packet: &Outgoing,
    ) -> Result<Self, BuildError> {
        let at = write_headers(head, template, packet)?;
        let (needed, room) = (
            frame_len(template, &packet.headers, packet.payload_len),
            head.len() + tail.len(),
        );
        if needed > room {
            return Err(BuildError::Room { needed, room });
        }
        let written = head.get(template.ip_at()..at).unwrap_or_default();
        let icrc = Icrc::begin(template.kind(), Payload::new(written)).ok_or(BuildError::Room { needed, room })?;
        Ok(Self {
            head,
            tail,
            at,
            data_at: at,
            payload_len: packet.payload_len,
            icrc,
        })
    }

    /// Data bytes that are still to come.
    pub const fn remaining(&self) -> usize {
        self.data_at + self.payload_len - self.at
    }

    /// Appends a piece of the data.
    #[inline]
    pub fn copy(&mut self, mut piece: &[u8]) -> Result<(), BuildError> {
        self.fill(piece.len(), |out| {
            let (now, later) = piece.split_at(out.len());
            out.copy_from_slice(now);
            piece = later;
            Ok(())
        })
    }

    /// Appends `len` bytes of data that `write` puts into the slices it is given: one, or two where they straddle the
    /// buffers. The ICRC reads what stands there afterwards, so that it fits what is sent even if the source of the
    /// data changes meanwhile.
    #[inline]
    pub fn fill<E: From<BuildError>>(
        &mut self,
        len: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if len > self.remaining() {
            let given = self.at - self.data_at + len;
            return Err(BuildError::DataLength {
                payload_len: self.payload_len,
                given,
            }
            .into());
        }
        self.append(len, &mut write)
    }

    /// Adds pad and ICRC. Returns the length of the frame.
    #[inline]
    pub fn finish(mut self) -> Result<usize, BuildError> {
        if self.remaining() != 0 {
            let given = self.at - self.data_at;
            return Err(BuildError::DataLength {
                payload_len: self.payload_len,
                given,
            });
        }
        self.append(
            pad_len(self.payload_len),
            &mut |out: &mut [u8]| -> Result<(), BuildError> {
                out.fill(0);
                Ok(())
            },
        )?;
        for byte in self.icrc.finish() {
            if let Some(room) = room(self.head, self.tail, self.at, 1).first_mut() {
                *room = byte;
            }
            self.at += 1;
        }
        Ok(self.at)
    }

    #[inline]
    fn append<E>(&mut self, mut len: usize, write: &mut impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        while len > 0 {
            let out = room(self.head, self.tail, self.at, len);
            write(out)?;
            self.icrc.update(out);
            len -= out.len();
            self.at += out.len();
        }
        Ok(())
    }
}

/// As many of the `len` bytes from offset `at` as lie in one buffer. `start` has checked that both hold the frame.
#[inline]
fn room<'r>(head: &'r mut [u8], tail: &'r mut [u8], at: usize, len: usize) -> &'r mut [u8] {
    let (buffer, at) = if at < head.len() {
        (head, at)
    } else {
        (tail, at - head.len())
    };
    let end = buffer.len().min(at + len);
    &mut buffer[at..end]
}
