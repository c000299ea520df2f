//! `floodmark capacity`: finds the highest rate at which a server meets its objectives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use floodmark_diagnose::conditions::check_objectives;
use floodmark_host::{ProcessPlacement, Stop, open_files};
use floodmark_lab::capacity::{CAPACITY_PRECISION, CapacityRun, EarlierSearch};
use floodmark_lab::{Attempts, Folder, attempt, finish};
use floodmark_observe::{Root, environment::environment};
use floodmark_plan::Planned;
use floodmark_plan::target;
use floodmark_record::capacity::CapacityKind;
use floodmark_record::events::RunId;
use floodmark_record::experiment::Resumed;
use floodmark_record::{Event, Record};

use crate::endings::{self, is_unreachable, server_fault};
use crate::exit::{self, Ending, Exit, report_all, stop_on_signals};
use crate::load::{check_groups, check_server_pid, empty_record, tool};
use crate::out;
use args::CapacityArgs;
use progress::CapacityProgress;

pub mod args;
mod progress;

/// Runs the command.
pub fn run(args: &CapacityArgs) -> Result<(), Ending> {
    let open_files = Some(open_files().hard);
    let stop = stop_on_signals()?;
    args.files.check_writable()?;
    check_server_pid(args.monitoring.server_pid)?;
    args.agents.check().map_err(Ending::usage)?;
    if let Some(manifest) = args.agents.printed_manifest() {
        return out::print(&manifest);
    }
    check_objectives(&args.objectives, args.connection.timeout)
        .map_err(|what| Ending::usage(format!("--slo {what}")))?;
    let plans = plan(args, open_files)?;
    let groups = args
        .objectives
        .iter()
        .map(|o| (o.group.as_deref(), &*o.text));
    check_groups("--slo", groups, plans.open.plan.mix.as_ref())?;
    let (record, failure, folder) = measure(args, &plans, &stop)?;
    let shown = show(args, &record, &folder);
    let saved = failure.is_none().then_some(&*folder);
    let written = args
        .files
        .write_result(&record, saved, &endings::run_server_fault);
    let failures = failure.into_iter().chain(written.err()).chain(shown.err());
    ending(args, &record, failures.collect(), &stop)
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

/// Runs the search. Returns the record, the error of a failed load process, and the result folder.
fn measure(
    args: &CapacityArgs,
    plans: &CapacityPlans,
    stop: &Stop,
) -> Result<(Record, Option<Ending>, PathBuf), Ending> {
    let plan = &plans.open.plan;
    let workload = plan
        .mix
        .as_ref()
        .map_or(&plan.target.path, |mix| &mix.file)
        .clone();
    let with = args.monitoring.open_file(plan)?;
    let export = args.export.start(args.quiet)?;
    let folder = match (&args.out, &args.resume) {
        (Some(path), _) => Folder::create(path),
        (None, Some(path)) => Folder::reopen(path, "--resume"),
        (None, None) => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let earlier = args.resume.as_deref().map(|path| {
        let texts: Vec<String> = args.objectives.iter().map(|o| o.text.clone()).collect();
        EarlierSearch::read(path, (&plan.target.authority, &workload), &texts)
    });
    let earlier = earlier.transpose().map_err(Ending::usage)?;
    let started = args.monitoring.start(plan, folder.path(), stop)?;
    let (link, observer) = started.unzip();
    let remote = with.or(observer);
    let side = ProcessPlacement::default();
    let agents = args.agents.setting(args.safety.anyway, &side);
    let search = CapacityRun {
        attempts: Attempts {
            client: None,
            agents: agents.as_ref(),
            expected: &[],
            planned: &plans.open,
            attempts: 1,
            run: RunId {
                system: plan.target.authority.clone(),
                workload,
                trial: None,
                setting: BTreeMap::new(),
                process: 1,
                attempt: 1,
            },
            side: &side,
            place: None,
            proxy: None,
            monitoring: args.monitoring.monitoring(remote.as_ref()),
            log: None,
            exits: None,
            stop,
        },
        closed: &plans.closed,
        objectives: &args.objectives,
        cpus: environment(&Root::host()).cpus,
        connections: args.connections.map(|_| plan.connections),
        precision: CAPACITY_PRECISION,
        budget: args.budget,
    };
    match &earlier {
        None => attempt::open(&mut folder, tool()),
        Some(earlier) => folder.append(&Event::Resumed(Resumed {
            tool: tool(),
            unix_ms: attempt::unix_ms(),
            anew: earlier.others.clone(),
        })),
    }
    let mut progress = CapacityProgress::new(args.quiet, stop);
    let mut listener = |event: &Event| {
        if let Some(warning) = export.on(event) {
            progress.clear();
            out::complain(&warning);
        }
        progress.on(event);
    };
    let failure = search.measure(earlier, &mut folder, &mut listener);
    drop(link);
    drop(progress);
    export.finish();
    let (mut record, failure) = finish(&mut folder, failure).unwrap_or_else(|error| {
        let message = error.to_string();
        (empty_record(message.clone()), Some(message))
    });
    let failure = failure.map(Ending::internal);
    let judge = |condition: &floodmark_diagnose::conditions::CapacityCondition| {
        condition.judge(record.capacity.as_ref())
    };
    record.thresholds = args.fail_if.iter().map(judge).collect();
    let kept = match &failure {
        None if !record.thresholds.is_empty() => folder.write_record(&record).err(),
        _ => None,
    };
    let failure = failure.or_else(|| kept.map(Ending::internal));
    Ok((record, failure, folder.path().to_owned()))
}

/// Prints the summary if the server was reached. Otherwise, the error message suffices.
fn show(args: &CapacityArgs, record: &Record, folder: &Path) -> Result<(), Ending> {
    if args.quiet || record.runs.iter().all(is_unreachable) {
        return Ok(());
    }
    out::show(args.files.use_stdout(), |style| {
        let text = floodmark_report::terminal::capacity(record, style);
        format!("{text}\nresult: {}\n", folder.display())
    })
}

fn ending(
    args: &CapacityArgs,
    record: &Record,
    failures: Vec<Ending>,
    stop: &Stop,
) -> Result<(), Ending> {
    let shown = !args.quiet && !record.runs.is_empty();
    let interrupted = endings::interrupted(record, stop, !failures.is_empty(), shown);
    let mut all = report_all(failures);
    all.extend(interrupted);
    all.extend(record.runs.iter().find_map(server_fault));
    match &record.capacity {
        Some(found) if found.finding == CapacityKind::Never => {
            let message =
                "the server did not meet the objectives at any rate; see what limits it above";
            all.push(Ending::new(Exit::Check, message));
        }
        Some(found) if found.rate_per_s.is_none() && !stop.is_set() => {
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
    exit::worst(all)
}
