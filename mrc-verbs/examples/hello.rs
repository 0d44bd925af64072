//! One host writes eight bytes into the memory of another.
//!
//! Started without an argument it waits to be written to; started with the other one's address it writes.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use mrc_verbs::{
    Access, ApiVersion, Context, DeviceContext, ProtectionDomain, QpConfig, QpInit, RemoteRegion, SendRequest,
};

fn main() -> Result<(), Box<dyn Error>> {
    // The interfaces come from the environment, one per plane: MRC_PORTS=p1,p2,p3,p4
    let device = DeviceContext::from_env()?;
    let domain = ProtectionDomain::new(&device)?;
    let memory = domain.register_owned(4096, Access::PEER_WRITABLE)?;
    let context = Context::open(&device, ApiVersion::LATEST)?;
    let completions = context.create_cq(16)?;
    let queue_pair = context.create_qp(&domain, &QpInit::new(&completions))?;

    // MRC has no connection manager. Both sides tell each other one line each, over whatever they have; here it is TCP.
    let writes_to = std::env::args().nth(1);
    let mut peer = match &writes_to {
        Some(address) => loop {
            if let Ok(stream) = TcpStream::connect((address.as_str(), 7471)) {
                break stream;
            }
        },
        None => TcpListener::bind(("0.0.0.0", 7471))?.accept()?.0,
    };
    let mine = queue_pair.offer()?;
    writeln!(peer, "{mine}\n{} {}", memory.addr(), memory.rkey())?;
    let mut lines = BufReader::new(peer.try_clone()?).lines();
    let mut line = || lines.next().unwrap_or(Err(std::io::ErrorKind::UnexpectedEof.into()));
    let theirs = line()?.parse()?;
    let region = line()?;
    let (addr, rkey) = region
        .split_once(' ')
        .ok_or("the peer did not say where its memory is")?;
    let remote = RemoteRegion {
        addr: addr.parse()?,
        len: 4096,
        rkey: rkey.parse()?,
    };
    let agreed = queue_pair.connect(&QpConfig::new(mine, theirs))?;

    if writes_to.is_some() {
        memory.write_at(0, b"hi, MRC!")?;
        queue_pair.post_write(&SendRequest::write(1, memory.slice(0..8)?, remote))?;
        let done = loop {
            if let Some(done) = completions.poll_one()? {
                break done;
            }
        };
        done.result?;
        println!("written to {}", agreed.peer_gid);
    } else {
        // A write lands without our help; eight aligned bytes land in one piece.
        while memory.load_u64(0)? == 0 {
            device.progress();
        }
        println!("{}", String::from_utf8_lossy(&memory.to_vec(0, 8)?));
    }
    Ok(())
}
