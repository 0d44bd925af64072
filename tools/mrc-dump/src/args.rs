//! The command line.

#![expect(clippy::doc_markdown, reason = "doc comments on options are their help texts")]

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use mrc_capture::{Filter, Request};
use mrc_wire::{DEFAULT_UDP_PORT, DscpError, Dscps, EvLayout};

use crate::decode::Settings;

/// Decode MRC packets.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Decode(DecodeArgs),
    Summary(SummaryArgs),
    Live(LiveArgs),
}

/// Show every field of every packet, and whether a receiver would accept it.
///
/// The verdict is that of wire-format.md §11 as far as it needs no queue pairs: `accept`, `drop`, `not-mrc` (steering
/// leaves such a frame to the kernel), `cut` if the frame ends before its packet does, or `unknown` if the capture holds
/// too little of the frame to tell.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DecodeArgs {
    /// A pcap or pcapng file, an Ethernet frame as hex digits, or - for standard input (a capture, or one frame as hex
    /// digits per line).
    #[arg(required = true, value_name = "INPUT", allow_hyphen_values = false)]
    pub(crate) input: Vec<String>,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,
}

/// Tell who talked to whom, on which paths, and what went wrong.
///
/// One line per queue pair that was sent to: packets, bytes, data, retransmissions, SACKs, NACKs and the rest; below it
/// its EVs with the same. Queue pairs of one connection stand together, as far as SACKs, NACKs and probes name both.
#[derive(Debug, ClapArgs)]
#[command(after_help = SUMMARY_EXAMPLES)]
pub(crate) struct SummaryArgs {
    /// A pcap or pcapng file, or - for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) input: String,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// EVs shown per queue pair, those with most packets first. JSON has all.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub(crate) evs: usize,

    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,
}

/// Capture from the engine of a running program, which AF_XDP hides from tcpdump.
///
/// The program must have been started with MRC_CONTROL=DIR or XDG_RUNTIME_DIR in its environment, and run as the same
/// user (or you as root). To capture a program from its start to its end, start it with MRC_CAPTURE=FILE instead.
/// Interrupt (Ctrl-C) to end: what was dropped since the buffer was full is told then.
#[derive(Debug, ClapArgs)]
#[command(after_help = LIVE_EXAMPLES)]
pub(crate) struct LiveArgs {
    /// Process id, or control socket. Not needed if there is only one.
    #[arg(value_name = "PROCESS")]
    pub(crate) process: Option<String>,

    /// Write pcapng to this file (- for standard output) instead of showing packets.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["json", "data"])]
    pub(crate) write: Option<String>,

    /// End after so many packets; a file may get a few more.
    #[arg(short, long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,

    /// Bytes to keep of each packet.
    #[arg(long, value_name = "BYTES", default_value_t = Request::LONGEST, value_parser = clap::value_parser!(u32).range(1..=i64::from(Request::LONGEST)))]
    pub(crate) snaplen: u32,

    /// Packets that may wait in the engine to be written.
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=i64::from(Request::LARGEST_BUFFER)))]
    pub(crate) buffer: u32,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,
}

/// How packets are shown.
#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// Print one JSON object per packet and line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show the data of writes in full (JSON: as `payload`).
    #[arg(long)]
    pub(crate) data: bool,
}

/// Which packets, and what the receiver is configured for.
#[derive(Debug, ClapArgs)]
pub(crate) struct ReceiverArgs {
    /// Only packets of which every word holds: qp=, ev=, about= (the EV that a SACK or NACK reports on), opcode=, port=
    /// (interface or its number), dir=tx|rx; several values of a word with commas.
    #[arg(short, long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub(crate) filter: Filter,

    /// UDP destination port that carries MRC; may be repeated.
    #[arg(long, value_name = "PORT", default_values_t = [DEFAULT_UDP_PORT])]
    udp_port: Vec<u16>,

    /// Which half of the EV lies in the flow label.
    #[arg(long, value_enum, default_value_t = Layout::FlowHi)]
    ev_layout: Layout,

    /// A code point that differs from the default, NAME=VALUE; may be repeated. Names and defaults: no_trim=0
    /// trimmable=4 trimmable_retx=8 trimmed=12 trimmed_lasthop=16 control=46. The value `none` takes trimmable,
    /// trimmable_retx or trimmed_lasthop away.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_dscp)]
    dscp: Vec<DscpSetting>,
}

const EXAMPLES: &str = "\
Examples:
  mrc-dump decode 020000000b01020000000a0186dd6b80...
  mrc-dump decode capture.pcapng
  mrc-dump decode --json capture.pcap | jq 'select(.verdict == \"drop\") | .reason'
  tcpdump -i eth0 -U -w - udp port 4791 | mrc-dump decode -
  mrc-dump decode --filter 'qp=0x11 opcode=sack,nack' capture.pcapng
  mrc-dump decode --udp-port 4791 --udp-port 4971 --dscp trimmed=9 capture.pcap

Exit status: 0 if no packet would be dropped, 1 if one would or is cut, 2 if the input could not be read.";

const SUMMARY_EXAMPLES: &str = "\
Examples:
  mrc-dump summary capture.pcapng
  mrc-dump summary --filter 'port=p3' --evs 64 capture.pcapng
  mrc-dump summary --json capture.pcapng | jq '.flows[] | select(.retransmitted > 0)'

Exit status: 0, or 2 if the input could not be read.";

const LIVE_EXAMPLES: &str = "\
Examples:
  mrc-dump live
  mrc-dump live 4711 --filter 'opcode=nack' --count 10
  mrc-dump live 4711 -w capture.pcapng --snaplen 128
  mrc-dump live -w - | wireshark -k -i -
  MRC_CAPTURE='/tmp/%p.pcapng,opcode=sack,nack snaplen=128' mrc-perf client ...

Exit status: 0, or 2 if the capture could not be made or broke off.";

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Layout {
    /// EV[31:16] = flow label, EV[15:0] = UDP source port.
    FlowHi,
    /// EV[31:16] = UDP source port, EV[15:0] = flow label.
    PortHi,
}

#[derive(Clone, Copy, Debug)]
struct DscpSetting {
    name: DscpName,
    value: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
enum DscpName {
    NoTrim,
    Trimmable,
    TrimmableRetx,
    Trimmed,
    TrimmedLasthop,
    Control,
}

fn parse_dscp(text: &str) -> Result<DscpSetting, String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let (name, optional) = match name {
        "no_trim" => (DscpName::NoTrim, false),
        "trimmable" => (DscpName::Trimmable, true),
        "trimmable_retx" => (DscpName::TrimmableRetx, true),
        "trimmed" => (DscpName::Trimmed, false),
        "trimmed_lasthop" => (DscpName::TrimmedLasthop, true),
        "control" => (DscpName::Control, false),
        _ => return Err(format!("there is no DSCP called {name}")),
    };
    if value == "none" && optional {
        return Ok(DscpSetting { name, value: None });
    }
    match value.parse() {
        Ok(value) if value < 64 => Ok(DscpSetting {
            name,
            value: Some(value),
        }),
        _ => Err("give a number from 0 to 63".to_owned()),
    }
}

impl ReceiverArgs {
    /// What the options say about the receiver.
    pub(crate) fn settings(&self) -> Result<Settings, DscpError> {
        let mut dscps = Dscps::default();
        for DscpSetting { name, value } in &self.dscp {
            match (name, value) {
                (DscpName::Trimmable, value) => dscps.trimmable = *value,
                (DscpName::TrimmableRetx, value) => dscps.trimmable_retx = *value,
                (DscpName::TrimmedLasthop, value) => dscps.trimmed_lasthop = *value,
                (DscpName::NoTrim, Some(value)) => dscps.no_trim = *value,
                (DscpName::Trimmed, Some(value)) => dscps.trimmed = *value,
                (DscpName::Control, Some(value)) => dscps.control = *value,
                (DscpName::NoTrim | DscpName::Trimmed | DscpName::Control, None) => {}
            }
        }
        let ev_layout = match self.ev_layout {
            Layout::FlowHi => EvLayout::FlowHigh,
            Layout::PortHi => EvLayout::PortHigh,
        };
        dscps.validate()?;
        Ok(Settings {
            udp_ports: self.udp_port.clone(),
            dscps,
            ev_layout,
        })
    }
}
