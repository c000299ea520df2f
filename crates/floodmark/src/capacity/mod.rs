//! `floodmark capacity`: finds the highest rate at which a server meets its objectives.

use std::path::Path;

use floodmark_diagnose::conditions::check_objectives;
use floodmark_host::{Stop, open_files};
use floodmark_lab::capacity::{CAPACITY_PRECISION, CapacityRun, EarlierSearch};
use floodmark_lab::{Folder, RemoteObserver, attempt, finish};
use floodmark_observe::{Root, environment::environment};
use floodmark_plan::Planned;
use floodmark_plan::target;
use floodmark_record::capacity::CapacityKind;
use floodmark_record::experiment::Resumed;
use floodmark_record::{Event, Record};
use floodmark_report::Style;
use floodmark_report::junit::RunFault;

use crate::endings::{self, is_unreachable, server_fault};
use crate::exit::{Ending, Exit, stop_on_signals};
use crate::load::check_groups;
use crate::load::shared::workload;
use crate::out;
use crate::progress::LineKind;
use crate::session::{Measured, Measurement, Session, with_folder};
use args::CapacityArgs;

pub mod args;

/// Runs the command.
pub fn run(args: &CapacityArgs) -> Result<(), Ending> {
    let open_files = Some(open_files().hard);
    let stop = stop_on_signals()?;
    if let Some(manifest) = args.shared.check()? {
        return out::print(&manifest);
    }
    check_objectives(&args.objectives, args.shared.connection.timeout)
        .map_err(|what| Ending::usage(format!("--slo {what}")))?;
    let plans = plan(args, open_files)?;
    let groups = args
        .objectives
        .iter()
        .map(|o| (o.group.as_deref(), &*o.text));
    check_groups("--slo", groups, plans.open.plan.mix.as_ref())?;
    let search = UrlSearch {
        args,
        with: args.shared.monitoring.open_file(&plans.open.plan)?,
        plans,
        stop: &stop,
    };
    Session::run(&args.shared.output, args.resume.as_deref(), &stop, search)
}

/// The plans from which the loads of the search are derived.
struct CapacityPlans {
    closed: Planned,
    open: Planned,
}

fn plan(args: &CapacityArgs, open_files: Option<u64>) -> Result<CapacityPlans, Ending> {
    let (closed, open) = (args.closed_spec(), args.open_spec());
    let resolved = target::resolve(&args.url, &closed)?;
    let plan =
        |spec, resolved| floodmark_plan::plan(spec, resolved, open_files).map_err(Ending::usage);
    Ok(CapacityPlans {
        closed: plan(&closed, resolved.clone())?,
        open: plan(&open, resolved)?,
    })
}

/// A search for the capacity of a URL.
struct UrlSearch<'a> {
    args: &'a CapacityArgs,
    plans: CapacityPlans,
    with: Option<RemoteObserver>,
    stop: &'a Stop,
}

impl Measurement for UrlSearch<'_> {
    const SHOWS_INTERRUPTION: bool = true;

    fn measure(&mut self, session: &Session<'_>, folder: &mut Folder) -> Result<Measured, Ending> {
        let args = self.args;
        let open = &self.plans.open;
        let authority = &open.plan.target.authority;
        let earlier = session.resume.map(|path| {
            let texts: Vec<String> = args.objectives.iter().map(|o| o.text.clone()).collect();
            EarlierSearch::read(path, (authority, &workload(open)), &texts)
        });
        let earlier = earlier.transpose().map_err(Ending::usage)?;
        let with = self.with.as_ref();
        let failure = args.shared.with_attempts(
            open,
            1,
            with,
            folder,
            session.stop,
            |attempts, folder| {
                let search = CapacityRun {
                    attempts,
                    closed: &self.plans.closed,
                    objectives: &args.objectives,
                    cpus: environment(&Root::host()).cpus,
                    connections: args.connections.map(|_| open.plan.connections),
                    precision: CAPACITY_PRECISION,
                    budget: args.budget,
                };
                match &earlier {
                    None => attempt::open(folder, session.tool()),
                    Some(earlier) => folder.append(&Event::Resumed(Resumed {
                        tool: session.tool(),
                        unix_ms: attempt::unix_ms(),
                        anew: earlier.others.clone(),
                    })),
                }
                let mut progress = session.progress(LineKind::Trials);
                search.measure(earlier, folder, &mut |event| progress.on(event))
            },
        )?;
        let ran = finish(folder, failure);
        Ok(Measured::judged(ran, folder, |record| {
            let capacity = record.capacity.as_ref();
            let conditions = args.fail_if.iter();
            conditions.map(|of| of.judge(capacity)).collect()
        }))
    }

    // If the server was not reached, the error message suffices.
    fn has_result(&self, record: &Record) -> bool {
        !record.runs.iter().all(is_unreachable)
    }

    fn render(&self, record: &Record, folder: &Path, style: Style) -> String {
        with_folder(&floodmark_report::terminal::capacity(record, style), folder)
    }

    // Some loads of a search exceed the capacity.
    fn fault(&self) -> &RunFault<'_> {
        &endings::run_server_fault
    }

    fn endings(&self, record: &Record) -> Vec<Ending> {
        let mut all = Vec::from_iter(record.runs.iter().find_map(server_fault));
        match &record.capacity {
            Some(found) if found.finding == CapacityKind::Never => {
                let message =
                    "the server did not meet the objectives at any rate; see the verdict above";
                all.push(Ending::new(Exit::Check, message));
            }
            Some(found) if found.rate_per_s.is_none() && !self.stop.is_set() => {
                let message = "no trial was complete; see the notes above";
                all.push(Ending::new(Exit::Invalid, message));
            }
            Some(_) => {}
            // The server did not respond, or the first loads were interrupted.
            None if record.runs.iter().all(|run| run.requests.ok == 0) => {
                all.push(Ending::new(Exit::Check, "no response was ok"));
            }
            None => {}
        }
        let unmeasured = |figure: &str| format!("undecided ({figure})");
        all.extend(endings::failed_threshold(&record.thresholds, unmeasured));
        all
    }
}
