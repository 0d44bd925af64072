-- Wireshark dissector of OCP Multipath Reliable Connection (MRC) 1.0.
--
-- The layouts are those of wire-format.md §7, written down once, in HEADERS; fields, tree and filters follow from that
-- table. A field is called `mrc.HEADER.FIELD`, with the names of the specification. All of it is one file, so that
-- copying that file is all there is to installing it.

local mrc = Proto("mrc", "Multipath Reliable Connection")

------------------------------------------------------------------------------------------------------------- headers

-- wire-format.md §6.
local OPCODES = {
    [0xc6] = "WRITE_FIRST", [0xc7] = "WRITE_MIDDLE", [0xc8] = "WRITE_LAST", [0xc9] = "WRITE_LAST_IMM",
    [0xca] = "WRITE_ONLY", [0xcb] = "WRITE_ONLY_IMM", [0xd1] = "ACK", [0xd8] = "EP_REQ", [0xd9] = "EP_RSP",
    [0xdc] = "SACK", [0xdd] = "NACK", [0xde] = "PROBE",
}
local FIRST_WRITE, LAST_WRITE, EP_REQ, EP_RSP = 0xc6, 0xcb, 0xd8, 0xd9
-- Headers behind the BTH. Those of writes depend on BTH.ts as well.
local CONTROL_HEADERS = {
    [0xd1] = { "aeth" }, [0xd8] = { "erth" }, [0xd9] = { "eeth" }, [0xdc] = { "seth", "cc_state" }, [0xdd] = { "neth" },
    [0xde] = { "peth" },
}
local WITH_IMMEDIATE = { [0xc9] = true, [0xcb] = true }
-- Packets of these carry PMTU bytes.
local FULL = { [0xc6] = true, [0xc7] = true }
local PMTU = { [256] = true, [512] = true, [1024] = true, [2048] = true, [4096] = true }

-- wire-format.md §7.6, §7.7, §7.9, §7.11.
local SYNDROMES = {
    { 0x00, 0x1f, "ack" }, { 0x61, 0x61, "nak_invalid_request" }, { 0x62, 0x62, "nak_remote_access" },
    { 0x63, 0x7f, "nak_remote_operational" }, { 0x20, 0x60, "unused" }, { 0x80, 0xff, "unused" },
}
local VERDICTS = { [0] = "none", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP", [3] = "reserved" }
local NACK_REASONS = {
    [0x01] = "TRIMMED", [0x02] = "TRIMMED_LASTHOP", [0x06] = "NO_BITMAP", [0x07] = "NO_PKT_BUFFER",
    [0x0a] = "NO_RESOURCE", [0x0b] = "PSN_OOR_WINDOW", [0x19] = "UNEXP_EVENT",
}
local ENDPOINT_OPS = { [0] = "port status update", [1] = "EV probe", [2] = "reserved", [3] = "reserved" }
local CC_TYPES = { [0] = "NSCC" }

local HEX, DEC = base.HEX, base.DEC

-- name = { title, length, fields in the order of the wire: { name, title, first bit, bits, base, names of values } }.
-- Bits count from the first one on the wire. A field without a base is reserved.
local HEADERS = {
    bth = { "Base Transport Header", 12, {
        { "opcode", "Opcode", 0, 8, HEX, OPCODES }, { "se", "Solicited event", 8, 1, DEC },
        { "m", "Migration state", 9, 1, DEC }, { "pad", "Pad bytes", 10, 2, DEC }, { "tver", "Version", 12, 4, DEC },
        { "p_key", "Partition key", 16, 16, HEX }, { "var_res", "Variant reserved", 32, 8, HEX },
        { "dqp", "Destination QP", 40, 24, HEX }, { "a", "Acknowledge request", 64, 1, DEC }, { "r", "Reserved", 65, 1 },
        { "rtx", "Retransmission", 66, 1, DEC }, { "ts", "TSETH present", 67, 1, DEC },
        { "inv_res", "Invariant reserved", 68, 4 }, { "psn", "PSN", 72, 24, HEX } } },
    meth = { "Message numbers (METH)", 4, {
        { "rqmsn", "RQMSN", 0, 16, HEX }, { "msn", "MSN", 16, 16, HEX } } },
    tseth = { "Timestamp (TSETH)", 4, {
        { "tx_timestamp", "Transmit timestamp", 0, 16, HEX }, { "tsr", "Resolution", 16, 1, DEC },
        { "reserved", "Reserved", 17, 11 }, { "ftype", "Format", 28, 4, DEC } } },
    reth = { "RDMA extended transport header (RETH)", 16, {
        { "va", "Virtual address", 0, 64, HEX }, { "r_key", "R_Key", 64, 32, HEX },
        { "dmalen", "Length of the message", 96, 32, DEC } } },
    immdt = { "Immediate data", 4, { { "data", "Immediate data", 0, 32, HEX } } },
    aeth = { "Transport ACK (AETH)", 4, {
        { "syndrome", "Syndrome", 0, 8, HEX + base.RANGE_STRING, SYNDROMES }, { "msn", "MSN", 8, 24, HEX } } },
    seth = { "Selective acknowledgement (SETH)", 28, {
        { "type", "Type", 0, 4 }, { "nxt", "Next", 4, 5 }, { "m", "Verdict on the path", 9, 2, DEC, VERDICTS },
        { "res", "Reserved", 11, 3 }, { "pr", "Answers a probe", 14, 1, DEC }, { "res2", "Reserved", 15, 1 },
        { "ack_psn_offset", "ACK PSN offset", 16, -16, DEC }, { "probe_id", "Probe id", 16, 16, HEX },
        { "entropy", "Reflected EV", 32, 32, HEX }, { "spdcid", "Source context id", 64, 16, HEX },
        { "dpdcid", "Destination context id", 80, 16, HEX }, { "res3", "Reserved", 96, 8 },
        { "cack_psn", "Cumulative PSN", 104, 24, HEX }, { "cc_type", "Type of CC_STATE", 128, 4, DEC, CC_TYPES },
        { "cc_fl", "CC flags", 132, 4 }, { "mpr", "MPR (units of 128 PSNs)", 136, 8, DEC },
        { "sack_offset", "SACK offset", 144, -16, DEC }, { "sack_bitmap", "SACK bitmap", 160, 64, HEX } } },
    cc_state = { "Congestion state (CC_STATE)", 8, {
        { "tx_timestamp", "Reflected timestamp", 0, 16, HEX }, { "r", "Reserved", 16, 1 },
        { "ooo_count", "Packets out of order", 17, 15, DEC }, { "restore_cwnd", "Restore the window", 32, 1, DEC },
        { "rcv_cwnd_pen", "Receiver penalty", 33, 7, DEC },
        { "rcvd_bytes", "Bytes received (units of 256)", 40, 24, HEX } } },
    neth = { "Negative acknowledgement (NETH)", 20, {
        { "type", "Type", 0, 4 }, { "nxt", "Next", 4, 5 }, { "res", "Reserved", 9, 7 },
        { "nack_reason", "Reason", 16, 8, HEX, NACK_REASONS }, { "vendor_info", "Vendor info", 24, 8, DEC },
        { "entropy", "Reflected EV", 32, 32, HEX }, { "spdcid", "Source context id", 64, 16, HEX },
        { "dpdcid", "Destination context id", 80, 16, HEX }, { "res2", "Reserved", 96, 8 },
        { "nack_psn", "PSN", 104, 24, HEX }, { "cc_type", "Type of CC state", 128, 4, DEC },
        { "cc_fl", "CC flags", 132, 4 }, { "res3", "Reserved", 136, 8 },
        { "tx_timestamp", "Reflected timestamp", 144, 16, HEX } } },
    peth = { "Reliability probe (PETH)", 16, {
        { "type", "Type", 0, 4 }, { "nxt", "Next", 4, 5 }, { "res", "Reserved", 9, 15 },
        { "vendor_info", "Vendor info", 24, 8, DEC }, { "probe_id", "Probe id", 32, 16, HEX },
        { "res2", "Reserved", 48, 16 }, { "spdcid", "Source context id", 64, 16, HEX },
        { "dpdcid", "Destination context id", 80, 16, HEX }, { "tx_timestamp", "Transmit timestamp", 96, 16, HEX },
        { "tsr", "Resolution", 112, 1, DEC }, { "reserved", "Reserved", 113, 11 }, { "ftype", "Format", 124, 4, DEC } } },
    erth = { "Endpoint request (ERTH)", 16, {
        { "type", "Type", 0, 4 }, { "nxt", "Next", 4, 5 }, { "res", "Reserved", 9, 5 },
        { "op", "Operation", 14, 2, DEC, ENDPOINT_OPS }, { "res2", "Reserved", 16, 8 },
        { "vendor_info", "Vendor info", 24, 8, DEC }, { "port_status_mask", "Port status (bit N: port N)", 32, 32, HEX },
        { "res3", "Reserved", 64, 32 }, { "tx_timestamp", "Transmit timestamp", 96, 16, HEX },
        { "tsr", "Resolution", 112, 1, DEC }, { "reserved", "Reserved", 113, 11 }, { "ftype", "Format", 124, 4, DEC } } },
    eeth = { "Endpoint response (EETH)", 36, {
        { "type", "Type", 0, 4 }, { "nxt", "Next", 4, 5 }, { "res", "Reserved", 9, 3 },
        { "op", "Operation", 12, 2, DEC, ENDPOINT_OPS }, { "tx_timestamp", "Reflected timestamp", 224, 16, HEX } } },
}

local UNSIGNED = {
    ProtoField.uint8, ProtoField.uint16, ProtoField.uint24, ProtoField.uint32, nil, nil, nil, ProtoField.uint64,
}
local SIGNED = { ProtoField.int8, ProtoField.int16 }

local fields = {}

-- Bytes that hold the field, and what of them it is.
local function declare(header, field)
    local name, title, bit, bits, number_base, values = table.unpack(field, 1, 6)
    local kinds = bits < 0 and SIGNED or UNSIGNED
    bits = math.abs(bits)
    local first = math.floor(bit / 8)
    local len = math.ceil((bit + bits) / 8) - first
    local mask = nil
    if bits ~= len * 8 then
        mask = (2 ^ bits - 1) * 2 ^ (len * 8 - (bit - first * 8) - bits)
    end
    field.at, field.len, field.bit, field.bits = first, len, bit - first * 8, bits
    field.abbrev = "mrc." .. header .. "." .. name
    field.proto = kinds[len](field.abbrev, title, number_base or HEX, values, mask and math.floor(mask))
    table.insert(fields, field.proto)
end

for header, description in pairs(HEADERS) do
    description.proto = ProtoField.none("mrc." .. header, description[1])
    table.insert(fields, description.proto)
    for _, field in ipairs(description[3]) do declare(header, field) end
end

local function more(kind, abbrev, title, ...)
    local proto = ProtoField[kind]("mrc." .. abbrev, title, ...)
    table.insert(fields, proto)
    return proto
end

local f = {
    ev = more("uint32", "ev", "Entropy value (EV)", HEX),
    src_port = more("uint16", "ev.src_port", "UDP source port", HEX),
    flow_label = more("uint24", "ev.flow_label", "Flow label", HEX),
    dscp = more("uint8", "dscp", "Effective DSCP", DEC),
    ecn = more("uint8", "ecn", "Effective ECN", DEC, { [0] = "Not-ECT", [1] = "ECT(1)", [2] = "ECT(0)", [3] = "CE" }),
    trimmed = more("bool", "trimmed", "Trimmed by a switch"),
    tunnel = more("string", "srv6", "SRv6 tunnel"),
    block = more("uint32", "srv6.block", "uSID block", HEX),
    usid = more("uint16", "srv6.usid", "uSID", HEX),
    trigger_psn = more("uint24", "seth.trigger_psn", "PSN that triggered it", HEX),
    base_psn = more("uint24", "seth.base_psn", "PSN of bit 0", HEX),
    missing = more("uint24", "seth.missing", "Missing PSN", HEX),
    data = more("bytes", "data", "Data"),
    data_len = more("uint32", "data.len", "Length of the data", DEC),
    pad = more("bytes", "pad", "Pad"),
    icrc = more("uint32", "icrc", "ICRC", HEX),
    icrc_expected = more("uint32", "icrc.expected", "ICRC expected", HEX),
    icrc_ok = more("bool", "icrc.ok", "ICRC is right"),
}

local MALFORMED, CHECKSUM, SEQUENCE, PROTOCOL = PI_MALFORMED, PI_CHECKSUM, PI_SEQUENCE, PI_PROTOCOL
local experts = {}
local function expert(name, text, group, severity)
    experts[name] = ProtoExpert.new("mrc.expert." .. name, text, group, severity)
end
-- The errors are what a receiver drops for (wire-format.md §11), and have the names of the engine's counters.
expert("opcode", "opcode of the MRC range that MRC does not use: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("tver", "version other than 0: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("short", "the packet ends inside its headers", MALFORMED, PI_ERROR)
expert("udp_length", "UDP length is not the IP payload length: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("alignment", "data and pad are no multiple of 4 bytes: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("icrc", "ICRC is wrong: a receiver drops the packet", CHECKSUM, PI_ERROR)
expert("dqp", "only endpoint operations go to QP 2: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("checksum", "IPv4 header checksum is wrong: a receiver drops the packet", CHECKSUM, PI_ERROR)
expert("control_pad", "control packet with pad: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("psn_mismatch", "PSN of the BTH and its copy differ: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("syndrome", "syndrome that MRC does not use: a requestor drops the packet", MALFORMED, PI_ERROR)
expert("endpoint_op", "reserved endpoint operation: a receiver drops the packet", MALFORMED, PI_ERROR)
expert("trimmed_control", "incomplete packet with a trimmed DSCP that is not a write: a receiver drops it", MALFORMED,
    PI_ERROR)
expert("pmtu", "a First or Middle carries exactly PMTU bytes: 256, 512, 1024, 2048 or 4096", PROTOCOL, PI_WARN)
expert("reserved", "reserved bits are not 0", PROTOCOL, PI_NOTE)
expert("nack_reason", "unknown NACK reason", PROTOCOL, PI_WARN)
expert("trimmed", "trimmed by a switch", SEQUENCE, PI_NOTE)
expert("cut", "the capture holds only a part of the packet", PROTOCOL, PI_NOTE)
expert("rtx", "retransmission, or answer to one", SEQUENCE, PI_NOTE)
expert("nack", "negative acknowledgement", SEQUENCE, PI_NOTE)
expert("nak", "the QP fails", SEQUENCE, PI_WARN)
expert("missing", "packets are missing", SEQUENCE, PI_NOTE)
expert("skip", "the responder says to leave the path", SEQUENCE, PI_NOTE)
expert("ce", "marked for congestion (CE)", SEQUENCE, PI_NOTE)

mrc.fields = fields
local list = {}
for _, each in pairs(experts) do table.insert(list, each) end
mrc.experts = list

--------------------------------------------------------------------------------------------------------- preferences

mrc.prefs.udp_ports = Pref.range("UDP ports", "4791", "UDP destination ports that carry MRC", 65535)
mrc.prefs.port_hi = Pref.bool("EV has the source port in its upper half", false,
    "The layout port_hi of the EV; without it EV[31:16] is the flow label")
mrc.prefs.dscp_trimmed = Pref.uint("DSCP_TRIMMED", 12, "Code point of a packet that a switch has trimmed")
mrc.prefs.dscp_trimmed_lasthop = Pref.uint("DSCP_TRIMMED_LASTHOP", 16,
    "Code point of a packet that the last switch has trimmed")
mrc.prefs.check_icrc = Pref.bool("Check the ICRC", true, "Costs about a third of a millisecond for a packet of 4 KiB")
mrc.prefs.any_source = Pref.bool("Take packets from other protocols' ports", true,
    "EVs make any source port; Wireshark would give those of lower number to the protocol that it belongs to")

---------------------------------------------------------------------------------------------------------------- ICRC

-- Lua 5.2 has a library for it, later ones have an operator that 5.2 cannot read.
local xor = bit32 and bit32.bxor or load("return function(a, b) return a ~ b end")()

-- What two bytes turn into when they leave the register, with no and with two bytes behind them.
local last_two, first_two

local function build_tables()
    local bytes = {}
    for byte = 0, 255 do
        local crc = byte
        for _ = 1, 8 do
            local half = math.floor(crc / 2)
            crc = crc % 2 == 1 and xor(half, 0xedb88320) or half
        end
        bytes[byte] = crc
    end
    local function step(crc, byte) return xor(math.floor(crc / 256), bytes[xor(crc % 256, byte)]) end
    last_two, first_two = {}, {}
    for two = 0, 65535 do
        local crc = step(bytes[two % 256], math.floor(two / 256))
        last_two[two], first_two[two] = crc, step(step(crc, 0), 0)
    end
end

-- wire-format.md §9: CRC-32 of Ethernet, least significant byte first; as the number that its four bytes spell.
-- Four bytes a step: whatever is a multiple of them is all that has an ICRC, but for broken packets.
local function crc32(text)
    if not last_two then build_tables() end
    local crc = 0xffffffff
    local rest = #text % 4
    for at = 1, #text - rest, 4 do
        local a, b, c, d = text:byte(at, at + 3)
        local word = xor(crc, a + b * 0x100 + c * 0x10000 + d * 0x1000000)
        local low = word % 65536
        crc = xor(first_two[low], last_two[(word - low) / 65536])
    end
    for at = #text - rest + 1, #text do
        crc = xor(crc, text:byte(at))
        for _ = 1, 8 do
            local half = math.floor(crc / 2)
            crc = crc % 2 == 1 and xor(half, 0xedb88320) or half
        end
    end
    crc = 0xffffffff - crc
    local spelled = 0
    for _ = 1, 4 do
        spelled, crc = spelled * 256 + crc % 256, math.floor(crc / 256)
    end
    return spelled
end

local ONES = "\255"

-- `below`: what lies under the UDP payload; `payload`: up to the ICRC.
local function icrc_of(below, payload)
    local ip = below.ip
    if below.v4 then
        ip = ip:sub(1, 1) .. ONES .. ip:sub(3, 8) .. ONES .. ip:sub(10, 10) .. ONES .. ONES .. ip:sub(13, 20)
    else
        ip = "\x6f" .. ONES:rep(3) .. ip:sub(5, 7) .. ONES .. ip:sub(9, 40)
    end
    return crc32(ONES:rep(8) .. ip .. below.udp:sub(1, 6) .. ONES .. ONES
        .. payload:sub(1, 4) .. ONES .. payload:sub(6))
end

------------------------------------------------------------------------------------------------------ layers beneath

local ip4_fields, ip6_fields, udp_fields = Field.new("ip"), Field.new("ipv6"), Field.new("udp")

local function innermost(list)
    local last = nil
    for _, info in ipairs(list) do
        if not last or info.offset > last.offset then last = info end
    end
    return last
end

local function u16(text, at)
    local high, low = text:byte(at, at + 1)
    return high * 256 + low
end

-- The IP and UDP headers that this payload stands on: bytes, EV, code points; nil where they are not what MRC uses.
local function beneath(pinfo)
    local ip6s = { ip6_fields() }
    local v4, v6, udp = innermost({ ip4_fields() }), innermost(ip6s), innermost({ udp_fields() })
    local ip = v4
    if v6 and (not v4 or v6.offset > v4.offset) then ip = v6 end
    if not ip or not udp then return nil end
    local below = { v4 = ip == v4, at = ip.offset, udp = udp.range:raw(0, 8) }
    local outer = nil
    if below.v4 then
        if ip.len ~= 20 then return nil end
        below.ip = ip.range:raw(0, 20)
        below.tos, below.flow_label = below.ip:byte(2), 0
        below.ip_payload = u16(below.ip, 3) - 20
        local sum = 0
        for at = 1, 19, 2 do sum = sum + u16(below.ip, at) end
        below.bad_checksum = sum % 65535 ~= 0
    else
        below.ip = ip.range:raw(0, 40)
        local first, second, third, fourth = below.ip:byte(1, 4)
        below.tos = first % 16 * 16 + math.floor(second / 16)
        below.flow_label = second % 16 * 65536 + third * 256 + fourth
        below.ip_payload = u16(below.ip, 5)
        if below.ip:byte(7) ~= 17 then return nil end
        for _, other in ipairs(ip6s) do
            if other.offset < ip.offset then outer = other end
        end
    end
    below.src_port, below.udp_len = u16(below.udp, 1), u16(below.udp, 5)
    local low, high = below.src_port, below.flow_label % 65536
    if mrc.prefs.port_hi and not below.v4 then low, high = high, low end
    below.ev = high * 65536 + low
    below.dscp, below.ecn = math.floor(below.tos / 4), below.tos % 4
    below.whole = true
    if outer then
        local raw = outer.range:raw(0, 40)
        local first, second = raw:byte(1, 2)
        local tos = first % 16 * 16 + math.floor(second / 16)
        -- wire-format.md §4: the code point is the outer one's, the mark either's if the inner one can be marked.
        below.dscp = math.floor(tos / 4)
        if tos % 4 == 3 and below.ecn ~= 0 then below.ecn = 3 end
        below.outer, below.next_header = outer, raw:byte(7)
        if below.next_header == 43 then
            if outer.len < 48 then return nil end
            local next_header, _, routing_type = outer.range:raw(40, 3):byte(1, 3)
            if next_header ~= 41 or routing_type ~= 4 then return nil end
        elseif below.next_header ~= 41 then
            return nil
        end
        below.whole = outer.offset + 40 + u16(raw, 5) <= pinfo.len
    end
    return below
end

----------------------------------------------------------------------------------------------------------- dissection

local Packet = {}
Packet.__index = Packet

function Packet:expert(item, name, text)
    if text then item:add_proto_expert_info(experts[name], text) else item:add_proto_expert_info(experts[name]) end
end

-- Adds a header of the table and returns its values by name; nil when the packet ends before it does.
function Packet:header(name)
    local title, len, layout = HEADERS[name][1], HEADERS[name][2], HEADERS[name][3]
    if self.tvb:len() < self.at + len or self.limit < self.at + len then
        if self.limit < self.at + len and not self.trimmed then self:expert(self.tree, "short", title .. " is cut") end
        return nil
    end
    local range = self.tvb:range(self.at, len)
    local tree = self.tree:add(HEADERS[name].proto, range)
    local values, items = {}, {}
    for _, field in ipairs(layout) do
        local key, part = field[1], range:range(field.at, field.len)
        local value
        if field.bits == 64 then value = part:uint64()
        elseif field[4] < 0 then value = part:int()
        else value = part:bitfield(field.bit, field.bits) end
        local absent = key == "ack_psn_offset" and values.pr == 1 or key == "probe_id" and values.pr == 0
        if not absent then
            values[key], items[key] = value, tree:add(field.proto, part)
            if not field[5] and value ~= 0 then self:expert(items[key], "reserved") end
        end
    end
    self.at = self.at + len
    values.items, values.range, values.tree = items, range, tree
    return values
end

function Packet:say(...) self.info[#self.info + 1] = string.format(...) end

local describe = {}

function describe.meth(self, meth) self:say("MSN=0x%04x", meth.msn) end

function describe.reth(self, reth) self.dmalen = reth.dmalen end

function describe.immdt(self, immdt) self:say("imm=0x%08x", immdt.data) end

function describe.aeth(self, aeth)
    local nak = aeth.syndrome >= 0x61 and aeth.syndrome <= 0x7f
    if nak then
        local _, _, name = table.unpack(SYNDROMES[math.min(aeth.syndrome, 0x63) - 0x5f])
        self:say("%s", name:upper())
        self:expert(aeth.items.syndrome, "nak")
    elseif aeth.syndrome > 0x1f then
        self:expert(aeth.items.syndrome, "syndrome")
    end
end

-- wire-format.md §7.7.
function describe.seth(self, seth)
    local function psn(offset) return (seth.cack_psn + offset) % 0x1000000 end
    local tree = seth.tree
    if seth.pr == 1 then
        self:say("probe=0x%04x", seth.probe_id)
    else
        tree:add(f.trigger_psn, seth.range:range(2, 2), psn(seth.ack_psn_offset)):set_generated()
    end
    tree:add(f.base_psn, seth.range:range(18, 2), psn(seth.sack_offset)):set_generated()
    local missing, gap = {}, {}
    local bitmap = seth.range:range(20, 8)
    for bit = 0, 63 do
        if bitmap:bitfield(63 - bit, 1) == 0 then
            if seth.sack_offset + bit > 0 then gap[#gap + 1] = psn(seth.sack_offset + bit) end
        else
            -- Only below a packet that was received is another one missing.
            for _, each in ipairs(gap) do missing[#missing + 1] = each end
            gap = {}
        end
    end
    for _, each in ipairs(missing) do tree:add(f.missing, bitmap, each):set_generated() end
    if #missing > 0 then
        self:say("missing=%d", #missing)
        self:expert(seth.items.sack_bitmap, "missing")
    end
    if seth.m == 1 or seth.m == 2 then
        self:say("%s=0x%08x", VERDICTS[seth.m], seth.entropy)
        self:expert(seth.items.m, "skip")
    end
    if seth.cack_psn ~= self.bth.psn then self:expert(seth.items.cack_psn, "psn_mismatch") end
end

function describe.neth(self, neth)
    self:say("%s of=0x%08x", NACK_REASONS[neth.nack_reason] or string.format("0x%02x", neth.nack_reason), neth.entropy)
    self:expert(neth.items.nack_reason, NACK_REASONS[neth.nack_reason] and "nack" or "nack_reason")
    if neth.nack_psn ~= self.bth.psn then self:expert(neth.items.nack_psn, "psn_mismatch") end
end

function describe.peth(self, peth) self:say("probe=0x%04x", peth.probe_id) end

function describe.erth(self, erth)
    self:say("%s", ENDPOINT_OPS[erth.op])
    if erth.op == 0 then self:say("ports=0x%08x", erth.port_status_mask) end
    if erth.op > 1 then self:expert(erth.items.op, "endpoint_op") end
end

function describe.eeth(self, eeth) self:say("%s", ENDPOINT_OPS[eeth.op]) end

function Packet:headers(names)
    for _, name in ipairs(names) do
        local header = self:header(name)
        if not header then return false end
        if describe[name] then describe[name](self, header) end
    end
    return true
end

local function write_headers(opcode, ts)
    local names = { "meth" }
    if ts == 1 then names[#names + 1] = "tseth" end
    names[#names + 1] = "reth"
    if WITH_IMMEDIATE[opcode] then names[#names + 1] = "immdt" end
    return names
end

-- What lies between the headers and the ICRC, or between them and the cut.
function Packet:payload(whole)
    local pad = whole and self.bth.pad or 0
    local len = self.limit - self.at
    if whole and len % 4 ~= 0 then self:expert(self.tree, "alignment") end
    if pad > len then
        self:expert(self.bth.items.pad, "short", "no room for the pad")
        pad = len
    end
    local data_len = len - pad
    self:say("len=%d", data_len)
    if self.dmalen and self.dmalen ~= data_len then self:say("of=%d", self.dmalen) end
    if whole and FULL[self.bth.opcode] and not PMTU[data_len] then self:expert(self.tree, "pmtu") end
    local here = math.min(data_len, self.tvb:len() - self.at)
    if here > 0 then self.tree:add(f.data, self.tvb:range(self.at, here)) end
    self.tree:add(f.data_len, data_len):set_generated()
    if pad > 0 and self.tvb:len() >= self.limit then self.tree:add(f.pad, self.tvb:range(self.limit - pad, pad)) end
end

function Packet:path()
    local below, tree = self.below, self.tree
    tree:add(f.ev, below.ev):set_generated()
    tree:add(f.src_port, below.src_port):set_generated()
    if not below.v4 then tree:add(f.flow_label, below.flow_label):set_generated() end
    tree:add(f.dscp, below.dscp):set_generated()
    local ecn = tree:add(f.ecn, below.ecn):set_generated()
    if below.ecn == 3 then self:expert(ecn, "ce") end
    if not below.outer then return end
    -- wire-format.md §5: a block of 32 bits, uSIDs of 16. Those in front are consumed on the way.
    local containers = { below.outer.range:range(24, 16) }
    if below.next_header == 43 then
        for at = 48, below.outer.len - 16, 16 do containers[#containers + 1] = below.outer.range:range(at, 16) end
    end
    local names = {}
    local item = tree:add(f.tunnel, below.next_header == 43 and "uSID + SRH" or "uSID"):set_generated()
    for _, container in ipairs(containers) do
        item:add(f.block, container:range(0, 4))
        for at = 4, 14, 2 do
            local usid = container:range(at, 2)
            if usid:uint() ~= 0 then
                item:add(f.usid, usid)
                names[#names + 1] = string.format("%04x", usid:uint())
            end
        end
    end
    item:append_text(": " .. table.concat(names, " "))
end

-- Right, wrong (with the value expected), or nil if the packet does not reach to its end.
function Packet:check_icrc(whole)
    local end_ = self.tvb:reported_len()
    if not whole or self.tvb:len() < end_ or end_ < 16 then return nil end
    local expected = icrc_of(self.below, self.tvb:raw(0, end_ - 4))
    return expected == self.tvb:range(end_ - 4, 4):uint(), expected
end

local function is_cut_dscp(dscp) return dscp == mrc.prefs.dscp_trimmed or dscp == mrc.prefs.dscp_trimmed_lasthop end

local function new(tvb, pinfo, root)
    local below = beneath(pinfo)
    -- wire-format.md §11 step 2.
    if not below or below.ip_payload < 8 + 16 and not is_cut_dscp(below.dscp) then return nil end
    local self = setmetatable({ tvb = tvb, at = 0, info = {}, below = below, limit = tvb:reported_len() }, Packet)
    self.tree = root:add(mrc, tvb:range())
    return self
end

function Packet:dissect()
    local opcode = self.tvb:range(0, 1):uint()
    local is_write = opcode >= FIRST_WRITE and opcode <= LAST_WRITE
    local end_, below = self.limit, self.below
    local whole = below.whole and below.udp_len == below.ip_payload and below.udp_len == end_ + 8
    local cut_dscp = is_cut_dscp(below.dscp)
    local ok, expected = nil, nil
    if mrc.prefs.check_icrc or cut_dscp then ok, expected = self:check_icrc(whole) end
    -- wire-format.md §10: a packet that went through the trim queue whole is an ordinary one.
    self.trimmed = cut_dscp and (not whole or ok == false)
    self.bth = self:header("bth")
    local bth = self.bth
    self:say(OPCODES[opcode] or string.format("opcode 0x%02x", opcode))
    if not bth then
        self:expert(self.tree, self.tvb:len() < end_ and "cut" or "udp_length")
        return self.info[1]
    end
    self:say("QP=0x%06x", bth.dqp)
    self:say(opcode ~= EP_REQ and opcode ~= EP_RSP and "PSN=0x%06x" or "id=0x%04x", bth.psn)
    self:path()
    self.tree:add(f.trimmed, self.trimmed):set_generated()
    if self.trimmed then
        self:expert(self.tree, is_write and "trimmed" or "trimmed_control")
    else
        if below.bad_checksum then self:expert(self.tree, "checksum") end
        if whole then self.limit = end_ - 4 else self:expert(self.tree, "udp_length") end
    end
    if bth.tver ~= 0 then self:expert(bth.items.tver, "tver") end
    if bth.rtx == 1 then self:expert(bth.items.rtx, "rtx") end
    local endpoint = opcode == EP_REQ or opcode == EP_RSP
    if endpoint ~= (bth.dqp == 2) and OPCODES[opcode] then self:expert(bth.items.dqp, "dqp") end
    if not OPCODES[opcode] then
        self:expert(bth.items.opcode, "opcode")
    elseif is_write then
        if self:headers(write_headers(opcode, bth.ts)) then self:payload(whole and not self.trimmed) end
    else
        if bth.pad ~= 0 then self:expert(bth.items.pad, "control_pad") end
        self:headers(CONTROL_HEADERS[opcode])
    end
    if not self.trimmed and whole and self.tvb:len() >= end_ then
        local item = self.tree:add(f.icrc, self.tvb:range(end_ - 4, 4))
        if ok ~= nil then
            self.tree:add(f.icrc_ok, ok):set_generated()
            if not ok then
                self.tree:add(f.icrc_expected, expected):set_generated()
                self:expert(item, "icrc")
            end
        end
    elseif self.tvb:len() < end_ then
        self:expert(self.tree, "cut")
    end
    self:say("EV=0x%08x", below.ev)
    if bth.rtx == 1 then self:say("[rtx]") end
    if bth.a == 1 then self:say("[a]") end
    if below.ecn == 3 then self:say("[CE]") end
    if self.trimmed then self:say("[trimmed]") end
    return table.concat(self.info, " ")
end

------------------------------------------------------------------------------------------------------ whom it is for

local udp_table = DissectorTable.get("udp.port")
local ours = {}
-- Ports of others that we look at first: the dissector that they belong to, or false.
local theirs = {}

-- opcode[7:5] = 0b110 is MRC; plain RoCEv2 may share the port (wire-format.md §6, §11 step 2).
local function is_mrc(tvb, pinfo)
    if tvb:len() == 0 then return false end
    local opcode = tvb:range(0, 1):uint()
    -- A port that is none of ours got here by "Decode As".
    local here = ours[pinfo.dst_port] or theirs[pinfo.match_uint] == nil
    return here and opcode >= 0xc0 and opcode <= 0xdf
end

function mrc.dissector(tvb, pinfo, root)
    local packet = is_mrc(tvb, pinfo) and new(tvb, pinfo, root)
    if not packet then
        local stock = theirs[pinfo.match_uint]
        return stock and stock:call(tvb, pinfo, root) or 0
    end
    pinfo.cols.protocol = "MRC"
    pinfo.cols.info = ""
    local text = packet:dissect()
    pinfo.cols.info = text
    packet.tree:append_text(", " .. text)
    return tvb:len()
end

local function take(port)
    if theirs[port] == nil then
        theirs[port] = udp_table:get_dissector(port) or false
        udp_table:add(port, mrc)
    end
end

local function give_back()
    for port, stock in pairs(theirs) do
        udp_table:remove(port, mrc)
        if stock then udp_table:add(port, stock) end
    end
    ours, theirs = {}, {}
end

-- UDP asks the dissector of the lower port first, whichever side it is on.
local function take_ports()
    give_back()
    local highest = 0
    for first, last in tostring(mrc.prefs.udp_ports):gmatch("(%d+)%-?(%d*)") do
        for port = tonumber(first), tonumber(last) or tonumber(first) do
            ours[port] = true
            highest = math.max(highest, port)
            take(port)
        end
    end
    if not mrc.prefs.any_source then return end
    for port = 1, highest - 1 do
        if udp_table:get_dissector(port) then take(port) end
    end
end

mrc.prefs_changed = take_ports
udp_table:add_for_decode_as(mrc)
take_ports()
