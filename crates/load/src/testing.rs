//! Plans for this crate's tests.

use std::net::SocketAddr;

use floodmark_record::plan::{Arrivals, FiguresOf, Model, Plan};

/// A closed-model plan of `requests` on kept connections to `127.0.0.1:1`.
pub fn closed_plan(connections: u32, requests: u64) -> Plan {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Plan {
        connections,
        duration_s: None,
        requests: Some(requests),
        figures_of: FiguresOf::Whole,
        ..Plan::of(address.into())
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
