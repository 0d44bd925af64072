// SPDX-License-Identifier: MIT OR Apache-2.0
// Steering: MRC goes to the AF_XDP socket of its receive queue, everything else stays with the kernel.
// The rules are steps 1 and 2 of wire-format.md §11; their result is counted by reason.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_QUEUES 64
#define MAX_UDP_PORTS 8

#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd

#define PROTO_UDP 17
#define PROTO_IPV6 41
#define PROTO_ROUTING 43
#define ROUTING_TYPE_SEGMENTS 4

#define BTH_LEN 12
#define ICRC_LEN 4

// Why a frame went where it went. The order is that of `Verdict` in src/steering.rs.
enum verdict {
	STEERED = 0,
	NOT_IP,
	SECOND_TAG,
	IP_OPTIONS,
	FRAGMENT,
	NOT_UDP,
	OTHER_PORT,
	OTHER_OPCODE,
	BAD_LENGTH,
	NO_SOCKET,
	VERDICTS,
};

// Written by the loader, at any time. The layout is that of `Settings` in src/steering.rs.
struct settings {
	__u64 trimmed_dscps; // bit N: a switch sets DSCP N on packets that it has cut
	__u32 port_count;
	__u16 ports[MAX_UDP_PORTS]; // host byte order
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

// Headers as bytes: nothing here is aligned for certain, and the field's offsets are those of the RFCs.
struct eth {
	__u8 dst[6], src[6];
	__be16 type;
} __attribute__((packed));

struct vlan {
	__be16 tag, type;
} __attribute__((packed));

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 total_len, id, fragment;
	__u8 ttl, protocol;
	__be16 checksum;
	__be32 src, dst;
} __attribute__((packed));

struct ipv6 {
	__be32 version_class_label;
	__be16 payload_len;
	__u8 next_header, hop_limit;
	__u8 src[16], dst[16];
} __attribute__((packed));

struct routing {
	__u8 next_header, len, type, segments_left, rest[4];
} __attribute__((packed));

struct udp {
	__be16 src, dst, len, checksum;
} __attribute__((packed));

// Where we are in the frame. `at` is the header that is read next, `ends` the smallest end that an IP header has named.
struct place {
	void *at, *data_end;
	__u32 offset, frame_len, ends;
	bool trimmed; // a length may be stale, so it decides nothing (wire-format.md §10)
};

#define READ(place, type)                                                      \
	({                                                                     \
		type *header = (place)->at;                                    \
		if ((void *)(header + 1) > (place)->data_end)                  \
			return BAD_LENGTH;                                     \
		(place)->at = header + 1;                                      \
		(place)->offset += sizeof(type);                               \
		header;                                                        \
	})

static __always_inline bool is_trimmed(const struct settings *set, __u8 dscp)
{
	return (set->trimmed_dscps >> (dscp & 63)) & 1;
}

// The IP packet ends at `end`: an error when that is outside the frame or outside the packet around it.
static __always_inline bool end_fits(struct place *p, __u32 end)
{
	if (end > p->ends)
		return p->trimmed;
	p->ends = end;
	return true;
}

static __always_inline int read_udp(struct place *p, const struct settings *set)
{
	struct udp *udp = READ(p, struct udp);
	__u16 port = bpf_ntohs(udp->dst);
	__u8 *opcode;
	bool ours = false;

	for (int i = 0; i < MAX_UDP_PORTS; i++)
		ours |= i < set->port_count && set->ports[i] == port;
	if (!ours)
		return OTHER_PORT;

	opcode = p->at;
	if ((void *)(opcode + BTH_LEN) > p->data_end)
		return BAD_LENGTH;
	if (*opcode >> 5 != 6) // 0b110: the manufacturer opcodes that MRC has taken
		return OTHER_OPCODE;
	// A UDP length that contradicts the IP length makes a broken MRC packet, which is the engine's to count.
	if (!p->trimmed && p->offset + BTH_LEN + ICRC_LEN > p->ends)
		return BAD_LENGTH;
	return STEERED;
}

static __always_inline int read_ipv4(struct place *p, const struct settings *set)
{
	__u32 start = p->offset;
	struct ipv4 *ip = READ(p, struct ipv4);

	if (ip->version_ihl >> 4 != 4)
		return NOT_IP;
	if (ip->version_ihl != 0x45)
		return IP_OPTIONS;
	if (bpf_ntohs(ip->fragment) & 0x3fff) // MF or an offset
		return FRAGMENT;
	if (ip->protocol != PROTO_UDP)
		return NOT_UDP;
	p->trimmed = is_trimmed(set, ip->tos >> 2);
	if (!end_fits(p, start + bpf_ntohs(ip->total_len)))
		return BAD_LENGTH;
	return read_udp(p, set);
}

// `inner`: the tunnel is off already, and its DSCP was the effective one (wire-format.md §4).
static __always_inline int read_ipv6(struct place *p, const struct settings *set, bool inner, __u8 *next_header)
{
	struct ipv6 *ip = READ(p, struct ipv6);
	__u32 word = bpf_ntohl(ip->version_class_label);

	if (word >> 28 != 6)
		return NOT_IP;
	if (!inner)
		p->trimmed = is_trimmed(set, (word >> 22) & 63);
	if (!end_fits(p, p->offset + bpf_ntohs(ip->payload_len)))
		return BAD_LENGTH;
	*next_header = ip->next_header;
	return STEERED;
}

static __always_inline int read_srh(struct place *p)
{
	struct routing *srh = READ(p, struct routing);
	__u32 rest = (__u32)srh->len * 8;

	if (srh->type != ROUTING_TYPE_SEGMENTS || srh->next_header != PROTO_IPV6)
		return NOT_UDP;
	p->at += rest;
	p->offset += rest;
	return STEERED;
}

static __always_inline int read_any_ipv6(struct place *p, const struct settings *set)
{
	__u8 next = 0;
	int verdict = read_ipv6(p, set, false, &next);

	if (verdict != STEERED)
		return verdict;
	if (next == PROTO_UDP)
		return read_udp(p, set);
	if (next == PROTO_ROUTING)
		verdict = read_srh(p);
	else if (next != PROTO_IPV6)
		// 44 is the fragment header; to the kernel it is one more that is not UDP, to a reader of counters it is not.
		return next == 44 ? FRAGMENT : NOT_UDP;
	if (verdict != STEERED)
		return verdict;
	verdict = read_ipv6(p, set, true, &next);
	if (verdict != STEERED)
		return verdict;
	if (next != PROTO_UDP)
		return next == 44 ? FRAGMENT : NOT_UDP;
	return read_udp(p, set);
}

static __always_inline int read_frame(struct xdp_md *ctx, const struct settings *set)
{
	struct place place = {
		.at = (void *)(long)ctx->data,
		.data_end = (void *)(long)ctx->data_end,
		.frame_len = bpf_xdp_get_buff_len(ctx),
	};
	struct place *p = &place;
	struct eth *eth = READ(p, struct eth);
	__u16 type = bpf_ntohs(eth->type);

	place.ends = place.frame_len;
	if (type == ETHERTYPE_VLAN) {
		struct vlan *vlan = READ(p, struct vlan);

		type = bpf_ntohs(vlan->type);
		if (type == ETHERTYPE_VLAN)
			return SECOND_TAG;
	}
	if (type == ETHERTYPE_QINQ)
		return SECOND_TAG;
	if (type == ETHERTYPE_IPV4)
		return read_ipv4(p, set);
	if (type == ETHERTYPE_IPV6)
		return read_any_ipv6(p, set);
	return NOT_IP;
}

SEC("xdp.frags")
int steer(struct xdp_md *ctx)
{
	__u32 zero = 0, verdict;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	__u64 *count;
	int action = XDP_PASS;

	if (!set)
		return XDP_PASS;
	verdict = read_frame(ctx, set);
	if (verdict == STEERED) {
		// A queue without a socket: better the kernel sees it than nobody.
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT)
			verdict = NO_SOCKET;
	}
	count = bpf_map_lookup_elem(&verdicts, &verdict);
	if (count)
		*count += 1;
	return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
