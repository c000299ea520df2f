//! Tests of changed tables and unusable databases.

use super::*;

#[test]
fn survives_changes_to_the_table() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    let server = TestServer::start(with_store(&store.url("bars", "bars")));
    let mut client = server.connect();
    stored(&post(&mut client, "a"), "a");
    assert_eq!(list(server.address).len(), 1);
    store.execute("ALTER TABLE bar ALTER name TYPE text, ALTER name DROP NOT NULL");
    // The first statement of each session fails, because a column's type has changed.
    for _ in 0..2 {
        client.get("/bars");
        post(&mut client, "either");
    }
    stored(&post(&mut client, "b"), "b");
    assert!(list(server.address).len() >= 2);

    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'floodmark serve' \
        ORDER BY pid";
    let before = store.execute(sessions);
    store.execute("INSERT INTO bar (name) VALUES (NULL)");
    for _ in 0..2 {
        let response = client.get("/bars");
        assert_unavailable(&response);
        assert!(response.body.contains("unexpected rows"), "{response:?}");
    }
    assert_eq!(store.execute(sessions), before, "the sessions remain open");
    store.execute("DELETE FROM bar WHERE name IS NULL");
    assert!(list(server.address).len() >= 2);
    server.stop();
}

#[test]
fn refuses_a_database_that_it_cannot_use() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    store.execute("CREATE ROLE guest LOGIN PASSWORD 'kiwi7'");
    store.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    for (database, columns) in [
        (
            "foreign_table",
            "id bigserial, name text NOT NULL, owner text NOT NULL",
        ),
        ("missing_default", "id bigint, name text"),
        ("short", "id bigserial, name varchar(20)"),
        ("null_name", "id bigserial, name text"),
        (
            "null_id",
            "id bigint DEFAULT nextval('ids'), name text NOT NULL",
        ),
        (
            "check_name",
            "id bigserial, name text NOT NULL CHECK (name <> 'x')",
        ),
        (
            "unique_name",
            "id bigserial PRIMARY KEY, name text UNIQUE NOT NULL",
        ),
        (
            "foreign_key",
            "id bigserial, name text NOT NULL, owner bigint REFERENCES owners",
        ),
        (
            "exclusion",
            "id bigserial, name text NOT NULL, EXCLUDE (name WITH =)",
        ),
        ("unique_index", "id bigserial, name text NOT NULL"),
        (
            "suitable",
            "id bigserial PRIMARY KEY, name text NOT NULL, UNIQUE (id) INCLUDE (name)",
        ),
    ] {
        store.execute(&format!("CREATE DATABASE {database}"));
        store.execute_in(
            database,
            &format!(
                "CREATE SEQUENCE ids; CREATE TABLE owners (id bigint PRIMARY KEY); \
                CREATE TABLE bar ({columns})"
            ),
        );
    }
    store.execute_in(
        "unique_index",
        "CREATE UNIQUE INDEX lower_name ON bar (lower(name))",
    );
    // A foreign key in another table cannot reject inserts into bar.
    let other = "CREATE TABLE beer (bar bigint REFERENCES bar (id))";
    store.execute_in("suitable", other);
    let rules = "host all bars 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(store.cluster().join("pg_hba.conf"), rules).unwrap();
    store.execute("SELECT pg_reload_conf()");
    // PostgreSQL reloads the rules asynchronously.
    thread::sleep(Duration::from_millis(500));
    let address = store.address;
    for (user, database, reasons) in [
        (
            "guest:wr0ng",
            "bars",
            [
                "password authentication failed",
                "correct the user or password",
            ],
        ),
        ("guest", "bars", ["password missing", "add the password"]),
        (
            "guest:kiwi7",
            "bars",
            [
                "permission denied for schema public",
                "grant the user access",
            ],
        ),
        (
            "bars",
            "none",
            ["database \"none\" does not exist", "create the database"],
        ),
        ("bars", "foreign_table", ["column owner", "is required"]),
        ("bars", "missing_default", ["column id", "has no default"]),
        ("bars", "short", ["column name", "character varying(20)"]),
        ("bars", "null_name", ["column name", "can be NULL"]),
        ("bars", "null_id", ["column id", "can be NULL"]),
        (
            "bars",
            "check_name",
            ["bar_name_check", "can refuse inserts"],
        ),
        (
            "bars",
            "unique_name",
            ["bar_name_key", "can refuse inserts"],
        ),
        (
            "bars",
            "foreign_key",
            ["bar_owner_fkey", "can refuse inserts"],
        ),
        ("bars", "exclusion", ["bar_name_excl", "can refuse inserts"]),
        ("bars", "unique_index", ["lower_name", "can refuse inserts"]),
        ("bars", "latin", ["the database encoding is LATIN1", "UTF8"]),
    ] {
        let error = start_error(&store.url(user, database));
        assert!(
            error.starts_with(&format!("PostgreSQL at {address}: ")),
            "{error}"
        );
        for reason in reasons {
            assert!(error.contains(reason), "{error}");
        }
        assert!(
            !error.contains("wr0ng") && !error.contains("kiwi7"),
            "{error}"
        );
    }
    store.execute("CREATE TABLE bar (id bigserial PRIMARY KEY, name text NOT NULL)");
    let url = store.url("guest:kiwi7", "bars");
    assert!(start_error(&url).contains("lacks access to the column id"));
    store.execute("GRANT SELECT, INSERT ON bar TO guest");
    assert!(start_error(&url).contains("USAGE on its id sequence"));
    store.execute("GRANT USAGE ON SEQUENCE bar_id_seq TO guest");
    let server = TestServer::start(with_store(&url));
    stored(&post(&mut server.connect(), "Corner"), "Corner");
    server.stop();
    TestServer::start(with_store(&store.url("bars", "suitable"))).stop();

    let url = |at: SocketAddr| format!("postgresql://u:s3cret@{at}/d");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start_error(&url(silent.local_addr().unwrap()));
    assert!(error.contains(": no response; check"), "{error}");
    let at = silent.local_addr().unwrap();
    drop(silent);
    let begin = Instant::now();
    let error = start_error(&url(at));
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert!(error.contains("Connection refused"), "{error}");
    assert!(
        error.contains("start PostgreSQL, or correct the address"),
        "{error}"
    );
}
