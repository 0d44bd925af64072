//! Layers as named fields. Names are those of the specification; numbers that the specification writes in hexadecimal
//! are strings.

use std::fmt::{Display, LowerHex};

use mrc_wire::dissect::Layer;
use mrc_wire::{
    Aeth, Bth, CcState, Eeth, Erth, EthernetHeader, ImmDt, Ipv4Header, Ipv6Header, Meth, Neth, Opcode, Payload, Peth,
    PethIgnored, Reth, Seth, SrhHeader, Syndrome, Tseth, UdpHeader, VlanTag,
};
use serde_json::Value;

/// A header with its fields in the order of the wire.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<(&'static str, Value)>,
}

impl Section {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            fields: Vec::new(),
        }
    }

    pub(crate) fn field(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// `0x` and at least that many digits.
pub(crate) fn hex(value: impl LowerHex, digits: usize) -> Value {
    // The width counts the prefix.
    Value::String(format!("{value:#0width$x}", width = digits + 2))
}

pub(crate) fn mac(address: [u8; 6]) -> Value {
    let octets: Vec<String> = address.iter().map(|octet| format!("{octet:02x}")).collect();
    Value::String(octets.join(":"))
}

fn text(value: impl Display) -> Value {
    Value::String(value.to_string())
}

fn bit(value: bool) -> Value {
    Value::from(u8::from(value))
}

/// The fields of a layer; `None` for data, pad and ICRC, which are shown otherwise.
pub(crate) fn section(layer: &Layer<'_>) -> Option<Section> {
    Some(match layer {
        Layer::Ethernet(raw) => {
            let eth = EthernetHeader::parse(raw);
            Section::new("eth")
                .field("dst", mac(eth.dst))
                .field("src", mac(eth.src))
                .field("ethertype", hex(eth.ethertype, 4))
        }
        Layer::Vlan(raw) => {
            let tag = VlanTag::parse(raw);
            Section::new("vlan")
                .field("pcp", tag.tci >> 13)
                .field("dei", tag.tci >> 12 & 1)
                .field("vid", tag.tci & 0xfff)
                .field("ethertype", hex(tag.ethertype, 4))
        }
        Layer::Outer(raw) => ipv6("outer", raw),
        Layer::Ipv6(raw) => ipv6("ipv6", raw),
        Layer::Srh(raw, list) => srh(*raw, *list),
        Layer::Ipv4(raw) => ipv4(raw),
        Layer::Udp(raw) => {
            let udp = UdpHeader::parse(raw);
            Section::new("udp")
                .field("src_port", hex(udp.src_port, 4))
                .field("dst_port", udp.dst_port)
                .field("length", udp.length)
                .field("checksum", hex(udp.checksum, 4))
        }
        Layer::Bth(raw) => bth(raw),
        Layer::Meth(raw) => {
            let meth = Meth::parse(raw);
            Section::new("meth")
                .field("rqmsn", hex(meth.rqmsn, 4))
                .field("msn", hex(meth.msn, 4))
        }
        Layer::Tseth(raw) => {
            let tseth = Tseth::parse(raw);
            Section::new("tseth")
                .field("tx_timestamp", hex(tseth.tx_timestamp.0, 4))
                .field("tsr", bit(tseth.tsr))
                .field("reserved", Tseth::ignored(raw).reserved)
                .field("ftype", tseth.ftype)
        }
        Layer::Reth(raw) => {
            let reth = Reth::parse(raw);
            Section::new("reth")
                .field("va", hex(reth.va, 16))
                .field("r_key", hex(reth.r_key, 8))
                .field("dmalen", reth.dmalen)
        }
        Layer::ImmDt(raw) => Section::new("immdt").field("data", hex(u32::from_be_bytes(ImmDt::parse(raw).0), 8)),
        Layer::Aeth(raw) => {
            let aeth = Aeth::parse(raw);
            Section::new("aeth")
                .field("syndrome", hex(aeth.syndrome, 2))
                .field("msn", hex(aeth.msn, 6))
                .field("meaning", meaning(aeth.meaning()))
        }
        Layer::Seth(raw) => seth(raw),
        Layer::CcState(raw) => {
            let state = CcState::parse(raw);
            Section::new("cc_state")
                .field("tx_timestamp", hex(state.tx_timestamp.0, 4))
                .field("r", bit(CcState::ignored(raw)))
                .field("ooo_count", state.ooo_count)
                .field("restore_cwnd", bit(state.rc))
                .field("rcv_cwnd_pen", state.rcv_cwnd_pen)
                .field("rcvd_bytes", hex(state.rcvd_bytes, 6))
        }
        Layer::Neth(raw) => neth(raw),
        Layer::Peth(raw) => {
            let (peth, ignored) = (Peth::parse(raw), Peth::ignored(raw));
            let section = started("peth", ignored)
                .field("probe_id", hex(peth.probe_id, 4))
                .field("spdcid", hex(peth.spdcid, 4))
                .field("dpdcid", hex(peth.dpdcid, 4));
            stamped(section, peth.tx_timestamp.0, ignored, peth.ftype)
        }
        Layer::Erth(raw) => {
            let (erth, ignored) = (Erth::parse(raw), Erth::ignored(raw));
            let section = started("erth", ignored)
                .field("op", erth.op.get())
                .field("port_status_mask", hex(erth.port_status_mask, 8));
            stamped(section, erth.tx_timestamp.0, ignored, erth.ftype)
        }
        Layer::Eeth(raw) => {
            let (eeth, type_nxt) = (Eeth::parse(raw), Eeth::ignored(raw));
            Section::new("eeth")
                .field("type", type_nxt.type_)
                .field("nxt", type_nxt.nxt)
                .field("op", eeth.op.get())
                .field("tx_timestamp", hex(eeth.tx_timestamp.0, 4))
        }
        Layer::Data(_) | Layer::Pad(_) | Layer::Icrc(_) => return None,
    })
}

fn ipv4(raw: &[u8; Ipv4Header::LEN]) -> Section {
    let ip = Ipv4Header::parse(raw);
    Section::new("ipv4")
        .field("version_ihl", hex(ip.version_ihl, 2))
        .field("dscp", ip.tos >> 2)
        .field("ecn", ip.tos & 3)
        .field("total_length", ip.total_length)
        .field("identification", ip.identification)
        .field("flags_offset", hex(ip.flags_offset, 4))
        .field("ttl", ip.ttl)
        .field("protocol", ip.protocol)
        .field("checksum", hex(ip.checksum, 4))
        .field("src", text(ip.src))
        .field("dst", text(ip.dst))
}

fn ipv6(name: &'static str, raw: &[u8; Ipv6Header::LEN]) -> Section {
    let ip = Ipv6Header::parse(raw);
    Section::new(name)
        .field("version", ip.version)
        .field("dscp", ip.traffic_class >> 2)
        .field("ecn", ip.traffic_class & 3)
        .field("flow_label", hex(ip.flow_label, 5))
        .field("payload_length", ip.payload_length)
        .field("next_header", ip.next_header)
        .field("hop_limit", ip.hop_limit)
        .field("src", text(ip.src))
        .field("dst", text(ip.dst))
}

fn srh(raw: [u8; SrhHeader::LEN], list: Payload<'_>) -> Section {
    let srh = SrhHeader::parse(&raw);
    let mut entries = vec![0; list.len()];
    list.copy_to(&mut entries);
    let (entries, _) = entries.as_chunks::<{ SrhHeader::ENTRY_LEN }>();
    let segments: Vec<Value> = entries
        .iter()
        .map(|entry| text(std::net::Ipv6Addr::from(*entry)))
        .collect();
    Section::new("srh")
        .field("next_header", srh.next_header)
        .field("hdr_ext_len", srh.hdr_ext_len)
        .field("routing_type", srh.routing_type)
        .field("segments_left", srh.segments_left)
        .field("last_entry", srh.last_entry)
        .field("flags", srh.flags)
        .field("tag", srh.tag)
        .field("segment_list", segments)
}

fn bth(raw: &[u8; Bth::LEN]) -> Section {
    let opcode = Bth::raw_opcode(raw);
    let name = Opcode::from_wire(opcode).map(Opcode::name);
    // The other fields do not depend on the opcode, and a header without a known one is worth showing.
    let mut known = *raw;
    known[0] = Opcode::WriteOnly.wire();
    let section = Section::new("bth").field("opcode", hex(opcode, 2)).field("name", name);
    let Some(bth) = Bth::parse(&known) else { return section };
    let ignored = Bth::ignored(raw);
    section
        .field("se", bit(bth.se))
        .field("m", bit(bth.m))
        .field("pad", bth.pad)
        .field("tver", ignored.tver)
        .field("p_key", hex(bth.p_key, 4))
        .field("var_res", hex(ignored.var_res, 2))
        .field("dqp", text(bth.dqp))
        .field("a", bit(bth.a))
        .field("r", bit(ignored.r))
        .field("rtx", bit(bth.rtx))
        .field("ts", bit(bth.ts))
        .field("inv_res", ignored.inv_res)
        .field("psn", text(bth.psn))
}

fn seth(raw: &[u8; Seth::LEN]) -> Section {
    let (seth, type_nxt) = (Seth::parse(raw), Seth::ignored(raw));
    let section = Section::new("seth")
        .field("type", type_nxt.type_)
        .field("nxt", type_nxt.nxt)
        .field("m", seth.m as u8)
        .field("pr", bit(seth.pr));
    let section = match (seth.probe_id(), seth.ack_psn_offset()) {
        (Some(id), _) => section.field("probe_id", hex(id, 4)),
        (None, offset) => section.field("ack_psn_offset", offset),
    };
    section
        .field("entropy", text(seth.entropy))
        .field("spdcid", hex(seth.spdcid, 4))
        .field("dpdcid", hex(seth.dpdcid, 4))
        .field("cack_psn", text(seth.cack_psn))
        .field("cc_type", seth.cc_type)
        .field("cc_fl", seth.cc_fl)
        .field("mpr", seth.mpr)
        .field("sack_offset", seth.sack_offset)
        .field("sack_bitmap", hex(seth.sack_bitmap, 16))
}

fn neth(raw: &[u8; Neth::LEN]) -> Section {
    let neth = Neth::parse(raw);
    let (type_nxt, cc_type, cc_fl) = Neth::ignored(raw);
    Section::new("neth")
        .field("type", type_nxt.type_)
        .field("nxt", type_nxt.nxt)
        .field("nack_reason", hex(neth.reason.0, 2))
        .field("name", neth.reason.name())
        .field("vendor_info", neth.vendor_info)
        .field("entropy", text(neth.entropy))
        .field("spdcid", hex(neth.spdcid, 4))
        .field("dpdcid", hex(neth.dpdcid, 4))
        .field("nack_psn", text(neth.nack_psn))
        .field("cc_type", cc_type)
        .field("cc_fl", cc_fl)
        .field("tx_timestamp", hex(neth.tx_timestamp.0, 4))
}

fn started(name: &'static str, ignored: PethIgnored) -> Section {
    Section::new(name)
        .field("type", ignored.type_nxt.type_)
        .field("nxt", ignored.type_nxt.nxt)
        .field("vendor_info", ignored.vendor_info)
}

fn stamped(section: Section, tx_timestamp: u16, ignored: PethIgnored, ftype: u8) -> Section {
    section
        .field("tx_timestamp", hex(tx_timestamp, 4))
        .field("tsr", bit(ignored.tsr))
        .field("reserved", ignored.reserved)
        .field("ftype", ftype)
}

fn meaning(syndrome: Syndrome) -> &'static str {
    match syndrome {
        Syndrome::Ack => "ack",
        Syndrome::InvalidRequest => "nak_invalid_request",
        Syndrome::RemoteAccess => "nak_remote_access",
        Syndrome::RemoteOperational => "nak_remote_operational",
        Syndrome::Unused => "unused",
    }
}
