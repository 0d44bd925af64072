// SPDX-License-Identifier: MIT OR Apache-2.0
// Passes everything. A veth takes frames that were redirected into it, and completes the sender's AF_XDP buffers at once,
// only while a native program sits on the receiving end; this is the smallest one.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
