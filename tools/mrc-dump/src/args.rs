//! The command line.

#![expect(clippy::doc_markdown, reason = "doc comments on options are their help texts")]

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
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
}

/// Show every field of every packet, and whether a receiver would accept it.
///
/// The verdict is that of wire-format.md §11 as far as it needs no queue pairs: `accept`, `drop`, `not-mrc` (steering
/// leaves such a frame to the kernel), or `unknown` if the capture holds too little of the frame to tell.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DecodeArgs {
    /// A pcap or pcapng file, an Ethernet frame as hex digits, or - for standard input (a capture, or one frame as hex
    /// digits per line).
    #[arg(required = true, value_name = "INPUT", allow_hyphen_values = false)]
    pub(crate) input: Vec<String>,

    /// Print one JSON object per packet and line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show the data of writes in full (JSON: as `payload`).
    #[arg(long)]
    data: bool,

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
  mrc-dump decode --udp-port 4791 --udp-port 4971 --dscp trimmed=9 capture.pcap

Exit status: 0 if no packet would be dropped, 1 if one would, 2 if the input could not be read.";

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

impl DecodeArgs {
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
            show_data: self.data,
        })
    }
}
