//! Plans, threads and agents for this crate's tests.

use floodmark_record::capacity::{CapacityKind, CapacityPlan, CapacityResult};
use floodmark_record::events::ThreadUsage;
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Length, Model, Plan, Schedule, Spacing, Target};
use floodmark_record::run::{AgentRun, ClientUsage, Status, Validity};
use floodmark_record::units::Rate;

/// Returns a plan for 50 kept connections, one thread and ten seconds.
pub(crate) fn closed() -> Plan {
    Plan::of(Target {
        url: "http://localhost:8080/hello".to_owned(),
        authority: "localhost:8080".to_owned(),
        path: "/hello".to_owned(),
        ..Target::from(std::net::SocketAddr::from(([127, 0, 0, 1], 8080)))
    })
}

/// Returns a plan for a constant rate of 1,000/s over ten seconds.
pub(crate) fn open() -> Plan {
    let rate = Rate::new(1000.0).expect("a positive rate");
    scheduled(Schedule::Constant {
        rate,
        spacing: Spacing::Constant,
        length: Length::seconds(10.0),
    })
}

/// Returns a plan for a burst of 10,000 requests at 1,000/s.
pub(crate) fn burst() -> Plan {
    let rate = Rate::new(1000.0).expect("a positive rate");
    let requests = 10_000;
    scheduled(Schedule::Burst { requests, rate })
}

/// Returns an open-model plan with the given schedule.
pub(crate) fn scheduled(schedule: Schedule) -> Plan {
    let hold = false;
    Plan {
        model: Model::Open { schedule, hold },
        ..closed()
    }
}

/// Returns a load thread in a ten-second run. The arguments are the shares of the time that the
/// thread was on a CPU and waiting for a CPU.
pub(crate) fn thread(on_cpu: f64, waiting: f64) -> ThreadUsage {
    ThreadUsage {
        name: "load-0".to_owned(),
        drives_load: true,
        user_s: on_cpu * 4.0,
        system_s: on_cpu * 6.0,
        run_delay_s: Some(waiting * 10.0),
        wall_s: 10.0,
        coalesced_s: None,
        kernel_stamped: None,
    }
}

/// Returns a valid agent on a host with 4 CPUs.
pub(crate) fn agent(name: &str) -> AgentRun {
    AgentRun {
        name: name.to_owned(),
        host: format!("host-{name}"),
        boot_id: None,
        shares_host: false,
        cpus: 4,
        skew_us: Some(5e6),
        bound_us: Some(100.0),
        late_start_us: 0.0,
        throughput_per_s: Some(500.0),
        requests: Counts::default(),
        longest_stall_ns: Some(0),
        client: ClientUsage {
            threads: vec![thread(0.3, 0.1)],
            ..ClientUsage::default()
        },
        validity: Validity {
            status: Status::Valid,
            reasons: Vec::new(),
            unsteady_bound: false,
            notes: Vec::new(),
        },
        lost: None,
    }
}

/// Returns the result of a search for a capacity, without trials.
pub(crate) fn capacity(rate_per_s: f64, low: f64, high: f64) -> CapacityResult {
    CapacityResult {
        trial: None,
        process: 1,
        settings: CapacityPlan {
            objectives: vec!["p99 < 5ms".to_owned()],
            start_per_s: 18_000.0,
            lowest_per_s: 200.0,
            highest_per_s: 2e7,
            precision: 0.02,
            budget_s: 60.0,
            closed: None,
        },
        finding: CapacityKind::Capacity,
        rate_per_s: Some(rate_per_s),
        low: Some(low),
        high: Some(high),
        level: 0.95,
        bound: None,
        answered_per_s: None,
        levels: Vec::new(),
        proved_per_s: None,
        falling: None,
        last_per_s: None,
        scatter: Some(0.01),
        is_confirmed: true,
        end: None,
        trials: Vec::new(),
    }
}
