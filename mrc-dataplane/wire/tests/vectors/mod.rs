//! The worked packets of wire-format.md §12 from `vectors.json`: as bytes, and as the values that they decode to.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod edit;

use std::net::{IpAddr, Ipv6Addr};

use mrc_wire::*;
use serde_json::Value;

/// One worked packet.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) trimmed: bool,
    pub(crate) icrc_input: Option<Vec<u8>>,
    pub(crate) decoded: Value,
}

pub(crate) fn file() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

pub(crate) fn all() -> Vec<Vector> {
    let packets = file()["packets"].as_array().unwrap().clone();
    packets
        .into_iter()
        .map(|packet| Vector {
            name: packet["name"].as_str().unwrap().to_owned(),
            bytes: unhex(packet["hex"].as_str().unwrap()),
            trimmed: packet["trimmed"].as_bool().unwrap(),
            icrc_input: packet["icrc_input"].as_str().map(unhex),
            decoded: packet["decoded"].clone(),
        })
        .collect()
}

pub(crate) fn untrimmed() -> Vec<Vector> {
    all().into_iter().filter(|vector| !vector.trimmed).collect()
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// A JSON number, or a string with a number in hexadecimal.
pub(crate) fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        _ => value.as_u64().unwrap_or_else(|| panic!("not a number: {value}")),
    }
}

fn flag(value: &Value) -> bool {
    match number(value) {
        0 => false,
        1 => true,
        other => panic!("not a flag: {other}"),
    }
}

fn mac(value: &Value) -> [u8; 6] {
    unhex(&value.as_str().unwrap().replace(':', "")).try_into().unwrap()
}

fn ipv6(value: &Value) -> Ipv6Addr {
    value.as_str().unwrap().parse().unwrap()
}

pub(crate) fn rules(dscps: &Dscps) -> ReceiveRules<'_> {
    ReceiveRules {
        udp_ports: &[DEFAULT_UDP_PORT],
        dscps,
        ev_layout: EvLayout::FlowHigh,
    }
}

impl Vector {
    fn ip(&self) -> &Value {
        let ip = &self.decoded["ipv4"];
        if ip.is_null() { &self.decoded["ipv6"] } else { ip }
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        let address = |key: &str| self.ip()[key].as_str().unwrap().parse().unwrap();
        (address("src"), address("dst"))
    }

    pub(crate) fn dscp(&self) -> u8 {
        number(&self.ip()["dscp"]) as u8
    }

    pub(crate) fn ecn(&self) -> Ecn {
        Ecn::from_tos(number(&self.ip()["ecn"]) as u8)
    }

    pub(crate) fn ev(&self) -> Ev {
        Ev(number(&self.decoded["entropy"]) as u32)
    }

    pub(crate) fn udp_len(&self) -> u16 {
        number(&self.decoded["udp"]["length"]) as u16
    }

    pub(crate) fn payload(&self) -> Vec<u8> {
        self.decoded["payload"]["hex"].as_str().map(unhex).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> L3Path {
        let decoded = &self.decoded;
        let outer = &decoded["outer_ipv6"];
        let srh = &decoded["srh"];
        L3Path {
            src_mac: mac(&decoded["eth"]["src"]),
            dst_mac: mac(&decoded["eth"]["dst"]),
            vlan: None,
            ip: match self.addresses() {
                (IpAddr::V4(src), IpAddr::V4(dst)) => IpPair::V4 { src, dst },
                (IpAddr::V6(src), IpAddr::V6(dst)) => IpPair::V6 { src, dst },
                _ => unreachable!(),
            },
            srv6: (!outer.is_null()).then(|| Srv6Path {
                src: ipv6(&outer["src"]),
                container: ipv6(&outer["dst"]),
                srh: (!srh.is_null()).then(|| SrhEntry {
                    container: ipv6(&srh["segment_list"][0]),
                    segments_left: number(&srh["segments_left"]) as u8,
                }),
            }),
            hop_limit: 64,
            udp_port: number(&decoded["udp"]["dst_port"]) as u16,
        }
    }

    pub(crate) fn bth(&self) -> Bth {
        let bth = &self.decoded["bth"];
        for zero in ["tver", "var_res", "r", "inv_res"] {
            assert_eq!(number(&bth[zero]), 0, "{}: {zero}", self.name);
        }
        let opcode = Opcode::from_wire(number(&bth["opcode"]) as u8).unwrap();
        assert_eq!(opcode.name(), bth["name"]);
        Bth {
            opcode,
            se: flag(&bth["se"]),
            m: flag(&bth["m"]),
            pad: number(&bth["pad"]) as u8,
            p_key: number(&bth["p_key"]) as u16,
            dqp: Qpn::new(number(&bth["dqp"]) as u32),
            a: flag(&bth["a"]),
            rtx: flag(&bth["rtx"]),
            ts: flag(&bth["ts"]),
            psn: Psn::new(number(&bth["psn"]) as u32),
        }
    }

    fn tseth(&self) -> Option<Tseth> {
        let tseth = &self.decoded["tseth"];
        (!tseth.is_null()).then(|| Tseth {
            tx_timestamp: tick(&tseth["tx_timestamp"]),
            tsr: flag(&tseth["tsr"]),
            ftype: number(&tseth["ftype"]) as u8,
        })
    }

    fn meth(&self) -> Meth {
        let meth = &self.decoded["meth"];
        Meth {
            rqmsn: number(&meth["rqmsn"]) as u16,
            msn: number(&meth["msn"]) as u16,
        }
    }

    /// The headers behind the BTH; of a trimmed packet what a receiver may use.
    pub(crate) fn headers(&self) -> Headers {
        let decoded = &self.decoded;
        match self.bth().opcode {
            Opcode::Ack => {
                let aeth = &decoded["aeth"];
                Headers::Ack(Aeth {
                    syndrome: number(&aeth["syndrome"]) as u8,
                    msn: number(&aeth["msn"]) as u32,
                })
            }
            Opcode::Sack => Headers::Sack(seth(&decoded["seth"]), Some(cc_state(&decoded["cc_state"]))),
            Opcode::Nack => Headers::Nack(neth(&decoded["neth"])),
            Opcode::Probe => {
                let peth = &decoded["peth"];
                Headers::Probe(Peth {
                    probe_id: number(&peth["probe_id"]) as u16,
                    spdcid: number(&peth["spdcid"]) as u16,
                    dpdcid: number(&peth["dpdcid"]) as u16,
                    tx_timestamp: tick(&peth["tx_timestamp"]),
                    ftype: number(&peth["ftype"]) as u8,
                })
            }
            Opcode::EndpointRequest => {
                let erth = &decoded["erth"];
                Headers::EndpointRequest(Erth {
                    op: EndpointOp::new(number(&erth["op"]) as u8),
                    port_status_mask: number(&erth["port_status_mask"]) as u32,
                    tx_timestamp: tick(&erth["tx_timestamp"]),
                    ftype: number(&erth["ftype"]) as u8,
                })
            }
            Opcode::EndpointResponse => {
                let eeth = &decoded["eeth"];
                Headers::EndpointResponse(Eeth {
                    op: EndpointOp::new(number(&eeth["op"]) as u8),
                    tx_timestamp: tick(&eeth["tx_timestamp"]),
                })
            }
            _ if self.trimmed => Headers::Write {
                meth: self.meth(),
                tseth: self.tseth(),
                reth: Reth::default(),
                imm: None,
            },
            _ => {
                let reth = &decoded["reth"];
                let imm = &decoded["immdt"];
                Headers::Write {
                    meth: self.meth(),
                    tseth: self.tseth(),
                    reth: Reth {
                        va: number(&reth["va"]),
                        r_key: number(&reth["r_key"]) as u32,
                        dmalen: number(&reth["dmalen"]) as u32,
                    },
                    imm: (!imm.is_null()).then(|| ImmDt((number(imm) as u32).to_be_bytes())),
                }
            }
        }
    }

    pub(crate) fn outgoing(&self) -> Outgoing {
        Outgoing {
            bth: self.bth(),
            headers: self.headers(),
            ev: self.ev(),
            ev_layout: EvLayout::FlowHigh,
            dscp: self.dscp(),
            ecn: self.ecn(),
            payload_len: self.payload().len(),
        }
    }
}

fn tick(value: &Value) -> Tick {
    Tick(number(value) as u16)
}

fn seth(seth: &Value) -> Seth {
    let pr = flag(&seth["pr"]);
    let trigger = if pr {
        number(&seth["probe_id"]) as u16
    } else {
        i16::try_from(seth["ack_psn_offset"].as_i64().unwrap())
            .unwrap()
            .cast_unsigned()
    };
    Seth {
        m: match number(&seth["m"]) {
            0 => PathVerdict::None,
            1 => PathVerdict::SkipOnce,
            2 => PathVerdict::AlwaysSkip,
            other => panic!("m = {other}"),
        },
        pr,
        ack_psn_offset_or_probe_id: trigger,
        entropy: Ev(number(&seth["entropy"]) as u32),
        spdcid: number(&seth["spdcid"]) as u16,
        dpdcid: number(&seth["dpdcid"]) as u16,
        cack_psn: Psn::new(number(&seth["cack_psn"]) as u32),
        cc_type: number(&seth["cc_type"]) as u8,
        cc_fl: number(&seth["cc_fl"]) as u8,
        mpr: number(&seth["mpr"]) as u8,
        sack_offset: seth["sack_offset"].as_i64().unwrap().try_into().unwrap(),
        sack_bitmap: number(&seth["sack_bitmap"]),
    }
}

fn cc_state(state: &Value) -> CcState {
    CcState {
        tx_timestamp: tick(&state["tx_timestamp"]),
        ooo_count: number(&state["ooo_count"]) as u16,
        rc: flag(&state["restore_cwnd"]),
        rcv_cwnd_pen: number(&state["rcv_cwnd_pen"]) as u8,
        rcvd_bytes: number(&state["rcvd_bytes"]) as u32,
    }
}

fn neth(neth: &Value) -> Neth {
    assert_eq!(number(&neth["cc_type"]), u64::from(Neth::CC_TYPE));
    Neth {
        reason: NackReason(number(&neth["nack_reason"]) as u8),
        vendor_info: number(&neth["vendor_info"]) as u8,
        entropy: Ev(number(&neth["entropy"]) as u32),
        spdcid: number(&neth["spdcid"]) as u16,
        dpdcid: number(&neth["dpdcid"]) as u16,
        nack_psn: Psn::new(number(&neth["nack_psn"]) as u32),
        tx_timestamp: tick(&neth["tx_timestamp"]),
    }
}
