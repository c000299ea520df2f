//! Plans for this crate's tests.

use floodmark_record::plan::{
    Arrivals, Backend, CloseFirst, ConnectionUse, FiguresOf, Model, Plan, RequestPlan, Target,
};

/// A closed-model plan of `requests` on kept connections to `127.0.0.1:1`.
pub fn closed_plan(connections: u32, requests: u64) -> Plan {
    Plan {
        target: Target {
            url: "http://127.0.0.1:1/".into(),
            address: "127.0.0.1:1".parse().unwrap(),
            resolve_us: None,
            authority: "127.0.0.1:1".into(),
            path: "/".into(),
        },
        request: RequestPlan {
            method: "GET".into(),
            headers: Vec::new(),
            body: Vec::new(),
        },
        model: Model::Closed,
        rate_per_s: None,
        arrivals: None,
        connections,
        threads: 1,
        connection_use: ConnectionUse::Kept,
        requests_per_connection: None,
        close_first: CloseFirst::Server,
        duration_s: None,
        requests: Some(requests),
        warmup_s: 0.0,
        figures_of: FiguresOf::Whole,
        timeout_s: 5.0,
        deadline_s: 5.0,
        drain: true,
        expect: Vec::new(),
        check: None,
        sources: None,
        ports_per_source: 28_232,
        backend: Backend::Epoll,
        seed: 1,
    }
}

/// An open-model plan.
pub fn open_plan(
    arrivals: Arrivals,
    rate: f64,
    duration_s: Option<f64>,
    requests: Option<u64>,
) -> Plan {
    Plan {
        model: Model::Open,
        rate_per_s: Some(rate),
        arrivals: Some(arrivals),
        connections: 1000,
        duration_s,
        requests,
        ..closed_plan(1, 0)
    }
}
