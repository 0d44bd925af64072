//! Each header's values survive the wire, and each bit of the wire lands in a value or in an ignored field.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::net::{Ipv4Addr, Ipv6Addr};

use mrc_wire::*;
use proptest::prelude::*;

/// `parse(emit(value)) == value`, and the emitted bytes do not depend on what the buffer held.
macro_rules! survives {
    ($value:expr, $header:ty) => {{
        let value: $header = $value;
        let (mut zeroed, mut filled) = ([0u8; <$header>::LEN], [0xffu8; <$header>::LEN]);
        value.emit(&mut zeroed);
        value.emit(&mut filled);
        prop_assert_eq!(zeroed, filled);
        prop_assert_eq!(<$header>::parse(&zeroed), value);
    }};
}

/// Whatever the bytes, what `parse` reads from them is what it reads from its own output.
macro_rules! settles {
    ($bytes:expr, $header:ty) => {{
        let bytes: [u8; 40] = $bytes;
        let value = <$header>::parse(bytes.first_chunk().unwrap());
        let mut out = [0u8; <$header>::LEN];
        value.emit(&mut out);
        prop_assert_eq!(<$header>::parse(&out), value);
    }};
}

fn psn() -> impl Strategy<Value = Psn> {
    any::<u32>().prop_map(Psn::new)
}

prop_compose! {
    fn bth()(
        at in 0..Opcode::ALL.len(), flags in any::<[bool; 5]>(), pad in 0..4u8, p_key in any::<u16>(),
        dqp in any::<u32>(), psn in psn(),
    ) -> Bth {
        let [se, m, a, rtx, ts] = flags;
        Bth { opcode: Opcode::ALL[at], se, m, pad, p_key, dqp: Qpn::new(dqp), a, rtx, ts, psn }
    }
}

prop_compose! {
    fn seth()(
        m in 0..3usize, pr in any::<bool>(), trigger in any::<u16>(), entropy in any::<u32>(),
        ids in any::<(u16, u16)>(), cack_psn in psn(), cc in (0..16u8, 0..16u8), mpr in any::<u8>(),
        sack_offset in any::<i16>(), sack_bitmap in any::<u64>(),
    ) -> Seth {
        Seth {
            m: [PathVerdict::None, PathVerdict::SkipOnce, PathVerdict::AlwaysSkip][m],
            pr,
            ack_psn_offset_or_probe_id: trigger,
            entropy: Ev(entropy),
            spdcid: ids.0,
            dpdcid: ids.1,
            cack_psn,
            cc_type: cc.0,
            cc_fl: cc.1,
            mpr,
            sack_offset,
            sack_bitmap,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // wire-format.md §7.1 to §7.12
    #[test]
    fn transport_headers_survive(bth in bth(), seth in seth(), n in any::<[u16; 6]>(), w in any::<[u32; 2]>(), va in any::<u64>()) {
        let mut out = [0xff; Bth::LEN];
        bth.emit(&mut out);
        prop_assert_eq!(Bth::parse(&out), Some(bth));
        prop_assert_eq!(Bth::ignored(&out), BthIgnored { tver: 0, var_res: 0, r: false, inv_res: 0 });
        survives!(seth, Seth);
        let (byte, nibble) = (n[0] as u8, n[1] as u8 & 0xf);
        survives!(Meth { rqmsn: n[0], msn: n[1] }, Meth);
        survives!(Tseth { tx_timestamp: Tick(n[0]), tsr: n[1] & 1 == 1, ftype: nibble }, Tseth);
        survives!(Reth { va, r_key: w[0], dmalen: w[1] }, Reth);
        survives!(ImmDt(w[0].to_be_bytes()), ImmDt);
        survives!(Aeth { syndrome: byte, msn: w[0] & 0xff_ffff }, Aeth);
        survives!(CcState {
            tx_timestamp: Tick(n[0]), ooo_count: n[1] & 0x7fff, rc: n[2] & 1 == 1, rcv_cwnd_pen: n[3] as u8 & 0x7f,
            rcvd_bytes: w[0] & 0xff_ffff,
        }, CcState);
        survives!(Neth {
            reason: NackReason(byte), vendor_info: n[1] as u8, entropy: Ev(w[0]), spdcid: n[2], dpdcid: n[3],
            nack_psn: Psn::new(w[1]), tx_timestamp: Tick(n[4]),
        }, Neth);
        survives!(Peth { probe_id: n[0], spdcid: n[2], dpdcid: n[3], tx_timestamp: Tick(n[4]), ftype: nibble }, Peth);
        survives!(Erth {
            op: EndpointOp::new(byte), port_status_mask: w[0], tx_timestamp: Tick(n[4]), ftype: nibble,
        }, Erth);
        survives!(Eeth { op: EndpointOp::new(byte), tx_timestamp: Tick(n[4]) }, Eeth);
    }

    // wire-format.md §2.1 to §2.4, §5
    #[test]
    fn network_headers_survive(n in any::<[u16; 4]>(), b in any::<[u8; 8]>(), v4 in any::<[u32; 2]>(), v6 in any::<[u128; 2]>(), macs in any::<[[u8; 6]; 2]>()) {
        survives!(EthernetHeader { dst: macs[0], src: macs[1], ethertype: n[0] }, EthernetHeader);
        survives!(VlanTag { tci: n[0], ethertype: n[1] }, VlanTag);
        survives!(UdpHeader { src_port: n[0], dst_port: n[1], length: n[2], checksum: n[3] }, UdpHeader);
        survives!(SrhHeader {
            next_header: b[0], hdr_ext_len: b[1], routing_type: b[2], segments_left: b[3], last_entry: b[4],
            flags: b[5], tag: n[0],
        }, SrhHeader);
        survives!(Ipv4Header {
            version_ihl: b[0], tos: b[1], total_length: n[0], identification: n[1], flags_offset: n[2], ttl: b[2],
            protocol: b[3], checksum: n[3], src: Ipv4Addr::from_bits(v4[0]), dst: Ipv4Addr::from_bits(v4[1]),
        }, Ipv4Header);
        survives!(Ipv6Header {
            version: b[0] & 0xf, traffic_class: b[1], flow_label: v4[0] & 0xf_ffff, payload_length: n[0],
            next_header: b[2], hop_limit: b[3], src: Ipv6Addr::from_bits(v6[0]), dst: Ipv6Addr::from_bits(v6[1]),
        }, Ipv6Header);
    }

    #[test]
    fn any_bytes_settle(bytes in any::<[u8; 40]>()) {
        settles!(bytes, Seth);
        settles!(bytes, CcState);
        settles!(bytes, Neth);
        settles!(bytes, Peth);
        settles!(bytes, Erth);
        settles!(bytes, Eeth);
        settles!(bytes, Tseth);
        settles!(bytes, Aeth);
        settles!(bytes, Ipv4Header);
        settles!(bytes, Ipv6Header);
        if let Some(bth) = Bth::parse(bytes.first_chunk().unwrap()) {
            let mut out = [0; Bth::LEN];
            bth.emit(&mut out);
            prop_assert_eq!(Bth::parse(&out), Some(bth));
        }
    }
}

// wire-format.md §7.7
#[test]
fn the_reserved_path_verdict_reads_as_none() {
    let mut bytes = [0; Seth::LEN];
    Seth {
        m: PathVerdict::AlwaysSkip,
        ..Seth::default()
    }
    .emit(&mut bytes);
    bytes[1] |= 0x20;
    assert_eq!(Seth::parse(&bytes).m, PathVerdict::None);
}

#[test]
fn ignored_fields_are_shown_as_they_stand() {
    assert_eq!(
        Bth::ignored(&[0xc6, 0xff, 0, 0, 0x5a, 0, 0, 0, 0x4d, 0, 0, 0]),
        BthIgnored {
            tver: 15,
            var_res: 0x5a,
            r: true,
            inv_res: 13
        }
    );
    let mut seth = [0; Seth::LEN];
    seth[..2].copy_from_slice(&[0xa5, 0x80]);
    assert_eq!(
        Seth::ignored(&seth),
        TypeNxt {
            type_: 10,
            nxt: 0b01011
        }
    );
    assert_eq!(Tseth::ignored(&[0, 0, 0x7f, 0xf1]), TsethIgnored { reserved: 0x7ff });
    let mut peth = [0; Peth::LEN];
    (peth[3], peth[14], peth[15]) = (0x77, 0x80, 0x21);
    let ignored = Peth::ignored(&peth);
    assert_eq!((ignored.vendor_info, ignored.tsr, ignored.reserved), (0x77, true, 2));
}

// wire-format.md §7.8, protocol.md §6.5
#[test]
fn counters_saturate_or_wrap_as_specified() {
    let mut bytes = [0; CcState::LEN];
    CcState {
        ooo_count: u16::MAX,
        rcv_cwnd_pen: u8::MAX,
        rcvd_bytes: u32::MAX,
        ..CcState::default()
    }
    .emit(&mut bytes);
    let state = CcState::parse(&bytes);
    assert_eq!(
        (state.ooo_count, state.rcv_cwnd_pen, state.rcvd_bytes, state.rc),
        (0x7fff, 127, 0xff_ffff, false)
    );
}

// wire-format.md §7.7, protocol.md §6.5
#[test]
fn a_sack_names_its_trigger_and_its_base() {
    let seth = Seth {
        cack_psn: Psn::new(0xff_fffe),
        sack_offset: 1,
        ..Seth::default()
    };
    let triggered = Seth {
        ack_psn_offset_or_probe_id: 7,
        ..seth
    };
    assert_eq!(triggered.trigger_psn(), Some(Psn::new(5)));
    assert_eq!(triggered.probe_id(), None);
    let behind = Seth {
        ack_psn_offset_or_probe_id: (-3i16).cast_unsigned(),
        sack_offset: -6,
        ..seth
    };
    assert_eq!(behind.trigger_psn(), Some(Psn::new(0xff_fffb)));
    assert_eq!(behind.bitmap_base(), Psn::new(0xff_fff8));
    let answer = Seth {
        pr: true,
        ack_psn_offset_or_probe_id: 0xbeef,
        ..seth
    };
    assert_eq!((answer.probe_id(), answer.trigger_psn()), (Some(0xbeef), None));
}
