//! What completions promise, while packets arrive in any order.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::process::Command;

use mrc_tests::{Connection, Fabric, Options, PATIENCE, Stream, completions, connect, noise, until};
use mrc_verbs::{AddressFamily, MemoryRegion, QpInit, SendRequest, WcOpcode, WorkCompletion};
use netns_lab::Topology;

/// Makes the switch of a plane send to `h1` slowly, out of a queue of `limit` bytes: what comes by other planes overtakes.
fn slow_plane(fabric: &Fabric, plane: usize, rate: &str, limit: &str) {
    let mut tc = Command::new("tc");
    tc.args([
        "qdisc", "replace", "dev", "h1", "root", "tbf", "rate", rate, "burst", "20k", "limit", limit,
    ]);
    let switch = fabric.lab.node(&format!("t0.p{plane}")).unwrap();
    let status = switch.spawn(tc).unwrap().wait().unwrap();
    assert!(status.success(), "tc: {status}");
}

/// One write of a sequence.
struct Message {
    place: usize,
    data: Vec<u8>,
    imm: Option<[u8; 4]>,
}

/// Writes of different sizes behind each other, every third of them with an immediate.
fn messages(count: usize, seed: u64) -> Vec<Message> {
    let mut place = 0;
    (0..count)
        .map(|number| {
            let size = (number * 7_919 + seed as usize * 104_729) % 30_000;
            let message = Message {
                place,
                data: noise(size, seed << 32 | number as u64),
                imm: (number % 3 == 2).then(|| (number as u32).to_be_bytes()),
            };
            place += size;
            message
        })
        .collect()
}

fn is_there(region: &MemoryRegion, message: &Message) -> bool {
    region.to_vec(message.place, message.data.len()).unwrap() == message.data
}

/// Sends the messages; whenever an immediate comes, all data before it must be there.
fn check(connection: &Connection, messages: &[Message]) {
    let (a, b) = (&connection.a, &connection.b);
    b.region.fill(0, b.region.len(), 0).unwrap();
    let with_imm: Vec<_> = (0..messages.len()).filter(|&at| messages[at].imm.is_some()).collect();
    for &number in &with_imm {
        b.qp.post_recv(number as u64).unwrap();
    }
    for (number, message) in messages.iter().enumerate() {
        let piece = message.place..message.place + message.data.len();
        a.region.write_at(message.place, &message.data).unwrap();
        let to = b.region.remote().at(message.place as u64);
        let request = SendRequest::write(number as u64, a.region.slice(piece).unwrap(), to);
        a.qp.post_write(&match message.imm {
            Some(imm) => request.with_imm(imm),
            None => request,
        })
        .unwrap();
    }
    let mut arrived = 0;
    for number in with_imm {
        let done = b.completion();
        let message = &messages[number];
        assert_eq!(
            (done.wr_id, done.result, done.imm, done.byte_len as usize, done.src_qpn),
            (
                number as u64,
                Ok(WcOpcode::RecvRdmaWithImm),
                message.imm,
                message.data.len(),
                a.qp.qpn()
            )
        );
        for (earlier, message) in messages.iter().enumerate().take(number + 1).skip(arrived) {
            assert!(
                is_there(&b.region, message),
                "write {earlier} was not there at immediate {number}"
            );
        }
        arrived = number + 1;
    }
    let done = completions(&a.cq, messages.len());
    assert!(done.iter().all(WorkCompletion::is_ok), "{done:?}");
    assert!(
        done.iter().map(|done| done.wr_id).eq(0..messages.len() as u64),
        "sends complete in posting order"
    );
    assert!(messages.iter().all(|message| is_there(&b.region, message)));
}

fn options(family: AddressFamily) -> Options {
    Options {
        family,
        pmtu: Some(1024),
        region: 4 << 20,
        ..Options::default()
    }
}

#[test]
fn immediates_come_in_order_and_after_all_earlier_data() {
    let fabric = Fabric::new(&Topology::pair(4));
    let connection = Connection::open(&fabric, &options(AddressFamily::V4));
    for seed in 1..=4 {
        check(&connection, &messages(120, seed));
    }
    let stats = connection.b.qp.query().unwrap().stats;
    assert!(stats.packets_out_of_order > 0, "nothing was reordered: {stats:?}");
}

#[test]
fn a_plane_that_is_slower_than_the_others_delays_but_does_not_reorder_immediates() {
    let fabric = Fabric::new(&Topology::leaf(2, 4));
    let connection = Connection::open(&fabric, &options(AddressFamily::V6));
    slow_plane(&fabric, 2, "400mbit", "2m");
    slow_plane(&fabric, 3, "900mbit", "2m");
    for seed in 1..=3 {
        check(&connection, &messages(120, seed));
    }
    let stats = connection.b.qp.query().unwrap().stats;
    assert!(
        stats.packets_out_of_order > 100,
        "hardly anything was reordered: {stats:?}"
    );
}

#[test]
fn a_switch_that_drops_what_its_queue_cannot_hold_costs_no_data() {
    let fabric = Fabric::new(&Topology::leaf(2, 2));
    let connection = Connection::open(&fabric, &options(AddressFamily::V6));
    // Room for some ten packets.
    slow_plane(&fabric, 1, "200mbit", "12k");
    for seed in 1..=2 {
        check(&connection, &messages(120, seed));
    }
    let mut stream = Stream::new(&connection, 64 << 10);
    stream.pump(40);
    stream.finish();
    let stats = connection.a.qp.query().unwrap().stats;
    assert!(stats.packets_retransmitted > 0, "nothing was lost: {stats:?}");
}

#[test]
fn a_target_that_never_calls_sees_the_data_in_its_memory() {
    let fabric = Fabric::new(&Topology::pair(2));
    let connection = Connection::open(&fabric, &Options::default());
    let (a, b) = (&connection.a, &connection.b);
    for value in 1..=300_u64 {
        a.qp.post_write(&SendRequest::inline(
            value,
            &value.to_ne_bytes(),
            b.region.remote().at(64),
        ))
        .unwrap();
        until("the word", || b.region.load_u64(64).unwrap() == value);
        assert!(a.completion().is_ok());
    }
}

#[test]
fn a_program_that_sleeps_on_a_channel_is_woken_by_what_it_asked_for() {
    let fabric = Fabric::new(&Topology::pair(2));
    let connection = Connection::open(&fabric, &Options::default());
    // Both in the same contexts, but with channels: A's for any completion, B's for solicited ones.
    let channels = [&fabric.a, &fabric.b].map(|node| node.context.create_channel().unwrap());
    let cqs = [(&fabric.a, &channels[0]), (&fabric.b, &channels[1])]
        .map(|(node, channel)| node.context.create_cq_with_channel(64, channel).unwrap());
    let options = Options::default();
    let [a, b] = [(&fabric.a, &cqs[0]), (&fabric.b, &cqs[1])]
        .map(|(node, cq)| node.context.create_qp(&node.pd, &QpInit::new(cq)).unwrap());
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    connect(&a, of_a.clone(), of_b.clone(), &options).unwrap();
    connect(&b, of_b, of_a, &options).unwrap();
    let remote = connection.b.region.remote();
    for round in 0..20_u32 {
        b.post_recv_list(&[1, 2]).unwrap();
        cqs[0].arm(false);
        cqs[1].arm(true);
        a.post_write(&SendRequest::inline(1, b"quiet", remote).with_imm(*b"1st.").unsignaled())
            .unwrap();
        a.post_write(
            &SendRequest::inline(2, b"loud", remote)
                .with_imm(round.to_be_bytes())
                .solicited(),
        )
        .unwrap();
        assert_eq!(channels[1].next(PATIENCE).as_ref(), Some(&cqs[1]));
        // The event came for the second; the first is there as well.
        let done = completions(&cqs[1], 2);
        assert_eq!(done[1].imm, Some(round.to_be_bytes()));
        assert_eq!(channels[0].next(PATIENCE).as_ref(), Some(&cqs[0]));
        assert_eq!(completions(&cqs[0], 1)[0].wr_id, 2);
        assert!(channels.iter().all(|channel| channel.try_next().is_none()));
    }
}
