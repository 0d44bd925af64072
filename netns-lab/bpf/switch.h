// SPDX-License-Identifier: MIT OR Apache-2.0
// What the switch programs and their loader (src/switch) agree on, and the headers that they read.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SLOTS 1024
#define HOPS 8192

#define ROUTE_KERNEL 0
#define ROUTE_STRUCTURED 1
#define ROUTE_SRV6 2

// Classes of every port's HTB, as `skb->priority` names them.
#define CLASS_CONTROL 0x10010
#define CLASS_DATA 0x10020

#define PORT_TRIM 1
#define PORT_ECN 2

// wire-format.md §4
#define DSCP_TRIMMABLE 4
#define DSCP_TRIMMABLE_RETX 8
#define DSCP_TRIMMED 12
#define DSCP_TRIMMED_LASTHOP 16
#define DSCP_CONTROL 46

// A port of a switch; `node` is 0 where there is none.
struct port {
	__u32 node;
	__u32 flags;
	__u32 limit; // bytes of data that may wait
	__u32 control_room; // bytes of both classes that may wait beyond that
	__u32 ecn_min, ecn_max; // bytes
	__u32 ecn_chance; // just below ecn_max, of 2^32
	__u32 trim_len; // bytes, Ethernet header included
	__u32 trimmed_dscp;
	__u32 detour; // interface that takes what comes in, and brings it back later; 0: none
};

#define INWARD 0 // from the link into the switch
#define OUTWARD 1 // from the switch into the link

#define FAULT_CUT 1 // nothing passes at all
#define FAULT_ALL 2 // what is chosen below is lost
#define FAULT_MRC_ONLY 4
#define FAULT_EV 8 // only packets whose EV is `ev` under `ev_mask`
#define FAULT_NTH 16
#define FAULT_LOSS 32
#define FAULT_FLIP 64

// What happens to packets in one direction of a port.
struct fault {
	__u32 flags;
	__u32 loss, flip; // chances, of 2^32
	__u32 nth;
	__u32 ev, ev_mask;
	__u32 random; // never 0
	__u32 seen; // counts up to `nth`
};

struct counters {
	__u64 packets, bytes; // queued for the link
	__u64 marked, trimmed;
	__u64 dropped; // the queue was full
	__u64 lost, flipped; // by faults, both directions
	__u64 no_path; // arrived with an address or EV that names no port
	__u64 high_water; // most bytes that have waited
	__u64 mrc_in, mrc_out; // packets of MRC that came in whole, and of those in `packets`
};

// Where to find the next hop: a uSID, a host, or an uplink, at one switch.
struct hop_key {
	__u32 node;
	__u32 what;
};

#define HOP_HOST 0x10000
#define HOP_UPLINK 0x20000

#define HOP_NEIGHBOUR 0
#define HOP_SELF 1 // uN: the switch's own uSID
#define HOP_ADJACENCY 2 // uA

struct hop {
	__u32 kind;
	__u32 ifindex;
	__u8 macs[12]; // destination, source
};

#define SID_BLOCK 0x5f000000

// The first 32 bits of node addresses; the last 16 are the host's number.
#define NODE_PREFIX 0xfd4d5243

// Hop 0 of a structured EV is the plane, hop 1 the uplink of the T0.
#define EV_UPLINK_SHIFT 24
#define EV_UPLINK_MASK 0xf

#define ETH_LEN 14
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_IPV6 41
#define PROTO_ROUTING 43
#define ROUTING_TYPE_SEGMENTS 4

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 len, id, fragment;
	__u8 ttl, protocol;
	__be16 sum;
	__be32 src, dst;
} __attribute__((packed));

struct ipv6 {
	__be32 word; // version, traffic class, flow label
	__be16 len;
	__u8 next, hop_limit, src[16], dst[16];
} __attribute__((packed));

struct srh {
	__u8 next, len, type, segments_left, last, flags;
	__be16 tag;
} __attribute__((packed));
