//! pcap and pcapng files.

use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use mrc_capture::Direction;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::packet::PacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

use super::link::Link;
use super::{CapturedFrame, InputError, Item, Place, Statistics};

/// The two file formats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Pcap,
    PcapNg,
}

impl Format {
    /// By the first four bytes of the file.
    pub(super) fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Some(Self::Pcap),
            [0x0a, 0x0d, 0x0d, 0x0a] => Some(Self::PcapNg),
            _ => None,
        }
    }
}

pub(super) fn each_item<E: From<InputError>>(
    name: &str,
    format: Format,
    reader: impl Read,
    each: &mut impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let mut capture = Capture { name, frames: 0, each };
    match format {
        Format::Pcap => capture.pcap(reader),
        Format::PcapNg => capture.pcapng(reader),
    }
}

struct Capture<'a, F> {
    name: &'a str,
    frames: u64,
    each: &'a mut F,
}

impl<F> Capture<'_, F> {
    fn damaged(&self, error: &PcapError) -> InputError {
        let what = match error {
            PcapError::IoError(source) => source.to_string(),
            other => other.to_string(),
        };
        InputError::Damaged {
            name: self.name.to_owned(),
            frames: self.frames,
            what: what.to_lowercase(),
        }
    }

    fn link(&self, link_type: DataLink) -> Result<Link, InputError> {
        Link::of(link_type).ok_or_else(|| InputError::LinkType {
            name: self.name.to_owned(),
            link_type: format!("{link_type:?} ({})", u32::from(link_type)),
        })
    }

    fn pcap<E: From<InputError>>(&mut self, reader: impl Read) -> Result<(), E>
    where
        F: FnMut(Item) -> Result<(), E>,
    {
        let mut reader = PcapReader::new(reader).map_err(|error| self.damaged(&error))?;
        let header = reader.header();
        let link = self.link(header.datalink)?;
        // Not `next_packet`: it takes a frame for damaged that was longer on the wire than the snap length.
        while let Some(packet) = reader.next_raw_packet() {
            let packet = packet.map_err(|error| self.damaged(&error))?;
            let fraction = match header.ts_resolution {
                TsResolution::MicroSecond => packet.ts_frac.saturating_mul(1000),
                TsResolution::NanoSecond => packet.ts_frac,
            };
            let time = Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(fraction.into());
            self.frame(link, Some(time), &packet.data, packet.orig_len, None)?;
        }
        Ok(())
    }

    fn pcapng<E: From<InputError>>(&mut self, reader: impl Read) -> Result<(), E>
    where
        F: FnMut(Item) -> Result<(), E>,
    {
        let mut reader = PcapNgReader::new(reader).map_err(|error| self.damaged(&error))?;
        let mut interfaces: Vec<Interface> = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(|error| self.damaged(&error))? {
                Block::SectionHeader(_) => interfaces.clear(),
                Block::InterfaceDescription(described) => {
                    interfaces.push(Interface::of(interfaces.len() as u32 + 1, &described));
                }
                Block::InterfaceStatistics(statistics) => {
                    let dropped = statistics.options.iter().filter_map(|option| match option {
                        InterfaceStatisticsOption::IsbIfDrop(count) | InterfaceStatisticsOption::IsbOsDrop(count) => {
                            Some(*count)
                        }
                        _ => None,
                    });
                    (self.each)(Item::Statistics(Statistics { dropped: dropped.sum() }))?;
                }
                Block::EnhancedPacket(packet) => {
                    let interface = self.interface(&interfaces, packet.interface_id)?;
                    let direction = packet.options.iter().find_map(direction);
                    // The reader takes every stamp for nanoseconds; the interface says what it counts.
                    let time = interface.time(packet.timestamp.as_nanos() as u64);
                    self.frame(
                        self.link(interface.link_type)?,
                        Some(time),
                        &packet.data,
                        packet.original_len,
                        Some((&interface.place, direction)),
                    )?;
                }
                Block::Packet(packet) => {
                    let interface = self.interface(&interfaces, packet.interface_id.into())?;
                    let time = interface.time(packet.timestamp);
                    self.frame(
                        self.link(interface.link_type)?,
                        Some(time),
                        &packet.data,
                        packet.original_len,
                        Some((&interface.place, packet.options.iter().find_map(direction_of_old))),
                    )?;
                }
                Block::SimplePacket(packet) => {
                    let interface = self.interface(&interfaces, 0)?;
                    let mut captured = packet.original_len as usize;
                    if interface.snaplen != 0 {
                        captured = captured.min(interface.snaplen as usize);
                    }
                    let data = packet.data.get(..captured).unwrap_or(&packet.data);
                    let place = Some((&interface.place, None));
                    self.frame(self.link(interface.link_type)?, None, data, packet.original_len, place)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn interface<'i>(&self, interfaces: &'i [Interface], id: u32) -> Result<&'i Interface, InputError> {
        let known = interfaces.get(id as usize);
        known.ok_or_else(|| self.damaged(&PcapError::InvalidInterfaceId(id)))
    }

    fn frame<E: From<InputError>>(
        &mut self,
        link: Link,
        time: Option<Duration>,
        data: &[u8],
        original_len: u32,
        place: Option<(&Place, Option<Direction>)>,
    ) -> Result<(), E>
    where
        F: FnMut(Item) -> Result<(), E>,
    {
        self.frames += 1;
        let (bytes, cooked) = link.ethernet(data);
        let missing = (original_len as usize).saturating_sub(data.len());
        let cut_from = (missing > 0).then_some(bytes.len() + missing);
        (self.each)(Item::Frame(CapturedFrame {
            number: self.frames,
            time,
            bytes,
            cut_from,
            cooked,
            place: place.map(|(place, _)| place.clone()),
            direction: place.and_then(|(_, direction)| direction),
        }))
    }
}

/// The flags word of a packet: its lowest two bits are the direction.
fn direction(option: &EnhancedPacketOption<'_>) -> Option<Direction> {
    match option {
        EnhancedPacketOption::Flags(flags) => of_flags(*flags),
        _ => None,
    }
}

fn direction_of_old(option: &PacketOption<'_>) -> Option<Direction> {
    match option {
        PacketOption::Flags(flags) => of_flags(*flags),
        _ => None,
    }
}

fn of_flags(flags: u32) -> Option<Direction> {
    match flags & 3 {
        1 => Some(Direction::Rx),
        2 => Some(Direction::Tx),
        _ => None,
    }
}

/// What a pcapng file says about the place where a frame was captured.
struct Interface {
    place: Place,
    link_type: DataLink,
    snaplen: u32,
    ticks_per_second: u64,
}

impl Interface {
    fn of(number: u32, described: &InterfaceDescriptionBlock<'_>) -> Self {
        let resolution = described.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(value) => Some(*value),
            _ => None,
        });
        // The top bit chooses between powers of two and of ten; without the option it is microseconds.
        let resolution = resolution.unwrap_or(6);
        let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
        let ticks_per_second = base.checked_pow(u32::from(resolution & 0x7f)).unwrap_or(u64::MAX);
        let name = described.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfName(name) => Some(Rc::from(&**name)),
            _ => None,
        });
        Self {
            place: Place { number, name },
            link_type: described.linktype,
            snaplen: described.snaplen,
            ticks_per_second,
        }
    }

    fn time(&self, ticks: u64) -> Duration {
        let (secs, rest) = (ticks / self.ticks_per_second, ticks % self.ticks_per_second);
        let nanos = u128::from(rest) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Duration::new(secs, nanos as u32)
    }
}
