// A print shop on cpp-httplib. The environment variable APP selects the application; see system.toml.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
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
#include <sys/socket.h>
#include <zlib.h>

#define CPPHTTPLIB_OPENSSL_SUPPORT
#include <httplib.h>

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

// Sleeps for 20 ms.
Work rest() {
    return [] { std::this_thread::sleep_for(20ms); };
}

// Hashes a page of 1 MB.
Work hash() {
    return [page = std::string(1'000'000, 'x')] {
        unsigned char sum[SHA256_DIGEST_LENGTH];
        SHA256(reinterpret_cast<const unsigned char *>(page.data()), page.size(), sum);
    };
}

// Compresses a price list, as for a download.
Work prices() {
    std::string list;
    unsigned price = 7;
    for (int i = 0; i < 4000; i++) {
        price = price * 1664525 + 1013904223;
        list += "A" + std::to_string(i % 9) + ";" + std::to_string(i) + ";" + std::to_string(price >> 17) + "\n";
    }
    return [list, level = number("LEVEL")] {
        thread_local std::vector<Bytef> file(compressBound(list.size()));
        uLongf length = file.size();
        check(compress2(file.data(), &length, reinterpret_cast<const Bytef *>(list.data()), list.size(), level) == Z_OK,
              "compression failed");
    };
}

// Appends a job to the journal, and flushes every SYNC_EVERY jobs to disk.
Work journal() {
    int file = open((setting("RUN") + "/journal").c_str(), O_CREAT | O_APPEND | O_WRONLY, 0644);
    check(file >= 0, "cannot open the journal");
    return [file, every = number("SYNC_EVERY")] {
        static std::mutex mutex;
        static int jobs = 0;
        const std::lock_guard lock(mutex);
        check(write(file, "poster A2\n", 10) == 10, "cannot write to the journal");
        if (++jobs % every == 0) {
            check(fdatasync(file) == 0, "cannot flush the journal");
        }
    };
}

// Clients of the upstream. Each has one connection.
struct Clients {
    std::mutex mutex;
    std::condition_variable is_free;
    std::vector<std::unique_ptr<httplib::Client>> free;
};

// Asks an upstream, which takes 20 ms, for the price of paper. The upstream ends with this process.
Work quote() {
    int input[2], output[2];
    check(!pipe2(input, O_CLOEXEC) && !pipe2(output, O_CLOEXEC), "no pipe");
    if (fork() == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        execlp("python3", "python3", "../slow-upstream/upstream.py", "20", nullptr);
        _exit(1);
    }
    char text[16] = {};
    check(read(output[0], text, sizeof text - 1) > 0, "the upstream did not start");
    auto clients = std::make_shared<Clients>();
    for (int i = 0; i < number("CLIENTS"); i++) {
        clients->free.push_back(std::make_unique<httplib::Client>("127.0.0.1", std::stoi(text)));
        clients->free.back()->set_keep_alive(true);
    }
    return [clients] {
        std::unique_lock lock(clients->mutex);
        clients->is_free.wait(lock, [&] { return !clients->free.empty(); });
        auto client = std::move(clients->free.back());
        clients->free.pop_back();
        lock.unlock();
        auto response = client->Get("/paper");
        lock.lock();
        clients->free.push_back(std::move(client));
        lock.unlock();
        clients->is_free.notify_one();
        check(response && response->body == "price", "unexpected response");
    };
}

// Calls a second server of this process over HTTPS. It closes a connection after TLS_REQUESTS requests.
Work sign() {
    static httplib::SSLServer server("target/service.crt", "target/service.key");
    check(server.is_valid(), "no certificate");
    server.new_task_queue = [] { return new httplib::ThreadPool(64); };
    server.set_keep_alive_max_count(number("TLS_REQUESTS"));
    server.set_tcp_nodelay(true);
    server.Get("/sign", [](const httplib::Request &, httplib::Response &response) {
        response.set_content("signed", "text/plain");
    });
    int port = server.bind_to_any_port("127.0.0.1");
    std::thread([] { server.listen_after_bind(); }).detach();
    return [port] {
        thread_local std::unique_ptr<httplib::SSLClient> client;
        if (!client) {
            client = std::make_unique<httplib::SSLClient>("127.0.0.1", port);
            client->enable_server_certificate_verification(false);
            client->set_keep_alive(true);
            client->set_tcp_nodelay(true);
        }
        auto response = client->Get("/sign");
        check(response && response->body == "signed", "unexpected response");
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

// Adds a print to one of ACCOUNTS accounts in a transaction that takes 10 ms.
Work charge() {
    Connection setup = connect();
    run(setup.get(), "CREATE TABLE accounts AS SELECT id, 0 AS prints FROM generate_series(1, 10000) AS id");
    run(setup.get(), "ALTER TABLE accounts ADD PRIMARY KEY (id)");
    return [accounts = number("ACCOUNTS")] {
        static std::atomic<unsigned> next = 0;
        thread_local Connection connection = connect();
        auto account = std::to_string(1 + (next += 7919) % accounts);
        run(connection.get(), "BEGIN");
        run(connection.get(), "UPDATE accounts SET prints = prints + 1 WHERE id = " + account);
        std::this_thread::sleep_for(10ms);
        run(connection.get(), "COMMIT");
    };
}

int main() {
    std::signal(SIGPIPE, SIG_IGN);
    const std::map<std::string, std::function<Work()>> apps = {
        {"hello", []() -> Work { return [] {}; }},
        {"pause", rest},
        {"hash", hash},
        {"prices", prices},
        {"journal", journal},
        {"quote", quote},
        {"sign", sign},
        {"charge", charge},
    };
    Work work = apps.at(setting("APP"))();

    httplib::Server server;
    server.new_task_queue = [] { return new httplib::ThreadPool(number("THREADS")); };
    server.set_keep_alive_max_count(number("REQUESTS"));
    server.set_tcp_nodelay(true);
    // httplib's backlog is 5, which is too short for a load test.
    int socket = -1;
    server.set_socket_options([&](int created) {
        int yes = 1;
        setsockopt(created, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        socket = created;
    });
    server.Get("/", [&](const httplib::Request &, httplib::Response &response) {
        work();
        response.set_content("Hello World", "text/plain");
    });
    if (!server.bind_to_port(setting("HOST"), number("PORT")) || listen(socket, 1024)) {
        return 1;
    }
    server.listen_after_bind();
}
