/* A parking service on GNU libmicrohttpd. The environment variable HANDLER selects the handler; see system.toml. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define ROWS 4000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct MHD_Response *response;
static char report[ROWS * 32];
static int report_length;
static int level;
static int journal;

static int number(const char *name) { return atoi(getenv(name)); }

static void hello(void) {}

static void pause_10_ms(void) { nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }

static void turns(void) {
    pthread_mutex_lock(&mutex);
    pause_10_ms();
    pthread_mutex_unlock(&mutex);
}

/* Uses CPU time: counts prime numbers. */
static void count(void) {
    volatile int primes = 0;
    for (int i = 2; i < 10000; i++) {
        int divisor = 2;
        while (divisor * divisor <= i && i % divisor) {
            divisor++;
        }
        primes += divisor * divisor > i;
    }
}

/* Compresses a report, as for a download. */
static void export(void) {
    static __thread unsigned char file[sizeof report];
    uLongf length = sizeof file;
    if (compress2(file, &length, (unsigned char *)report, report_length, level) != Z_OK) {
        abort();
    }
}

static void append(int durable) {
    static const char line[] = "ticket sold\n";
    pthread_mutex_lock(&mutex);
    if (write(journal, line, sizeof line - 1) < 0 || (durable && fsync(journal))) {
        abort();
    }
    pthread_mutex_unlock(&mutex);
}

static void append_line(void) { append(0); }

static void append_durably(void) { append(1); }

static const struct {
    const char *name;
    void (*work)(void);
} handlers[] = {
    {"hello", hello}, {"sleep", pause_10_ms}, {"turns", turns},
    {"count", count}, {"export", export},     {"journal", append_line},
    {"durable-journal", append_durably},
};
static void (*work)(void);

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state) {
    /* The first call for a request has the headers only. */
    if (!*state) {
        *state = connection;
        return MHD_YES;
    }
    work();
    return MHD_queue_response(connection, MHD_HTTP_OK, response);
}

int main(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        if (!strcmp(handlers[i].name, getenv("HANDLER"))) {
            work = handlers[i].work;
        }
    }
    level = number("LEVEL");
    srand(1);
    for (int i = 0; i < ROWS; i++) {
        report_length += sprintf(report + report_length, "%d,level %d,%d\n", i, i % 7, rand() % 100000);
    }
    journal = open(getenv("JOURNAL"), O_CREAT | O_APPEND | O_WRONLY, 0644);
    response = MHD_create_response_from_buffer(11, "Hello World", MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
    if (!strcmp(getenv("CONNECTION"), "close")) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(number("PORT"))};
    if (inet_pton(AF_INET, getenv("HOST"), &address.sin_addr) != 1) {
        return 1;
    }
    int threads = number("THREADS");
    unsigned flags = threads ? MHD_USE_EPOLL_INTERNAL_THREAD : MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL_INTERNAL_THREAD;
    /* libmicrohttpd accepts a pool of at least 2 threads. */
    struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, threads, NULL}, {MHD_OPTION_END, 0, NULL}};
    if (!MHD_start_daemon(flags | MHD_USE_ERROR_LOG, 0, NULL, NULL, answer, NULL, MHD_OPTION_SOCK_ADDR, &address,
                          MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024, MHD_OPTION_ARRAY, threads > 1 ? pool : pool + 1,
                          MHD_OPTION_END)) {
        return 1;
    }
    int signal;
    sigwait(&signals, &signal);
    _exit(0);
}
