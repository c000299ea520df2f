//! A plan and threads for the tests of this crate.

use floodmark_record::events::ThreadUse;
use floodmark_record::plan::{Model, Plan, Target};

/// 50 kept connections, one thread, ten seconds.
pub(crate) fn closed() -> Plan {
    Plan::of(Target {
        url: "http://localhost:8080/hello".to_owned(),
        authority: "localhost:8080".to_owned(),
        path: "/hello".to_owned(),
        ..Target::from(std::net::SocketAddr::from(([127, 0, 0, 1], 8080)))
    })
}

/// A rate of 1,000/s for ten seconds.
pub(crate) fn open() -> Plan {
    Plan {
        model: Model::Open,
        rate_per_s: Some(1000.0),
        arrivals: Some(floodmark_record::plan::Arrivals::Constant),
        ..closed()
    }
}

/// A load thread over ten seconds, with its shares on a CPU and waiting for one.
pub(crate) fn thread(on_cpu: f64, waiting: f64) -> ThreadUse {
    ThreadUse {
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
