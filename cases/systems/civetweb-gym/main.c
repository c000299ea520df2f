/* Bookings of a gym on CivetWeb. The environment variable APP selects the application; see system.toml. */
#include <civetweb.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX 256
#define CLASSES 20
#define MEMBERS 50000

static atomic_uint next;
static int requests;

static pthread_mutex_t lockers[MAX];
static int locker_count;

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_free = PTHREAD_COND_INITIALIZER;
static PGconn *pool[MAX];
static int pool_size;
static int batch;

static const char *setting(const char *name) { return getenv(name); }

static int number(const char *name) { return atoi(setting(name)); }

static void fail(const char *message) {
    fprintf(stderr, "%s\n", message);
    _exit(1);
}

static void hello(void) {}

static void pause_for(int milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL); }

static void pause_20_ms(void) { pause_for(20); }

/* Sleeps for 10 ms while it holds the mutex of one locker. */
static void use_locker(void) {
    pthread_mutex_t *locker = &lockers[next++ % locker_count];
    pthread_mutex_lock(locker);
    pause_for(10);
    pthread_mutex_unlock(locker);
}

/* Uses CPU time: computes a training plan. */
static void plan(void) {
    volatile double load = 1;
    for (int i = 1; i < 300000; i++) {
        load = load * 0.999 + 1.0 / i;
    }
}

static PGconn *take(void) {
    pthread_mutex_lock(&pool_mutex);
    while (!pool_size) {
        pthread_cond_wait(&is_free, &pool_mutex);
    }
    PGconn *connection = pool[--pool_size];
    pthread_mutex_unlock(&pool_mutex);
    return connection;
}

static void give_back(PGconn *connection) {
    pthread_mutex_lock(&pool_mutex);
    pool[pool_size++] = connection;
    pthread_cond_signal(&is_free);
    pthread_mutex_unlock(&pool_mutex);
}

/* Runs a query. It must return this number of rows. */
static void query(PGconn *connection, const char *sql, int rows) {
    PGresult *result = PQexec(connection, sql);
    ExecStatusType status = PQresultStatus(result);
    if ((status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) || PQntuples(result) != rows) {
        fail(PQerrorMessage(connection));
    }
    PQclear(result);
}

/* Reads 20 classes with queries that return BATCH classes each. */
static void timetable(void) {
    char sql[128];
    PGconn *connection = take();
    for (int first = 1; first <= CLASSES; first += batch) {
        snprintf(sql, sizeof sql, "SELECT name FROM classes WHERE id BETWEEN %d AND %d", first, first + batch - 1);
        query(connection, sql, batch);
    }
    give_back(connection);
}

/* Finds a member by the number of the card. */
static void check_in(void) {
    char sql[128];
    unsigned member = (next++ * 7919) % MEMBERS;
    snprintf(sql, sizeof sql, "SELECT name FROM members WHERE card = %u", member * 10);
    PGconn *connection = take();
    query(connection, sql, 1);
    give_back(connection);
}

/* Connects to PostgreSQL and creates the tables. */
static void open_pool(const char *store) {
    char address[128];
    const char *colon = strchr(store, ':');
    snprintf(address, sizeof address, "host=%.*s port=%s user=bars dbname=bars", (int)(colon - store), store, colon + 1);
    for (int i = 0; i < number("POOL"); i++) {
        PGconn *connection = PQconnectdb(address);
        if (PQstatus(connection) != CONNECTION_OK) {
            fail(PQerrorMessage(connection));
        }
        give_back(connection);
    }
    query(pool[0], "CREATE TABLE classes AS SELECT id, 'class ' || id AS name FROM generate_series(1, 1000) AS id", 0);
    query(pool[0], "ALTER TABLE classes ADD PRIMARY KEY (id)", 0);
    query(pool[0], "CREATE TABLE members AS SELECT id, id * 10 AS card, 'member ' || id AS name"
                   " FROM generate_series(0, 49999) AS id", 0);
    if (!strcmp(setting("CARD_INDEX"), "on")) {
        query(pool[0], "CREATE INDEX ON members (card)", 0);
    }
    query(pool[0], "VACUUM ANALYZE classes", 0);
    query(pool[0], "VACUUM ANALYZE members", 0);
}

static const struct {
    const char *name;
    void (*work)(void);
} apps[] = {
    {"hello", hello}, {"pause", pause_20_ms},   {"locker", use_locker},
    {"plan", plan},   {"timetable", timetable}, {"check-in", check_in},
};
static void (*work)(void);

static int answer(struct mg_connection *connection, void *context) {
    /* A thread serves one connection at a time, so it can count the requests. */
    static __thread int served;
    work();
    if (++served >= requests) {
        served = 0;
        mg_disable_connection_keep_alive(connection);
    }
    mg_send_http_ok(connection, "text/plain", 11);
    mg_write(connection, "Hello World", 11);
    return 200;
}

int main(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    for (size_t i = 0; i < sizeof apps / sizeof *apps; i++) {
        if (!strcmp(apps[i].name, setting("APP"))) {
            work = apps[i].work;
        }
    }
    requests = number("REQUESTS");
    locker_count = number("LOCKERS");
    batch = number("BATCH");
    for (int i = 0; i < locker_count; i++) {
        pthread_mutex_init(&lockers[i], NULL);
    }
    if (strchr(setting("STORE"), ':')) {
        open_pool(setting("STORE"));
    }

    const char *options[] = {
        "listening_ports", setting("LISTEN"),
        "num_threads", setting("NUM_THREADS"),
        "enable_keep_alive", setting("ENABLE_KEEP_ALIVE"),
        "keep_alive_timeout_ms", "10000",
        "connection_queue", "1000",
        "listen_backlog", "1000",
        "tcp_nodelay", "1",
        "access_log_file", setting("ACCESS_LOG_FILE"),
        NULL,
    };
    mg_init_library(MG_FEATURES_DEFAULT);
    struct mg_context *server = mg_start(&(struct mg_callbacks){0}, NULL, options);
    if (!server) {
        fail("the server did not start");
    }
    mg_set_request_handler(server, "/", answer, NULL);
    int signal;
    sigwait(&signals, &signal);
    _exit(0);
}
