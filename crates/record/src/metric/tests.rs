use super::*;
use proptest::prelude::*;
use proptest::sample::select;

fn role() -> impl Strategy<Value = Role> {
    select(Role::ALL.to_vec())
}

fn scope() -> impl Strategy<Value = Option<Role>> {
    proptest::option::of(role())
}

/// Generates a name without the suffix that marks peaks.
fn name() -> impl Strategy<Value = String> {
    ".{0,12}".prop_filter("peaks end like this", |name| !name.ends_with(".max"))
}

/// Generates an object that a blocked thread waits for.
fn wait_object() -> impl Strategy<Value = WaitObject> {
    prop_oneof![
        select(WaitKind::ALL.to_vec()).prop_map(WaitObject::Kind),
        any::<u64>().prop_map(WaitObject::Lock),
        address().prop_map(WaitObject::Connection),
        "/[!-~]{0,12}".prop_map(WaitObject::UnixSocket),
        "/[!-~]{0,12}".prop_map(WaitObject::File),
        "/[!-~]{0,12}".prop_map(WaitObject::AppendedFile),
        any::<u32>().prop_map(WaitObject::SystemCall),
    ]
}

/// Generates the name of a kernel function that is not the name of a thread-group figure.
fn function() -> impl Strategy<Value = String> {
    "[a-z_][a-z0-9_]{1,12}(\\.isra\\.0)?".prop_filter("a figure", |name| {
        name != "work" && ThreadGroupFigure::from_name(name).is_none()
    })
}

fn table() -> impl Strategy<Value = String> {
    "[a-z]{1,6}\\.[a-z]{4,8}"
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

macro_rules! figure {
    ($figure:ident) => {
        select($figure::ALL.to_vec())
    };
}

/// Generates any known metric.
pub(crate) fn known() -> impl Strategy<Value = Metric> {
    let groups = prop_oneof![
        (role(), name(), figure!(ThreadGroupFigure))
            .prop_map(|(role, group, of)| Metric::ThreadGroup(role, group, of)),
        (role(), name(), function()).prop_map(|(role, group, function)| Metric::ThreadsWaitingIn {
            role,
            group,
            function
        }),
        (role(), name(), wait_object()).prop_map(|(role, group, object)| Metric::ThreadsBlocked {
            role,
            group,
            object
        }),
        (address(), figure!(UpstreamFigure)).prop_map(|(to, of)| Metric::Upstream(to, of)),
    ];
    let stores = prop_oneof![
        figure!(PostgresqlFigure).prop_map(Metric::Postgresql),
        "[A-Z][a-zA-Z]{1,8}:[a-zA-Z]{1,10}".prop_map(Metric::PostgresqlWait),
        figure!(CassandraFigure).prop_map(Metric::Cassandra),
        ("[A-Z][A-Za-z-]{0,12}", figure!(PoolFigure))
            .prop_map(|(pool, of)| Metric::CassandraPool(pool, of)),
        (
            select(TableOperation::ALL.to_vec()),
            proptest::option::of(table()),
            figure!(TableFigure)
        )
            .prop_map(|(operation, table, of)| Metric::CassandraTable(operation, table, of)),
    ];
    prop_oneof![
        (scope(), figure!(HostFigure)).prop_map(|(scope, of)| Metric::Host(scope, of)),
        (scope(), figure!(NetworkFigure)).prop_map(|(scope, of)| Metric::Network(scope, of)),
        (scope(), figure!(CgroupFigure)).prop_map(|(scope, of)| Metric::Cgroup(scope, of)),
        (scope(), figure!(DiskFigure)).prop_map(|(scope, of)| Metric::Disk(scope, of)),
        (role(), figure!(ProcessFigure)).prop_map(|(role, of)| Metric::Process(role, of)),
        (role(), figure!(JvmFigure)).prop_map(|(role, of)| Metric::Jvm(role, of)),
        (role(), figure!(SocketFigure)).prop_map(|(role, of)| Metric::Sockets(role, of)),
        figure!(TcpInfoFigure).prop_map(Metric::TcpInfo),
        figure!(ListenerFigure).prop_map(Metric::Listener),
        Just(Metric::DelayProxyCpu),
        groups,
        stores,
    ]
}

fn observation(metric: Metric, is_peak: bool) -> Observation {
    Observation {
        metric,
        is_peak,
        source: "/proc/stat".to_owned(),
        start_ms: 50,
        step_ms: 200,
        values: vec![0.0, 1.5],
    }
}

/// Returns a metric in stored form.
fn stored(subject: &str, name: &str, unit: &str) -> serde_json::Value {
    serde_json::json!({
        "subject": subject, "metric": name, "unit": unit, "source": "", "start_ms": 0, "step_ms": 1,
        "values": [1.0],
    })
}

proptest! {
    #[test]
    fn every_metric_round_trips_through_the_record(metric in known(), is_peak: bool) {
        let written = observation(metric, is_peak);
        let text = serde_json::to_string(&written).unwrap();
        prop_assert_eq!(serde_json::from_str::<Observation>(&text).unwrap(), written);
    }

    #[test]
    fn any_subject_and_name_round_trip(subject in name(), name in ".{0,20}", unit in "[a-z/]{0,5}") {
        let json = stored(&subject, &name, &unit);
        let read: Observation = serde_json::from_value(json.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }

    #[test]
    fn names_close_to_known_ones_round_trip(metric in known(), cut in 0_usize..4, more in "[ .a-z0:]{0,6}") {
        let mut name = metric.name().into_owned();
        for _ in 0..cut {
            name.pop();
        }
        name.push_str(&more);
        let metric = Metric::parse(metric.subject().into_owned(), name.clone(), "u".to_owned());
        prop_assert_eq!(metric.name(), name);
    }
}

#[test]
fn reads_names_that_carry_data() {
    let parse = |subject: &str, name: &str| {
        let metric = Metric::parse(subject.to_owned(), name.to_owned(), "u".to_owned());
        assert!(!matches!(metric, Metric::Other { .. }), "{subject} {name}");
        metric
    };
    assert_eq!(
        parse("server threads", "pool in use at work"),
        Metric::ThreadGroup(
            Role::Server,
            "pool in use".to_owned(),
            ThreadGroupFigure::Working
        )
    );
    assert_eq!(
        parse("store threads", "main in do_epoll_wait"),
        Metric::ThreadsWaitingIn {
            role: Role::Store,
            group: "main".to_owned(),
            function: "do_epoll_wait".to_owned(),
        }
    );
    assert_eq!(
        parse("server upstreams", "[::1]:5432 waiting or not"),
        Metric::Upstream(
            "[::1]:5432".parse().unwrap(),
            UpstreamFigure::PerhapsWaiting
        )
    );
    assert_eq!(
        parse("postgresql", "waiting IO:WALSync"),
        Metric::PostgresqlWait("IO:WALSync".to_owned())
    );
    assert_eq!(
        parse("postgresql", "waiting for locks"),
        Metric::Postgresql(PostgresqlFigure::WaitingForLocks)
    );
    assert_eq!(
        parse("cassandra", "local_read p99 of the slowest other table"),
        Metric::CassandraTable(TableOperation::LocalRead, None, TableFigure::P99)
    );
    assert_eq!(
        parse("cassandra", "Native-Transport-Requests pending"),
        Metric::CassandraPool("Native-Transport-Requests".to_owned(), PoolFigure::Pending)
    );
}

#[test]
fn peaks_of_counters_are_rates() {
    let user = Metric::Process(Role::Server, ProcessFigure::User);
    let json = serde_json::to_value(observation(user, true)).unwrap();
    assert_eq!(
        (&json["metric"], &json["unit"]),
        (&"user.max".into(), &"s/s".into())
    );
    let queue = Metric::Listener(ListenerFigure::AcceptQueue);
    let json = serde_json::to_value(observation(queue, true)).unwrap();
    assert_eq!(json["unit"], "connections");
}

#[test]
fn unknown_metrics_keep_their_strings() {
    let json = stored("gpu", "busy.max", "shaders/s");
    let read: Observation = serde_json::from_value(json.clone()).unwrap();
    assert!(read.is_peak && matches!(&read.metric, Metric::Other { name, .. } if name == "busy"));
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}
