//! The command line.

use std::net::IpAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// Smallest and largest size of a sweep.
const SWEEP: std::ops::RangeInclusive<u32> = 1..=23;

const EXAMPLES: &str = "\
Examples:
  # two shells, or two hosts
  MRC_PORTS=p1,p2 mrc-perf server
  MRC_PORTS=p1,p2 mrc-perf client 10.0.0.1

  # every size from 2 B to 8 MiB on four queue pairs, every byte compared
  mrc-perf client 10.0.0.1 --sweep --qps 4 --verify

  # latency of writes with immediate, as JSON
  mrc-perf client 10.0.0.1 --test lat --op write-imm --size 64 --json

The client chooses the test; the server takes it over. Both need the ports of their host (--ports or MRC_PORTS) and the
right to open AF_XDP sockets on them.

Exit status: 0 done, 1 wrong data or a failed write, 2 wrong usage, 3 this host is not set up, 4 the peer is lost, does not
answer or does not fit, 130 interrupted.";

/// Measures bandwidth and latency of MRC writes, in the manner of perftest.
#[derive(Debug, Parser)]
#[command(name = "mrc-perf", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// What this end is.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Waits for one client and serves it.
    Server(ServerArgs),
    /// Connects to a server and runs a test.
    Client(ClientArgs),
}

/// What both ends take.
#[derive(Debug, Clone, Args)]
pub(crate) struct LocalArgs {
    /// TCP port of the management network on which the two ends meet.
    #[arg(long, default_value_t = 18515)]
    pub(crate) port: u16,
    /// This host's MRC ports, plane 1 first [default: the environment's `MRC_PORTS`].
    #[arg(long, value_delimiter = ',')]
    pub(crate) ports: Vec<String>,
    /// EV profile of this end's queue pairs, by name or number [default: what the configuration says for the peer].
    #[arg(long)]
    pub(crate) ev_profile: Option<String>,
    /// CC profile of this end's queue pairs, by name or number [default: what the configuration says for the peer].
    #[arg(long)]
    pub(crate) cc_profile: Option<String>,
    /// Results as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress line.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// `mrc-perf server`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Address to listen on.
    #[arg(long, default_value = "::")]
    pub(crate) bind: IpAddr,
    /// Serves one client after the other instead of ending after the first.
    #[arg(long = "loop")]
    pub(crate) forever: bool,
}

/// `mrc-perf client`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClientArgs {
    /// The server's address or name on the management network.
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// What to measure.
    #[arg(long, value_enum, default_value_t = Test::Bw)]
    pub(crate) test: Test,
    /// The operation.
    #[arg(long, value_enum, default_value_t = Op::Write)]
    pub(crate) op: Op,
    /// Bytes of a message; K, M and G stand for 2^10, 2^20 and 2^30 [default: 64K for bw, 2 for lat].
    #[arg(long, short, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// All powers of two from 2 B to 8 MiB.
    #[arg(long, short = 'a', conflicts_with = "size")]
    pub(crate) sweep: bool,
    /// Queue pairs.
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) qps: u32,
    /// Writes outstanding on each queue pair.
    #[arg(long, short = 't', default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Messages of each queue pair and size [default: 5000 for bw, 1000 for lat].
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..=MAX_ITERS))]
    pub(crate) iters: Option<u64>,
    /// Runs each size for so many seconds instead of a number of messages.
    #[arg(long, short = 'D', conflicts_with = "iters", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Compares the destination byte for byte with what was sent.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Both ends write (bw only).
    #[arg(long, short = 'b')]
    pub(crate) bidirectional: bool,
    /// Payload of a full packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both ends' ports carry].
    #[arg(long, short = 'm', value_parser = parse_pmtu)]
    pub(crate) pmtu: Option<u32>,
    /// Address family of the GIDs [default: IPv6 if both ends have it].
    #[arg(long, value_enum)]
    pub(crate) gid: Option<Family>,
    /// Acknowledgement timeout 1.024 us * 2^N [default: 14].
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=24))]
    pub(crate) timeout: Option<u8>,
    /// Seed of the data.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Bandwidth in Gb/sec (10^9 bits) instead of MB/sec (2^20 bytes).
    #[arg(long)]
    pub(crate) gbits: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// Bandwidth and message rate.
    Bw,
    /// Half the round trip of a ping-pong.
    Lat,
}

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// RDMA write.
    Write,
    /// RDMA write with immediate.
    WriteImm,
}

/// Address family of the GIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What the client asks of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) test: Test,
    pub(crate) op: Op,
    pub(crate) sizes: Vec<u64>,
    pub(crate) qps: u32,
    pub(crate) depth: u32,
    pub(crate) length: Length,
    pub(crate) verify: bool,
    pub(crate) bidirectional: bool,
    pub(crate) pmtu: Option<u32>,
    pub(crate) gid: Option<Family>,
    pub(crate) timeout: Option<u8>,
    pub(crate) seed: u64,
    pub(crate) gbits: bool,
}

/// How long one size runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Length {
    /// Messages of each queue pair.
    Iters(u64),
    /// Seconds.
    Seconds(u64),
}

/// Writes outstanding on all queue pairs, so that their completions, and those of twice as many receives, fit one queue each.
const MAX_OUTSTANDING: u64 = 1 << 18;
/// Largest message of verbs.
const MAX_SIZE: u64 = 1 << 30;
/// Most messages of one queue pair and size: years of them, and their numbers fit beside that of the queue pair.
const MAX_ITERS: u64 = 1 << 39;

impl ClientArgs {
    /// The plan, or why the options do not go together.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        if self.test == Test::Lat {
            if self.bidirectional {
                return Err("--bidirectional goes with --test bw only; a ping-pong has both directions anyway".into());
            }
            if self.qps != 1 {
                return Err(format!(
                    "--qps {} does not go with --test lat, which uses one queue pair",
                    self.qps
                ));
            }
        }
        if u64::from(self.qps) * u64::from(self.depth) > MAX_OUTSTANDING {
            return Err(format!(
                "--qps {} times --depth {} is more than {MAX_OUTSTANDING} writes outstanding, which one completion queue holds: lower either",
                self.qps, self.depth
            ));
        }
        let default_size = if self.test == Test::Bw { 65536 } else { 2 };
        let sizes = if self.sweep {
            SWEEP.map(|bit| 1 << bit).collect()
        } else {
            vec![self.size.unwrap_or(default_size)]
        };
        if self.test == Test::Lat && sizes.contains(&0) {
            return Err("--size 0 cannot be seen arriving: use at least 1 byte with --test lat".into());
        }
        let default_iters = if self.test == Test::Bw { 5000 } else { 1000 };
        let length = match self.seconds {
            Some(seconds) => Length::Seconds(seconds),
            None => Length::Iters(self.iters.unwrap_or(default_iters)),
        };
        Ok(Plan {
            test: self.test,
            op: self.op,
            sizes,
            qps: self.qps,
            depth: self.depth,
            length,
            verify: self.verify,
            bidirectional: self.bidirectional,
            pmtu: self.pmtu,
            gid: self.gid,
            timeout: self.timeout,
            seed: self.seed,
            gbits: self.gbits,
        })
    }
}

impl Plan {
    /// Refuses what a client of ours would not ask for: the plan came over a socket.
    pub(crate) fn checked(self) -> Result<Plan, String> {
        let sizes = (1..=64).contains(&self.sizes.len()) && self.sizes.iter().all(|&size| size <= MAX_SIZE);
        let length = match self.length {
            Length::Iters(iters) => (1..=MAX_ITERS).contains(&iters),
            Length::Seconds(seconds) => (1..=86_400).contains(&seconds),
        };
        let lat = self.test == Test::Bw || (self.qps == 1 && !self.bidirectional && !self.sizes.contains(&0));
        let wrong = [
            (sizes, "1 to 64 sizes of at most 1G"),
            ((1..=1024).contains(&self.qps), "1 to 1024 queue pairs"),
            ((1..=4096).contains(&self.depth), "a depth of 1 to 4096"),
            (
                u64::from(self.qps) * u64::from(self.depth) <= MAX_OUTSTANDING,
                "at most 2^18 writes outstanding on all queue pairs",
            ),
            (length, "1 to 2^39 messages or 1 to 86400 seconds"),
            (lat, "one queue pair, one direction and at least a byte for latency"),
        ]
        .into_iter()
        .find(|(right, _)| !right);
        match wrong {
            None => Ok(self),
            Some((_, limit)) => Err(format!(
                "the client asks for what no mrc-perf asks for: the limit is {limit}; use the same build on both ends"
            )),
        }
    }
}

/// `64K` and the like.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size: write 4096, 64K or 8M"))?;
    number
        .checked_mul(1 << shift)
        .filter(|size| *size <= MAX_SIZE)
        .ok_or_else(|| format!("{text} is more than 1G, the largest message"))
}

fn parse_pmtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pmtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(pmtu),
        _ => Err("a PMTU is 256, 512, 1024, 2048 or 4096".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        let words = ["mrc-perf", "client", "host"].iter().chain(args);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.role {
            Role::Client(client) => client.plan(),
            Role::Server(_) => Err("server".into()),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_have_suffixes_and_a_limit() {
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("8m"), Ok(8 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for bad in ["", "K", "x", "2G", "-1", "1073741825", "99999999999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_are_those_of_perftest() {
        let bw = plan(&[]).unwrap();
        assert_eq!(
            (bw.sizes, bw.length, bw.depth, bw.qps),
            (vec![65536], Length::Iters(5000), 128, 1)
        );
        let lat = plan(&["--test", "lat"]).unwrap();
        assert_eq!((lat.sizes, lat.length), (vec![2], Length::Iters(1000)));
        let sweep = plan(&["--sweep"]).unwrap().sizes;
        assert_eq!((sweep.len(), sweep[0], sweep[22]), (23, 2, 8 << 20));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        for bad in [
            &["--test", "lat", "--bidirectional"][..],
            &["--test", "lat", "--qps", "2"],
            &["--test", "lat", "--size", "0"],
            &["--sweep", "--size", "4"],
            &["--iters", "4", "--seconds", "1"],
            &["--pmtu", "1500"],
            &["--qps", "0"],
            &["--iters", "18446744073709551615"],
        ] {
            assert!(plan(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_plan_from_the_network_is_checked() {
        let good = plan(&[]).unwrap();
        assert!(good.clone().checked().is_ok());
        assert!(Plan { qps: 0, ..good.clone() }.checked().is_err());
        assert!(
            Plan {
                sizes: vec![u64::MAX],
                ..good.clone()
            }
            .checked()
            .is_err()
        );
        for length in [Length::Iters(0), Length::Iters(u64::MAX), Length::Seconds(86_401)] {
            let message = Plan { length, ..good.clone() }.checked().expect_err("accepted");
            assert!(message.contains("2^39") && !message.contains('{'), "{message}");
        }
        assert!(Plan { depth: 1 << 30, ..good }.checked().is_err());
    }
}
