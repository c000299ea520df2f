// Observatory on the C++ REST SDK. The environment variable APP selects the application; see
// system.toml.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cpprest/http_client.h>
#include <cpprest/http_listener.h>
#include <libpq-fe.h>
#include <openssl/sha.h>
#include <pplx/threadpool.h>
#include <zlib.h>

using namespace std::chrono_literals;
using namespace web::http;
using Reply = pplx::task<void>;
using Work = std::function<Reply()>;
using Connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;

std::string setting(const char *name) { return std::getenv(name); }

int number(const char *name) { return std::stoi(setting(name)); }

bool flag(const char *name) { return setting(name) == "true"; }

void check(bool is_ok, const char *message) {
    if (!is_ok) {
        throw std::runtime_error(message);
    }
}

// Returns work that runs on the thread that has read the request.
Work blocking(std::function<void()> work) {
    return [work] {
        work();
        return pplx::task_from_result();
    };
}

// Takes a picture with an exposure of 20 ms.
Work picture() {
    return blocking([] { std::this_thread::sleep_for(20ms); });
}

// Turns one of DOMES domes, which takes 10 ms.
Work dome() {
    auto domes = std::make_shared<std::vector<std::mutex>>(number("DOMES"));
    return blocking([domes] {
        static std::atomic<unsigned> next = 0;
        const std::lock_guard lock((*domes)[next++ % domes->size()]);
        std::this_thread::sleep_for(10ms);
    });
}

// Writes the catalog of 4,000 stars as JSON, while it holds the catalog's mutex if LOCKED is true.
Work catalog() {
    std::vector<web::json::value> stars;
    for (int i = 0; i < 4000; i++) {
        stars.push_back(web::json::value::object({{"name", web::json::value::string("star " + std::to_string(i))},
                                                  {"magnitude", web::json::value::number(i * 0.37)}}));
    }
    auto mutex = std::make_shared<std::mutex>();
    return blocking([stars = web::json::value::array(stars), mutex, is_locked = flag("LOCKED")] {
        std::unique_lock lock(*mutex, std::defer_lock);
        if (is_locked) {
            lock.lock();
        }
        check(stars.serialize().size() > 1000, "the catalog is too short");
    });
}

// Finds the coordinates in 1,000 log lines with a regular expression.
Work coordinates() {
    return blocking([expression = std::regex("ra=([0-9]+\\.[0-9]+) dec=(-?[0-9]+\\.[0-9]+)")] {
        for (int i = 0; i < 1000; i++) {
            std::smatch found;
            std::string line = "night " + std::to_string(i) + ", slew to ra=12.75 dec=-33.5, clear sky";
            check(std::regex_search(line, found, expression), "no coordinates found");
        }
    });
}

// Hashes an image of 1 MB.
Work hash() {
    return blocking([image = std::string(1'000'000, 'x')] {
        unsigned char sum[SHA256_DIGEST_LENGTH];
        SHA256(reinterpret_cast<const unsigned char *>(image.data()), image.size(), sum);
    });
}

// Compresses a spectrum with 4,000 lines.
Work spectrum() {
    std::string text;
    unsigned intensity = 7;
    for (int i = 0; i < 4000; i++) {
        intensity = intensity * 1664525 + 1013904223;
        text += std::to_string(3800 + i) + " nm;" + std::to_string(intensity >> 20) + "\n";
    }
    return blocking([text, level = number("LEVEL")] {
        std::vector<Bytef> file(compressBound(text.size()));
        uLongf length = file.size();
        check(compress2(file.data(), &length, reinterpret_cast<const Bytef *>(text.data()), text.size(), level) == Z_OK,
              "compression failed");
    });
}

// Appends a line to the journal, and flushes every SYNC_EVERY lines to disk.
Work journal() {
    int file = open((setting("RUN") + "/journal").c_str(), O_CREAT | O_APPEND | O_WRONLY, 0644);
    check(file >= 0, "cannot open the journal");
    return blocking([file, every = number("SYNC_EVERY")] {
        static std::mutex mutex;
        static int lines = 0;
        const std::lock_guard lock(mutex);
        check(write(file, "observed\n", 9) == 9, "cannot write to the journal");
        if (++lines % every == 0) {
            check(fdatasync(file) == 0, "cannot flush the journal");
        }
    });
}

// Asks the weather station over a kept connection, or over a fresh one if FRESH is true.
Work weather() {
    using web::http::client::http_client;
    auto url = "http://127.0.0.1:" + setting("UPSTREAM");
    auto kept = std::make_shared<http_client>(url);
    return [url, kept, is_fresh = flag("FRESH")] {
        auto client = is_fresh ? std::make_shared<http_client>(url) : kept;
        return client->request(methods::GET, "/")
            .then([client](http_response response) { return response.extract_string(); })
            .then([client](const std::string &text) { check(text == "clear", "unexpected weather"); });
    };
}

void run(PGconn *connection, const std::string &sql) {
    PGresult *result = PQexec(connection, sql.c_str());
    auto status = PQresultStatus(result);
    PQclear(result);
    check(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "a query failed");
}

Connection connect() {
    std::string store = setting("STORE");
    auto colon = store.find(':');
    check(colon != std::string::npos, "this application needs a store");
    std::string address = "host=" + store.substr(0, colon) + " port=" + store.substr(colon + 1);
    Connection connection(PQconnectdb((address + " user=bars dbname=bars").c_str()), PQfinish);
    check(PQstatus(connection.get()) == CONNECTION_OK, "cannot connect to PostgreSQL");
    return connection;
}

// Connections to PostgreSQL.
struct Pool {
    std::mutex mutex;
    std::condition_variable is_free;
    std::vector<Connection> free;
};

// Returns work that takes one of POOL connections from a pool.
Work pooled(std::function<void(PGconn *)> work) {
    Connection setup = connect();
    run(setup.get(), "CREATE TABLE stars AS SELECT id, 'star-' || id AS name, 0 AS sightings"
                     " FROM generate_series(1, 50000) AS id");
    run(setup.get(), "ALTER TABLE stars ADD PRIMARY KEY (id)");
    if (flag("NAME_INDEX")) {
        run(setup.get(), "CREATE INDEX ON stars (name)");
    }
    run(setup.get(), "VACUUM ANALYZE stars");
    auto pool = std::make_shared<Pool>();
    for (int i = 0; i < number("POOL"); i++) {
        pool->free.push_back(connect());
    }
    return blocking([pool, work] {
        std::unique_lock lock(pool->mutex);
        pool->is_free.wait(lock, [&] { return !pool->free.empty(); });
        Connection connection = std::move(pool->free.back());
        pool->free.pop_back();
        lock.unlock();
        work(connection.get());
        lock.lock();
        pool->free.push_back(std::move(connection));
        lock.unlock();
        pool->is_free.notify_one();
    });
}

// Runs a query that takes 20 ms.
Work report() {
    return pooled([](PGconn *connection) { run(connection, "SELECT pg_sleep(0.02)"); });
}

// Finds a star by its name.
Work find() {
    return pooled([](PGconn *connection) {
        static std::atomic<unsigned> next = 0;
        auto star = std::to_string(1 + (next += 7919) % 50000);
        run(connection, "SELECT sightings FROM stars WHERE name = 'star-" + star + "'");
    });
}

// Records a sighting of one of STARS stars in a transaction that takes 10 ms.
Work sighting() {
    return pooled([stars = number("STARS")](PGconn *connection) {
        static std::atomic<unsigned> next = 0;
        auto star = std::to_string(1 + (next += 7919) % stars);
        run(connection, "BEGIN");
        run(connection, "UPDATE stars SET sightings = sightings + 1 WHERE id = " + star);
        std::this_thread::sleep_for(10ms);
        run(connection, "COMMIT");
    });
}

int main() {
    const std::map<std::string, std::function<Work()>> apps = {
        {"hello", [] { return blocking([] {}); }},
        {"picture", picture},
        {"dome", dome},
        {"catalog", catalog},
        {"coordinates", coordinates},
        {"hash", hash},
        {"spectrum", spectrum},
        {"journal", journal},
        {"weather", weather},
        {"report", report},
        {"find", find},
        {"sighting", sighting},
    };
    crossplat::threadpool::initialize_with_threads(number("THREADS"));
    auto work = apps.at(setting("APP"))();

    experimental::listener::http_listener_config config;
    config.set_backlog(1024);
    experimental::listener::http_listener listener("http://" + setting("HOST") + ":" + setting("PORT") + "/", config);
    listener.support(methods::GET, [work, closes = flag("CLOSE")](http_request request) {
        work()
            .then([request, closes] {
                http_response response(status_codes::OK);
                response.set_body("Hello World");
                if (closes) {
                    response.headers().add("Connection", "close");
                }
                return request.reply(response);
            })
            .then([](Reply reply) {
                try {
                    reply.get();
                } catch (const std::exception &error) {
                    std::cerr << "no response: " << error.what() << std::endl;
                }
            });
    });
    listener.open().wait();
    pause();
}
