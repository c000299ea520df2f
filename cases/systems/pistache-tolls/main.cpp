// Road tolls on Pistache. The environment variable APP selects the application; see system.toml.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <libpq-fe.h>
#include <openssl/sha.h>
#include <pistache/endpoint.h>
#include <zlib.h>

using namespace Pistache;
using namespace std::chrono_literals;
using Work = std::function<void()>;
using Connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;

std::string setting(const char *name) { return std::getenv(name); }

int number(const char *name) { return std::stoi(setting(name)); }

void check(bool is_ok, const char *message) {
    if (!is_ok) {
        throw std::runtime_error(message);
    }
}

// Simulates a camera that needs 20 ms for a photo.
Work photo() {
    return [] { std::this_thread::sleep_for(20ms); };
}

// Opens the barrier of one of BARRIERS lanes, which takes 10 ms.
Work barrier() {
    auto lanes = std::make_shared<std::vector<std::mutex>>(number("BARRIERS"));
    return [lanes] {
        static std::atomic<unsigned> next = 0;
        const std::lock_guard lock((*lanes)[next++ % lanes->size()]);
        std::this_thread::sleep_for(10ms);
    };
}

// Hashes a photo of 1 MB.
Work hash() {
    return [photo = std::string(1'000'000, 'x')] {
        unsigned char sum[SHA256_DIGEST_LENGTH];
        SHA256(reinterpret_cast<const unsigned char *>(photo.data()), photo.size(), sum);
    };
}

// Compresses a list of 2,000 passages.
Work passages() {
    std::string list;
    unsigned toll = 7;
    for (int i = 0; i < 2000; i++) {
        toll = toll * 1664525 + 1013904223;
        list += "lane " + std::to_string(i % 9) + ";" + std::to_string(i) + ";" + std::to_string(toll >> 17) + "\n";
    }
    return [list, level = number("LEVEL")] {
        thread_local std::vector<Bytef> file(compressBound(list.size()));
        uLongf length = file.size();
        check(compress2(file.data(), &length, reinterpret_cast<const Bytef *>(list.data()), list.size(), level) == Z_OK,
              "compression failed");
    };
}

// Appends a passage to the journal, and flushes every SYNC_EVERY passages to disk.
Work journal() {
    int file = open((setting("RUN") + "/journal").c_str(), O_CREAT | O_APPEND | O_WRONLY, 0644);
    check(file >= 0, "cannot open the journal");
    return [file, every = number("SYNC_EVERY")] {
        static std::mutex mutex;
        static int passages = 0;
        const std::lock_guard lock(mutex);
        check(write(file, "lane 1\n", 7) == 7, "cannot write to the journal");
        if (++passages % every == 0) {
            check(fdatasync(file) == 0, "cannot flush the journal");
        }
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
    run(setup.get(), "CREATE TABLE cars AS SELECT id, 'plate-' || id AS plate, 0 AS tolls"
                     " FROM generate_series(1, 50000) AS id");
    run(setup.get(), "ALTER TABLE cars ADD PRIMARY KEY (id)");
    if (setting("PLATE_INDEX") == "on") {
        run(setup.get(), "CREATE INDEX ON cars (plate)");
    }
    run(setup.get(), "VACUUM ANALYZE cars");
    auto pool = std::make_shared<Pool>();
    for (int i = 0; i < number("POOL"); i++) {
        pool->free.push_back(connect());
    }
    return [pool, work] {
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
    };
}

// Runs a query that takes 20 ms.
Work report() {
    return pooled([](PGconn *connection) { run(connection, "SELECT pg_sleep(0.02)"); });
}

// Finds a car by its plate.
Work find() {
    return pooled([](PGconn *connection) {
        static std::atomic<unsigned> next = 0;
        auto plate = std::to_string(1 + (next += 7919) % 50000);
        run(connection, "SELECT tolls FROM cars WHERE plate = 'plate-" + plate + "'");
    });
}

// Charges one of CARS cars in a transaction that takes 10 ms.
Work charge() {
    return pooled([cars = number("CARS")](PGconn *connection) {
        static std::atomic<unsigned> next = 0;
        auto car = std::to_string(1 + (next += 7919) % cars);
        run(connection, "BEGIN");
        run(connection, "UPDATE cars SET tolls = tolls + 1 WHERE id = " + car);
        std::this_thread::sleep_for(10ms);
        run(connection, "COMMIT");
    });
}

Work work;

class Tolls : public Http::Handler {
public:
    HTTP_PROTOTYPE(Tolls)

    void onRequest(const Http::Request &, Http::ResponseWriter response) override {
        work();
        response.send(Http::Code::Ok, "Hello World", MIME(Text, Plain));
    }
};

int main() {
    const std::map<std::string, std::function<Work()>> apps = {
        {"hello", []() -> Work { return [] {}; }},
        {"photo", photo},
        {"barrier", barrier},
        {"hash", hash},
        {"passages", passages},
        {"journal", journal},
        {"report", report},
        {"find", find},
        {"charge", charge},
    };
    work = apps.at(setting("APP"))();

    Http::Endpoint server(Address(setting("HOST"), Port(number("PORT"))));
    auto flags = Flags<Tcp::Options>(Tcp::Options::ReuseAddr).setFlag(Tcp::Options::NoDelay);
    server.init(Http::Endpoint::options().threads(number("THREADS")).flags(flags).backlog(1024));
    server.setHandler(Http::make_handler<Tolls>());
    server.serve();
}
