//! A session: what a client and a server do together, from the first word to the table.

use std::time::Duration;

use mrc_verbs::{DeviceContext, QueuePair};

use crate::bw::{Flows, Step, StepEnd};
use crate::cli::{ClientArgs, LocalArgs, Plan, ServerArgs, Test};
use crate::control::{ANSWER, Control, Listener, Message, printable, unexpected};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::Report;
use crate::setup::{Setup, Side, open_device};

/// Longest time that the other end may take to fill or compare its memory.
const PREPARE: Duration = Duration::from_mins(2);

/// `mrc-perf client`.
pub(crate) fn client(args: &ClientArgs) -> Result<(), Failure> {
    let plan = args.plan().map_err(Failure::Usage)?;
    // The own host first: its errors need no peer.
    let device = open_device(&args.local)?;
    let control = Control::connect(&args.server, args.local.port)?;
    control.hello(&plan)?;
    serve(device, &plan, &control, &args.local, Side::Client)
}

/// `mrc-perf server`.
pub(crate) fn server(args: &ServerArgs) -> Result<(), Failure> {
    let device = open_device(&args.local)?;
    let listener = Listener::bind(args.bind, args.local.port)?;
    loop {
        let control = listener.accept()?;
        let outcome = match control.welcome() {
            Ok(plan) => serve(device.clone(), &plan, &control, &args.local, Side::Server),
            Err(failure) => {
                control.give_up(&failure);
                Err(failure)
            }
        };
        match outcome {
            Err(failure) if args.forever && !matches!(failure, Failure::Interrupted) => {
                eprintln!("mrc-perf: client {}: {failure}", control.peer());
            }
            outcome if !args.forever => return outcome,
            _ => {}
        }
    }
}

/// Runs a plan, and tells the other end if this one has to give up.
fn serve(device: DeviceContext, plan: &Plan, control: &Control, args: &LocalArgs, side: Side) -> Result<(), Failure> {
    let outcome = play(device, plan, control, args, side);
    if let Err(failure) = &outcome {
        control.give_up(failure);
    }
    outcome
}

fn play(device: DeviceContext, plan: &Plan, control: &Control, args: &LocalArgs, side: Side) -> Result<(), Failure> {
    let setup = Setup::new(device, plan, control, args, side)?;
    let ports: Vec<String> = setup
        .device
        .counters()
        .ports
        .into_iter()
        .map(|port| port.name)
        .collect();
    let mut report = Report::begin(plan, &setup.agreed, &ports, args.json)?;
    let mut flows = Flows::new(plan);
    let mut wrong = None;
    for (number, &size) in plan.sizes.iter().enumerate() {
        setup.prepare(plan, number, size)?;
        let step = Step {
            setup: &setup,
            plan,
            control,
            number,
            size,
        };
        control.barrier(number, PREPARE)?;
        let difference = match plan.test {
            Test::Bw => bandwidth(&step, &mut flows, &mut report, args.quiet)?,
            Test::Lat => latency(&step, &mut report, args.quiet)?,
        };
        wrong = wrong.or(verdict(control, number, difference)?);
        if wrong.is_some() {
            break;
        }
    }
    // Asked while they are there. One is as good as any: normally all share a window.
    let first = setup.qps.first().map(QueuePair::query).transpose()?;
    // Both ends are done with the wire before either takes its queue pairs away.
    control.barrier(plan.sizes.len(), ANSWER)?;
    report.end(&setup.device.counters(), first.as_ref())?;
    wrong.map_or(Ok(()), |difference| Err(Failure::Test(difference)))
}

fn bandwidth(step: &Step<'_>, flows: &mut Flows, report: &mut Report, quiet: bool) -> Result<Option<String>, Failure> {
    let StepEnd {
        own,
        peer,
        received,
        difference,
    } = step.run(flows, &mut Progress::new(quiet))?;
    let directions: Vec<_> = own.into_iter().chain(peer).collect();
    report.bandwidth(step.size, &directions)?;
    if difference.is_some() || !step.plan.verify || received.is_empty() {
        return Ok(difference);
    }
    step.setup
        .compare(step.plan, step.number, step.size, &received, &|_, _, _| {})
}

fn latency(step: &Step<'_>, report: &mut Report, quiet: bool) -> Result<Option<String>, Failure> {
    let rounds = step.ping_pong(&mut Progress::new(quiet))?;
    if let Some(latency) = &rounds.latency {
        report.latency(step.size, latency)?;
    }
    if !step.plan.verify {
        return Ok(None);
    }
    let played = rounds.played;
    let marks = |slot: u64, at: usize, piece: &mut [u8]| step.set_marks(played, slot, at, piece);
    step.setup.compare(step.plan, step.number, step.size, &[played], &marks)
}

/// Exchanges verdicts; the first difference on either side counts for both.
fn verdict(control: &Control, step: usize, difference: Option<String>) -> Result<Option<String>, Failure> {
    control.send(&Message::Verdict {
        step,
        difference: difference.clone(),
    })?;
    match control.receive(PREPARE)? {
        Message::Verdict {
            step: theirs,
            difference: seen,
        } if theirs == step => {
            let here = difference.map(|what| format!("wrong data arrived here: {what}"));
            Ok(here.or(seen.map(|what| format!("wrong data arrived at the peer: {}", printable(&what)))))
        }
        other => Err(unexpected("a verdict", &other)),
    }
}
