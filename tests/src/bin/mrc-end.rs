//! One end of a connection as a process of its own, so that tests can kill it or take its rights away.
//!
//! `mrc-end open` opens the device that the environment describes and says `open`, or why not. `mrc-end target` is then
//! written to; `mrc-end source` writes without end. Both say their offer and their region, one line each, and read the
//! peer's. All stay until they are killed or their standard input ends.

use std::io::{self, BufRead as _, Write as _};

use mrc_verbs::{
    Access, ApiVersion, ConnectionInfo, Context, DeviceContext, ProtectionDomain, QpConfig, QpInit, RemoteRegion,
    SendRequest,
};

const REGION: usize = 1 << 20;
const PIECE: usize = 64 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let role = std::env::args().nth(1).ok_or("usage: mrc-end open|target|source")?;
    let device = match DeviceContext::from_env() {
        Ok(device) => device,
        Err(error) => return say(&error.to_string()),
    };
    if role == "open" {
        say("open")?;
    } else {
        converse(&device, role == "source")?;
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

fn say(line: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn hear<T>(parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Box<dyn std::error::Error>> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    parse(line.trim_end()).ok_or_else(|| "the peer's data are not what they should be".into())
}

fn converse(device: &DeviceContext, writes: bool) -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::open(device, ApiVersion::LATEST)?;
    let pd = ProtectionDomain::new(device)?;
    let region = pd.register_owned(REGION, Access::PEER_WRITABLE)?;
    let cq = context.create_cq(256)?;
    let qp = context.create_qp(&pd, &QpInit::new(&cq))?;
    let mine = qp.offer()?;
    say(&mine.to_string())?;
    say(&serde_json::to_string(&region.remote())?)?;
    let theirs: ConnectionInfo = hear(|line| line.parse().ok())?;
    let target: RemoteRegion = hear(|line| serde_json::from_str(line).ok())?;
    qp.connect(&QpConfig::new(mine, theirs))?;
    say("connected")?;
    if !writes {
        // The queue pair lives until somebody ends the conversation.
        io::copy(&mut io::stdin().lock(), &mut io::sink())?;
        return Ok(());
    }
    let (mut posted, mut done) = (0, 0);
    loop {
        while posted - done < 8 {
            qp.post_write(&SendRequest::write(posted, region.slice(..PIECE)?, target))?;
            posted += 1;
        }
        if let Some(completion) = cq.poll_one()? {
            completion.result?;
            done += 1;
            if done == 64 {
                say("writing")?;
            }
        } else {
            std::thread::yield_now();
        }
    }
}
