//! `floodmark capacity`: finds the highest rate at which a server meets its objectives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use floodmark_diagnose::conditions::{CapacityCondition, Objective, check_objectives};
use floodmark_host::{Stop, open_files};
use floodmark_lab::capacity::{CAPACITY_PRECISION, CapacityRun, EarlierSearch, check_budget};
use floodmark_lab::{Directory, RemoteObserver, attempt, finish};
use floodmark_observe::{Root, environment::environment};
use floodmark_plan::spec::Warmup;
use floodmark_plan::values::{count_from_one, positive_duration};
use floodmark_plan::{LoadSpec, PlanSpec, Planned, target};
use floodmark_record::capacity::CapacityKind;
use floodmark_record::experiment::Resumed;
use floodmark_record::plan::Spacing;
use floodmark_record::units::Rate;
use floodmark_record::{Event, Record};
use floodmark_report::Style;
use floodmark_report::junit::RunFault;

use crate::endings::{self, is_unreachable, server_fault};
use crate::exit::{Ending, Exit, HELP, stop_on_signals};
use crate::load::check_groups;
use crate::load::shared::{SharedArgs, spacing, workload};
use crate::out;
use crate::progress::LineKind;
use crate::session::{Measured, Measurement, Session, with_directory};

/// Find the highest rate at which a server meets its objectives.
///
/// Sends open-model loads at rates that approach the capacity from both sides. Reports the capacity
/// with a 95 % interval, the trials, the response times at 50 % to 100 % of the capacity, and the
/// objective that fails first above the capacity. The interval covers the variation between trials
/// of one server process, not between processes.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct CapacityArgs {
    /// URL to load, such as http://127.0.0.1:8080/; http:// is assumed if the scheme is missing
    pub url: String,

    /// Objective that the server must meet, such as 'p99 < 20ms', 'errors < 0.1%', 'goodput > 99%'
    /// (share of ok responses within --deadline) or, for one request of a mix, 'search: p99 <
    /// 50ms'; repeatable
    #[arg(
        long = "slo",
        value_name = "OBJECTIVE",
        required = true,
        help_heading = "Search"
    )]
    pub objectives: Vec<Objective>,

    /// Maximum duration of the search, with a unit, at least 15s; if the time runs out, the
    /// interval is wider than ± 2 %
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "3m", help_heading = "Search")]
    pub budget: Duration,

    /// Duration of the warm-up (closed model) before the search, with a unit: 5s [default: none]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = "Search")]
    pub warmup: Option<Duration>,

    /// Maximum number of connections [default: the number of requests sent in ten times the time
    /// limit, or in 100ms if that is longer; at least 100; divided by --streams; 50 in the closed
    /// model]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub connections: Option<u64>,

    /// Spacing between requests
    #[arg(long, value_name = "HOW", value_parser = spacing(), default_value = "poisson", help_heading = "Load")]
    pub arrivals: Spacing,

    /// Flags that `load` has too.
    #[command(flatten)]
    pub shared: SharedArgs,

    /// Exit with 1 if this condition holds, such as 'capacity < 5000/s' or 'low < 5000/s';
    /// repeatable [default: none]
    #[arg(long, value_name = "CONDITION", help_heading = "Judgment")]
    pub fail_if: Vec<CapacityCondition>,

    /// Resume the interrupted search in this result directory; its trials are not repeated
    /// [default: none]
    #[arg(
        long,
        value_name = "DIRECTORY",
        conflicts_with = "out",
        help_heading = "Output"
    )]
    pub resume: Option<PathBuf>,
}

fn budget(text: &str) -> Result<Duration, String> {
    positive_duration(text).and_then(check_budget)
}

impl CapacityArgs {
    /// Converts the flags to the settings of the closed-model load.
    pub fn closed_spec(&self) -> PlanSpec {
        let mut spec = self.shared.spec();
        spec.load.connections = self.connections;
        spec.load.duration = Some(Duration::from_secs(1));
        spec.load.warmup = Some(Warmup::Before(self.warmup.unwrap_or_default()));
        spec
    }

    /// Converts the flags to the settings of an open-model load at a nominal rate.
    pub fn open_spec(&self) -> PlanSpec {
        let mut spec = self.closed_spec();
        spec.load.rate = Rate::new(1.0);
        spec.load.arrivals = Some(self.arrivals);
        spec.load.warmup = Some(Warmup::Before(Duration::ZERO));
        spec
    }
}

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
    if plans.open.plan.unique_rows().is_some() {
        let what =
            "--mix: a capacity search does not support take = \"unique\"; set take = \"in-turn\"";
        return Err(Ending::usage(what));
    }
    if !args.shared.output.quiet {
        out::remarks(&plans.closed.remarks);
    }
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
    let (closed, mut open) = (args.closed_spec(), args.open_spec());
    let resolved = target::resolve(&args.url, &closed)?;
    let plan =
        |spec, resolved| floodmark_plan::plan(spec, resolved, open_files).map_err(Ending::usage);
    let closed = plan(&closed, resolved.clone())?;
    // All loads of a search use the version of HTTP that the server chose first.
    open.load.override_with(&LoadSpec {
        http: Some(closed.plan.http.into()),
        ..LoadSpec::default()
    });
    Ok(CapacityPlans {
        open: plan(&open, resolved)?,
        closed,
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

    fn measure(
        &mut self,
        session: &Session<'_>,
        directory: &mut Directory,
    ) -> Result<Measured, Ending> {
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
            directory,
            session.stop,
            |attempts, directory| {
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
                    None => attempt::open(directory, session.tool()),
                    Some(earlier) => directory.append(&Event::Resumed(Resumed {
                        tool: session.tool(),
                        unix_ms: attempt::unix_ms(),
                        anew: earlier.others.clone(),
                    })),
                }
                let mut progress = session.progress(LineKind::Trials);
                search.measure(earlier, directory, &mut |event| progress.on(event))
            },
        )?;
        let ran = finish(directory, failure);
        Ok(Measured::judged(ran, directory, |record| {
            let capacity = record.capacity.as_ref();
            let conditions = args.fail_if.iter();
            conditions.map(|of| of.judge(capacity)).collect()
        }))
    }

    // If the server is unreachable, the error message is sufficient.
    fn has_result(&self, record: &Record) -> bool {
        !record.runs.iter().all(is_unreachable)
    }

    fn render(&self, record: &Record, directory: &Path, style: Style) -> String {
        with_directory(
            &floodmark_report::terminal::capacity(record, style),
            directory,
        )
    }

    // Some loads of a search exceed the capacity, so a missed objective is not a fault.
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
        all.extend(endings::failed_threshold(&record.thresholds));
        all
    }
}
