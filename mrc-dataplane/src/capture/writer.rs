//! The writer of a session: packets to pcapng.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mrc_capture::Direction;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::session::{Record, Session};

/// How long the writer sleeps when there is nothing to write. Engine threads do not wake it: that would be a system call.
const NAP: Duration = Duration::from_millis(1);
/// Nanoseconds: 10^-9 s.
const RESOLUTION: u8 = 9;
/// Values of the flags word of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes a session until it is finished, or until `is_over` says that nobody wants it any more (asked between naps).
pub(super) fn run(session: &Session, to: impl Write, mut is_over: impl FnMut() -> bool) -> io::Result<()> {
    let mut file = begin(session, BufWriter::with_capacity(1 << 16, to)).map_err(into_io)?;
    loop {
        // Asked before the queue is: what was offered until then is written.
        let last = session.is_finished() || is_over();
        while let Some(written) = session.take(|record| file.write_pcapng_block(block(record))) {
            written.map_err(into_io)?;
        }
        if last {
            break;
        }
        file.get_mut().flush()?;
        std::thread::sleep(NAP);
    }
    end(session, &mut file).map_err(into_io)?;
    file.get_mut().flush()
}

fn begin<W: Write>(session: &Session, to: W) -> Result<PcapNgWriter<W>, PcapError> {
    let application = format!("mrc-dataplane {}", env!("CARGO_PKG_VERSION"));
    let section = SectionHeaderBlock {
        endianness: Endianness::native(),
        options: vec![
            SectionHeaderOption::UserApplication(application.into()),
            SectionHeaderOption::Comment(format!("engine of process {}", std::process::id()).into()),
        ],
        ..SectionHeaderBlock::default()
    };
    let mut file = PcapNgWriter::with_section_header(to, section)?;
    for interface in &session.interfaces {
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, session.request.snaplen);
        block.options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&interface.name)),
            InterfaceDescriptionOption::IfMacAddr(Cow::Borrowed(&interface.mac)),
            InterfaceDescriptionOption::IfTsResol(RESOLUTION),
        ];
        if let Some(speed) = interface.speed_bps {
            block.options.push(InterfaceDescriptionOption::IfSpeed(speed));
        }
        if !session.request.filter.is_empty() {
            // 0: as text.
            let filter = format!("\0{}", session.request.filter);
            let filter = InterfaceDescriptionOption::IfFilter(filter.into_bytes().into());
            block.options.push(filter);
        }
        file.write_pcapng_block(block)?;
    }
    Ok(file)
}

fn block(record: &Record) -> EnhancedPacketBlock<'_> {
    let flags = match record.direction {
        Direction::Rx => INBOUND,
        Direction::Tx => OUTBOUND,
    };
    EnhancedPacketBlock {
        interface_id: record.port as u32,
        timestamp: since_epoch(record.time),
        original_len: record.len as u32,
        data: Cow::Borrowed(&record.bytes[..record.kept]),
        options: vec![EnhancedPacketOption::Flags(flags)],
    }
}

fn end<W: Write>(session: &Session, file: &mut PcapNgWriter<W>) -> Result<(), PcapError> {
    let now = SystemTime::now();
    // These stamps are in two halves, the high one first, whatever the byte order.
    let stamp = |time| {
        let nanos = since_epoch(time).as_nanos() as u64;
        if cfg!(target_endian = "little") {
            nanos.rotate_left(32)
        } else {
            nanos
        }
    };
    for (id, counts) in session.counts.iter().enumerate() {
        file.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: id as u32,
            timestamp: stamp(now),
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(stamp(session.started)),
                InterfaceStatisticsOption::IsbEndTime(stamp(now)),
                InterfaceStatisticsOption::IsbIfRecv(counts.seen.load(Ordering::Relaxed)),
                InterfaceStatisticsOption::IsbFilterAccept(counts.wanted.load(Ordering::Relaxed)),
                InterfaceStatisticsOption::IsbIfDrop(counts.dropped.load(Ordering::Relaxed)),
                InterfaceStatisticsOption::IsbUsrDeliv(counts.written.load(Ordering::Relaxed)),
            ],
        })?;
    }
    Ok(())
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
