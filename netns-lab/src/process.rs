//! Programs in the lab's hosts, all of which end with the lab.
//!
//! They live in one process namespace. Its first process, which the lab starts, waits for the end of a pipe whose other end only the
//! lab holds: when the lab ends, in whatever way, the first process ends, and the kernel kills all others of the namespace, whatever
//! they have forked and from whomever they have detached themselves.
#![expect(unsafe_code, reason = "what a child does between fork and exec")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigHandler, SigSet, Signal, killpg, signal};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, sethostname, setsid};

use crate::LabError;
use crate::namespace::{NetNs, on_thread, own_sys};

/// A running program. Like [`Child`], it is not killed when this value is dropped; the lab kills it at its own end.
#[derive(Debug)]
pub struct Process {
    child: Arc<Mutex<Child>>,
    pid: u32,
    /// Its standard input, if piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if piped.
    pub stderr: Option<ChildStderr>,
}

impl Process {
    /// Its process id as the caller sees it, which is also that of its process group.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        // Waits without reaping and without the lock: the lab may have to reap at the same time, at its end.
        let id = || Id::Pid(Pid::from_raw(self.pid as i32));
        while waitid(id(), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::Error::EINTR) {}
        lock(&self.child).wait()
    }

    /// Its exit status if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        lock(&self.child).try_wait()
    }

    /// Reads both outputs to their end and waits.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        fn read(from: Option<impl io::Read>) -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            from.map_or(Ok(0), |mut from| from.read_to_end(&mut bytes))?;
            Ok(bytes)
        }
        drop(self.stdin.take());
        let (out, err) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = std::thread::scope(|scope| {
            let stdout = scope.spawn(|| read(out));
            let stderr = read(err);
            (
                stdout.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                stderr,
            )
        });
        Ok(Output {
            status: self.wait()?,
            stdout: stdout?,
            stderr: stderr?,
        })
    }

    /// Its process group, to send signals to while another thread waits.
    pub fn group(&self) -> ProcessGroup {
        ProcessGroup {
            leader: Arc::clone(&self.child),
        }
    }

    /// Sends a signal to its process group; see [`ProcessGroup::signal`].
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.group().signal(signal)
    }

    /// Kills its process group.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)
    }
}

/// The process group that a [`Process`] leads.
#[derive(Debug, Clone)]
pub struct ProcessGroup {
    leader: Arc<Mutex<Child>>,
}

impl ProcessGroup {
    /// Sends a signal to all processes of the group. If its leader has ended, nothing happens.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let mut leader = lock(&self.leader);
        // Under the lock nobody else reaps it, so the id is still its own.
        if leader.try_wait()?.is_some() {
            return Ok(());
        }
        Ok(killpg(Pid::from_raw(leader.id() as i32), signal)?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lab's process namespace. Dropping it kills and reaps everything in it.
#[derive(Debug)]
pub(crate) struct ProcessSpace {
    first: Child,
    namespace: File,
    children: Mutex<Vec<Arc<Mutex<Child>>>>,
}

impl ProcessSpace {
    /// Makes the namespace and starts its first process, which holds `files` open for all others: they are `/proc/1/fd/N` there, where
    /// N is the descriptor's number here.
    pub(crate) fn new(files: &[OwnedFd]) -> Result<Self, LabError> {
        let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let mut command = Command::new("cat");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let prepare = move || {
            for file in &files {
                // SAFETY: the lab owns these and lives longer than this call.
                let file = unsafe { BorrowedFd::borrow_raw(*file) };
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            // Not in the terminal's foreground group, and the kernel reaps orphans that are handed to it.
            setsid()?;
            // SAFETY: no handler is installed; ignoring a signal is allowed between fork and exec.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
            Ok(())
        };
        // SAFETY: `prepare` makes system calls only and neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        let mut first = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWPID).map_err(|e| LabError::kernel("create a process namespace", e))?;
            command.spawn().map_err(|source| LabError::Program {
                program: "cat".to_owned(),
                package: "coreutils",
                source,
            })
        })?;
        let path = format!("/proc/{}/ns/pid", first.id());
        match File::open(&path) {
            Ok(namespace) => Ok(Self {
                first,
                namespace,
                children: Mutex::default(),
            }),
            Err(e) => {
                let _ = first.kill().and_then(|()| first.wait());
                Err(LabError::kernel(format!("open {path}"), e))
            }
        }
    }

    /// Starts a program in this namespace, in the network namespace `net`, leading its own process group, with `/sys`, `/proc` and
    /// host name of its own.
    pub(crate) fn spawn(&self, net: &NetNs, host_name: &str, mut command: Command) -> Result<Process, LabError> {
        let name = host_name.to_owned();
        let prepare = move || {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
            own_sys()?;
            mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>)?;
            sethostname(&name)?;
            // Whatever the calling thread has blocked.
            SigSet::empty().thread_set_mask()?;
            Ok(())
        };
        command.process_group(0);
        // SAFETY: `prepare` makes system calls only; its paths are short enough for nix's buffer on the stack, so nothing allocates.
        unsafe { command.pre_exec(prepare) };
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = on_thread(|| {
            net.join()?;
            setns(&self.namespace, CloneFlags::CLONE_NEWPID)
                .map_err(|e| LabError::kernel("enter the process namespace", e))?;
            command
                .spawn()
                .map_err(|source| LabError::kernel(format!("start '{program}' on {host_name}"), source))
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        let mut children = lock(&self.children);
        children.retain(|c| !matches!(lock(c).try_wait(), Ok(Some(_))));
        children.push(Arc::clone(&child));
        Ok(Process {
            child,
            pid,
            stdin,
            stdout,
            stderr,
        })
    }
}

impl Drop for ProcessSpace {
    fn drop(&mut self) {
        let _ = self.first.kill();
        // The first process ends only after all others have been reaped, and those are our children.
        for child in lock(&self.children).iter() {
            let _ = lock(child).wait();
        }
        let _ = self.first.wait();
    }
}
