// SPDX-License-Identifier: MIT OR Apache-2.0
// What the ports of a fabric's switches do, beside what the kernel does anyhow.
//
// `ingress` forwards by SRv6 addresses (uN and uA) and by structured EVs, and lets everything else go on to the kernel.
// `egress` is the queue: it sorts packets into the control and the data class of the port's HTB, marks, trims and drops by what really
// waits there. Both apply the faults that the lab orders, each for the packets of its direction.
#include "switch.h"

// Interfaces of the lab have the indices from this one on; slot n is interface first_index + n.
const volatile __u32 first_index = 0;
const volatile __u32 routing = ROUTE_KERNEL;
const volatile __u16 mrc_port = 4791;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS * 2);
	__type(key, __u32);
	__type(value, struct fault);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOPS);
	__type(key, struct hop_key);
	__type(value, struct hop);
} hops SEC(".maps");

#define ADD(counter, n) __sync_fetch_and_add(&(counter), (n))

// ---- what a packet is -----------------------------------------------------------------------------------------------------------

struct packet {
	__u32 l3, udp; // offsets; udp is that of the inner header in a tunnel
	__u32 entropy; // wire-format.md §3
	__u8 version, dscp, next, hop_limit;
	bool mrc;
	bool transport; // UDP or TCP, tunnelled or not: the rest is what the fabric itself needs
};

static __always_inline bool load(struct __sk_buff *skb, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, at, to, len) == 0;
}

static __always_inline void read_udp(struct __sk_buff *skb, struct packet *p, __u32 at, __u32 label)
{
	struct { __be16 src, dst, len, sum; __u8 opcode; } __attribute__((packed)) udp;

	p->transport = true;
	if (!load(skb, at, &udp, sizeof(udp)))
		return;
	p->udp = at;
	p->entropy = (label & 0xffff) << 16 | bpf_ntohs(udp.src);
	p->mrc = bpf_ntohs(udp.dst) == mrc_port && udp.opcode >> 5 == 6;
}

static __always_inline void read_packet(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = ETH_LEN;
	struct ipv6 ip;

	__builtin_memset(p, 0, sizeof(*p));
	p->l3 = at;
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		struct ipv4 v4;

		if (!load(skb, at, &v4, sizeof(v4)))
			return;
		p->version = 4;
		p->dscp = v4.tos >> 2;
		p->next = v4.protocol;
		p->transport = v4.protocol == PROTO_TCP;
		if (v4.protocol == PROTO_UDP && v4.version_ihl == 0x45)
			read_udp(skb, p, at + sizeof(v4), 0);
		return;
	}
	if (skb->protocol != bpf_htons(ETHERTYPE_IPV6) || !load(skb, at, &ip, sizeof(ip)))
		return;
	p->version = 6;
	p->dscp = bpf_ntohl(ip.word) >> 22 & 63;
	p->next = ip.next;
	p->hop_limit = ip.hop_limit;
	p->transport = ip.next == PROTO_TCP;
	at += sizeof(ip);
	if (ip.next == PROTO_ROUTING) {
		struct srh srh;

		if (!load(skb, at, &srh, sizeof(srh)) || srh.next != PROTO_IPV6)
			return;
		ip.next = PROTO_IPV6;
		at += 8 + 8 * (__u32)srh.len;
	}
	if (ip.next == PROTO_IPV6) {
		p->transport = true;
		if (!load(skb, at, &ip, sizeof(ip)))
			return;
		at += sizeof(ip);
	}
	if (ip.next == PROTO_UDP)
		read_udp(skb, p, at, bpf_ntohl(ip.word));
}

// ---- faults ---------------------------------------------------------------------------------------------------------------------

// The lab seeds it; two cores at once may draw the same number, which does no harm.
static __always_inline __u32 draw(struct fault *f)
{
	__u32 x = f->random;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	f->random = x;
	return x;
}

static __always_inline void flip_bit(struct __sk_buff *skb, const struct packet *p, struct fault *f)
{
	// Behind the opcode, so that the packet still arrives where it was to go: what an ICRC is for.
	__u32 from = p->udp + 8 + 1, room = skb->len - from, at, random = draw(f);
	__u8 byte;

	if (!p->udp || from >= skb->len)
		return;
	at = from + (random >> 3) % room;
	if (!load(skb, at, &byte, 1))
		return;
	byte ^= 1 << (random & 7);
	bpf_skb_store_bytes(skb, at, &byte, 1, 0);
}

// True if the packet is lost.
static __always_inline bool broken(struct __sk_buff *skb, const struct packet *p, __u32 slot, __u32 direction)
{
	__u32 key = slot * 2 + direction;
	struct fault *f = bpf_map_lookup_elem(&faults, &key);
	struct counters *c;
	bool lost = false;

	if (!f || !f->flags)
		return false;
	c = bpf_map_lookup_elem(&counts, &slot);
	if (!c)
		return false;
	if (f->flags & FAULT_CUT)
		lost = true;
	else if (!p->mrc && (f->flags & FAULT_MRC_ONLY || !p->transport))
		return false;
	else if (f->flags & FAULT_EV && (p->entropy & f->ev_mask) != f->ev)
		return false;
	else if (f->flags & FAULT_ALL)
		lost = true;
	else if (f->flags & FAULT_NTH && f->nth)
		lost = (__sync_fetch_and_add(&f->seen, 1) + 1) % f->nth == 0;
	if (!lost && f->flags & FAULT_LOSS)
		lost = draw(f) < f->loss;
	if (lost) {
		ADD(c->lost, 1);
		return true;
	}
	if (f->flags & FAULT_FLIP && draw(f) < f->flip) {
		flip_bit(skb, p, f);
		ADD(c->flipped, 1);
	}
	return false;
}

// ---- forwarding -----------------------------------------------------------------------------------------------------------------

static __always_inline int forward(struct __sk_buff *skb, const struct packet *p, const struct hop *hop)
{
	__u8 limit = p->hop_limit - 1;

	if (p->hop_limit <= 1)
		return TC_ACT_SHOT;
	bpf_skb_store_bytes(skb, p->l3 + 7, &limit, 1, 0);
	bpf_skb_store_bytes(skb, 0, hop->macs, sizeof(hop->macs), 0);
	return bpf_redirect(hop->ifindex, 0);
}

static __always_inline struct hop *find(const struct port *port, __u32 what)
{
	struct hop_key key = { .node = port->node, .what = what };

	return bpf_map_lookup_elem(&hops, &key);
}

// An address whose last uSID has been read goes on with the next segment (RFC 8986, End).
static __always_inline bool next_segment(struct __sk_buff *skb, const struct packet *p, __u8 *dst)
{
	__u32 at = p->l3 + sizeof(struct ipv6);
	struct srh srh;

	if (p->next != PROTO_ROUTING || !load(skb, at, &srh, sizeof(srh)))
		return false;
	if (srh.type != ROUTING_TYPE_SEGMENTS || !srh.segments_left || srh.segments_left * 2 > srh.len)
		return false;
	srh.segments_left--;
	if (!load(skb, at + sizeof(srh) + 16 * (__u32)srh.segments_left, dst, 16))
		return false;
	return bpf_skb_store_bytes(skb, at + 3, &srh.segments_left, 1, 0) == 0;
}

static __always_inline void shift(__u8 *dst)
{
	__builtin_memmove(dst + 4, dst + 6, 10);
	dst[14] = dst[15] = 0;
}

// uN and uA (RFC 9800, NEXT-CSID): read a uSID of the own, shift it out, look the next one up.
static __always_inline int by_address(struct __sk_buff *skb, const struct packet *p, const struct port *port)
{
	__u32 at = p->l3 + 24;
	struct hop *hop = NULL;
	bool changed = false;
	__u8 dst[16];

	if (p->version != 6 || !load(skb, at, dst, sizeof(dst)) || *(__be32 *)dst != bpf_htonl(SID_BLOCK))
		return TC_ACT_OK;
	for (int i = 0; i < 3; i++) {
		__u32 sid = (__u32)dst[4] << 8 | dst[5];

		hop = find(port, sid);
		if (!hop)
			return TC_ACT_SHOT;
		if (hop->kind == HOP_NEIGHBOUR)
			break;
		shift(dst);
		changed = true;
		if (!dst[4] && !dst[5] && hop->kind == HOP_SELF && !next_segment(skb, p, dst))
			return TC_ACT_SHOT;
		if (hop->kind == HOP_ADJACENCY)
			break;
		hop = NULL;
	}
	if (!hop)
		return TC_ACT_SHOT;
	if (changed)
		bpf_skb_store_bytes(skb, at, dst, sizeof(dst), 0);
	return forward(skb, p, hop);
}

// Downwards by the destination, upwards by the EV (wire-format.md §3).
static __always_inline int by_ev(struct __sk_buff *skb, const struct packet *p, const struct port *port)
{
	struct hop *hop;
	__be32 dst[4];

	if (!p->mrc || p->version != 6 || !load(skb, p->l3 + 24, dst, sizeof(dst)))
		return TC_ACT_OK;
	if (dst[0] != bpf_htonl(NODE_PREFIX) || dst[1] || dst[2])
		return TC_ACT_OK;
	hop = find(port, HOP_HOST | (bpf_ntohl(dst[3]) & 0xffff));
	if (!hop)
		hop = find(port, HOP_UPLINK | (p->entropy >> EV_UPLINK_SHIFT & EV_UPLINK_MASK));
	return hop ? forward(skb, p, hop) : TC_ACT_SHOT;
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	__u32 slot = skb->ingress_ifindex - first_index;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);
	struct counters *c = bpf_map_lookup_elem(&counts, &slot);
	struct packet p;
	int verdict = TC_ACT_OK;

	if (!port || !c || !port->node)
		return TC_ACT_OK;
	read_packet(skb, &p);
	if (broken(skb, &p, slot, INWARD))
		return TC_ACT_SHOT;
	if (p.mrc)
		ADD(c->mrc_in, 1);
	if (port->detour)
		return bpf_redirect(port->detour, 0);
	if (routing == ROUTE_SRV6)
		verdict = by_address(skb, &p, port);
	else if (routing == ROUTE_STRUCTURED)
		verdict = by_ev(skb, &p, port);
	if (verdict == TC_ACT_SHOT)
		ADD(c->no_path, 1);
	return verdict;
}

// ---- queue ----------------------------------------------------------------------------------------------------------------------

struct gnet_stats_queue {
	__u32 backlog;
} __attribute__((preserve_access_index));

struct Qdisc {
	struct gnet_stats_queue qstats;
} __attribute__((preserve_access_index));

struct net_device {
	struct Qdisc *qdisc;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

// Bytes that wait in the port's HTB, as the kernel itself counts them: nothing can drift, leak or belong to another lab.
static __always_inline __u32 backlog(struct __sk_buff *skb)
{
	// To the kernel the context is the packet's sk_buff.
	return BPF_CORE_READ((struct sk_buff *)skb, dev, qdisc, qstats.backlog);
}

static __always_inline void set_dscp_v6(struct __sk_buff *skb, const struct packet *p, __u8 dscp, bool lengths)
{
	struct { __u8 head[4]; __be16 len; } __attribute__((packed)) ip;

	if (!load(skb, p->l3, &ip, sizeof(ip)))
		return;
	ip.head[0] = (ip.head[0] & 0xf0) | dscp >> 2;
	ip.head[1] = (ip.head[1] & 0x3f) | dscp << 6;
	if (lengths)
		ip.len = bpf_htons(skb->len - p->l3 - sizeof(struct ipv6));
	bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

static __always_inline void set_dscp_v4(struct __sk_buff *skb, const struct packet *p, __u8 dscp, bool lengths)
{
	struct ipv4 ip;
	__s64 sum;

	if (!load(skb, p->l3, &ip, sizeof(ip)))
		return;
	ip.tos = (ip.tos & 3) | dscp << 2;
	if (lengths)
		ip.len = bpf_htons(skb->len - p->l3);
	ip.sum = 0;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.sum = ~(__u16)sum;
	bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

// The head of a packet goes on with the code point that tells why (wire-format.md §10): IP length and checksum are those of what is
// left, all inner lengths stay as sent. A packet that is short enough goes on whole.
static __always_inline bool trim(struct __sk_buff *skb, const struct packet *p, const struct port *port, struct counters *c)
{
	__u8 dscp = port->trimmed_dscp;
	bool cut = skb->len > port->trim_len;

	if (cut && bpf_skb_change_tail(skb, port->trim_len, 0))
		return false;
	if (p->version == 6)
		set_dscp_v6(skb, p, dscp, cut);
	else
		set_dscp_v4(skb, p, dscp, cut);
	if (cut)
		ADD(c->trimmed, 1);
	return true;
}

static __always_inline bool may_trim(const struct packet *p, const struct port *port)
{
	return port->flags & PORT_TRIM && p->mrc && (p->dscp == DSCP_TRIMMABLE || p->dscp == DSCP_TRIMMABLE_RETX);
}

static __always_inline bool is_control(const struct packet *p)
{
	if (!p->transport)
		return true;
	return p->dscp == DSCP_CONTROL || p->dscp == DSCP_TRIMMED || p->dscp == DSCP_TRIMMED_LASTHOP;
}

static __always_inline void mark(struct __sk_buff *skb, const struct port *port, struct counters *c, __u32 waiting)
{
	__u32 room = port->ecn_max - port->ecn_min;

	if (!(port->flags & PORT_ECN) || waiting < port->ecn_min)
		return;
	if (waiting < port->ecn_max && room) {
		__u64 chance = (__u64)port->ecn_chance * (waiting - port->ecn_min) / room;

		if (bpf_get_prandom_u32() >= chance)
			return;
	}
	if (bpf_skb_ecn_set_ce(skb) == 1)
		ADD(c->marked, 1);
}

SEC("tc")
int egress(struct __sk_buff *skb)
{
	__u32 slot = skb->ifindex - first_index, waiting, class = CLASS_DATA;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);
	struct counters *c = bpf_map_lookup_elem(&counts, &slot);
	struct packet p;

	if (!port || !c || !port->node)
		return TC_ACT_OK;
	read_packet(skb, &p);
	if (broken(skb, &p, slot, OUTWARD))
		return TC_ACT_SHOT;
	waiting = backlog(skb);
	if (is_control(&p)) {
		class = CLASS_CONTROL;
		if (waiting > port->limit + port->control_room) {
			ADD(c->dropped, 1);
			return TC_ACT_SHOT;
		}
	} else if (waiting + skb->len > port->limit) {
		if (!may_trim(&p, port) || waiting > port->limit + port->control_room || !trim(skb, &p, port, c)) {
			ADD(c->dropped, 1);
			return TC_ACT_SHOT;
		}
		class = CLASS_CONTROL;
	} else {
		mark(skb, port, c, waiting);
	}
	skb->priority = class;
	waiting += skb->len;
	if (waiting > c->high_water)
		c->high_water = waiting;
	ADD(c->packets, 1);
	ADD(c->bytes, skb->len);
	if (p.mrc)
		ADD(c->mrc_out, 1);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
