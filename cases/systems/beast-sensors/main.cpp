// A sensor service on Boost.Beast and PostgreSQL. See system.toml for the environment variables.
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <libpq-fe.h>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using beast::error_code;
using namespace std::chrono_literals;

using Work = std::function<void()>;
using Strand = asio::strand<asio::io_context::executor_type>;

constexpr int SENSORS = 50000;

std::string setting(const char *name) {
    const char *value = std::getenv(name);
    if (!value)
        throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

int number(const char *name) { return std::stoi(setting(name)); }

bool is_set(const char *name) { return setting(name) == "true"; }

int random_sensor(int count) {
    thread_local std::minstd_rand random(std::random_device{}());
    return std::uniform_int_distribution(1, count)(random);
}

// A pool of connections to PostgreSQL.
class Pool {
  public:
    Pool() {
        auto address = setting("STORE");
        auto colon = address.find(':');
        auto info = "host=" + address.substr(0, colon) + " port=" + address.substr(colon + 1) +
                    " user=bars dbname=bars";
        for (int i = number("POOL"); i > 0; i--)
            idle.push_back(PQconnectdb(info.c_str()));
        execute(idle.front(), "CREATE TABLE sensors AS"
                              " SELECT id, 'sensor ' || id AS label, 0 AS readings"
                              " FROM generate_series(1, " + std::to_string(SENSORS) + ") AS id");
        execute(idle.front(), "ALTER TABLE sensors ADD PRIMARY KEY (id)");
        if (is_set("INDEX"))
            execute(idle.front(), "CREATE INDEX ON sensors (label)");
        execute(idle.front(), "VACUUM ANALYZE sensors");
    }

    static void execute(PGconn *connection, const std::string &query) {
        using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;
        Result result(PQexec(connection, query.c_str()), PQclear);
        auto status = PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
            throw std::runtime_error(PQerrorMessage(connection));
    }

    // Waits for a connection, and calls `use` with it.
    void with(const std::function<void(PGconn *)> &use) {
        std::unique_lock lock(mutex);
        returned.wait(lock, [this] { return !idle.empty(); });
        auto give_back = [this](PGconn *connection) {
            std::lock_guard lock(mutex);
            idle.push_back(connection);
            returned.notify_one();
        };
        std::unique_ptr<PGconn, decltype(give_back)> connection(idle.back(), give_back);
        idle.pop_back();
        lock.unlock();
        use(connection.get());
    }

  private:
    std::mutex mutex;
    std::condition_variable returned;
    std::vector<PGconn *> idle;
};

// Returns work that updates one of `count` rows in a transaction that takes 10 ms.
Work update(int count) {
    return [pool = std::make_shared<Pool>(), count] {
        pool->with([count](PGconn *connection) {
            auto id = std::to_string(random_sensor(count));
            Pool::execute(connection, "BEGIN");
            Pool::execute(connection, "UPDATE sensors SET readings = readings + 1 WHERE id = " + id);
            std::this_thread::sleep_for(10ms);
            Pool::execute(connection, "COMMIT");
        });
    };
}

// Computes the mean deviation of 50,000 readings from a curve.
void calibrate() {
    double scale = 1 + random_sensor(SENSORS) / 1e6, sum = 0;
    for (int i = 0; i < 50000; i++)
        sum += std::abs(std::sin(i * scale) - std::tanh(i / 5e4));
    if (!std::isfinite(sum))
        throw std::runtime_error("no deviation");
}

// Returns work that appends a line to the journal while it holds a mutex.
Work journal(bool is_durable) {
    int file = open((setting("RUN") + "/journal").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    return [file, is_durable, mutex = std::make_shared<std::mutex>()] {
        std::lock_guard lock(*mutex);
        static const std::string line = "reading received\n";
        if (write(file, line.data(), line.size()) < 0 || (is_durable && fdatasync(file) < 0))
            throw std::runtime_error("cannot write the journal");
    };
}

// Returns the work of one request.
Work find_work(const std::string &handler) {
    if (handler == "hello")
        return [] {};
    if (handler == "read")
        return [] { std::this_thread::sleep_for(20ms); };
    if (handler == "bus")
        return [] { std::this_thread::sleep_for(10ms); };
    if (handler == "calibrate")
        return calibrate;
    if (handler == "journal" || handler == "durable-journal")
        return journal(handler == "durable-journal");
    if (handler == "report")
        return [pool = std::make_shared<Pool>()] {
            pool->with([](PGconn *connection) { Pool::execute(connection, "SELECT pg_sleep(0.02)"); });
        };
    if (handler == "find")
        return [pool = std::make_shared<Pool>()] {
            auto label = "sensor " + std::to_string(random_sensor(SENSORS));
            auto query = "SELECT id FROM sensors WHERE label = '" + label + "'";
            pool->with([&query](PGconn *connection) { Pool::execute(connection, query); });
        };
    if (handler == "update")
        return update(SENSORS);
    if (handler == "update-one")
        return update(1);
    throw std::runtime_error("unknown handler " + handler);
}

// A client's connection. `closed` is called at its end.
class Session : public std::enable_shared_from_this<Session> {
  public:
    Session(tcp::socket socket, const Work &work, std::function<void()> closed)
        : stream(std::move(socket)), work(work), closed(std::move(closed)) {}

    ~Session() { closed(); }

    void read() {
        request = {};
        auto respond = beast::bind_front_handler(&Session::respond, shared_from_this());
        http::async_read(stream, buffer, request, std::move(respond));
    }

  private:
    void respond(error_code error, std::size_t) {
        if (error)
            return;
        response = {http::status::ok, request.version()};
        response.set(http::field::content_type, "text/plain");
        response.body() = "Hello World";
        try {
            work();
        } catch (const std::exception &failure) {
            response.result(http::status::internal_server_error);
            response.body() = failure.what();
        }
        response.keep_alive(request.keep_alive() && !closes);
        response.prepare_payload();
        auto self = shared_from_this();
        if (!splits) {
            http::async_write(stream, response, beast::bind_front_handler(&Session::wrote, self));
            return;
        }
        // Send the header before the body.
        serializer.emplace(response);
        http::async_write_header(stream, *serializer, [self](error_code error, std::size_t size) {
            if (error)
                return self->wrote(error, size);
            auto wrote = beast::bind_front_handler(&Session::wrote, self);
            http::async_write(self->stream, *self->serializer, std::move(wrote));
        });
    }

    void wrote(error_code error, std::size_t) {
        if (error)
            return;
        if (response.keep_alive())
            return read();
        stream.socket().shutdown(tcp::socket::shutdown_send, error);
    }

    inline static const bool splits = is_set("SPLIT");
    inline static const bool closes = is_set("CLOSE");

    beast::tcp_stream stream;
    beast::flat_buffer buffer;
    http::request<http::string_body> request;
    http::response<http::string_body> response;
    boost::optional<http::response_serializer<http::string_body>> serializer;
    const Work &work;
    std::function<void()> closed;
};

// Accepts connections while fewer than SESSIONS are open.
class Listener {
  public:
    Listener(asio::io_context &context, const Work &work)
        : context(context), strand(context.get_executor()), shared(context.get_executor()),
          acceptor(strand), work(work) {
        tcp::endpoint endpoint(asio::ip::make_address(setting("HOST")), number("PORT"));
        acceptor.open(endpoint.protocol());
        acceptor.set_option(asio::socket_base::reuse_address(true));
        acceptor.bind(endpoint);
        acceptor.listen(number("BACKLOG"));
    }

    void accept() {
        // By default, each session has a strand.
        Strand executor = shares ? shared : Strand(context.get_executor());
        acceptor.async_accept(executor, [this](error_code error, tcp::socket socket) {
            if (error)
                throw std::runtime_error(error.message());
            if (++accepted % 500 == 0)
                std::this_thread::sleep_for(reload);
            open++;
            auto closed = [this] { asio::post(strand, [this] { close(); }); };
            auto session = std::make_shared<Session>(std::move(socket), work, closed);
            asio::dispatch(shares ? shared : strand, [session] { session->read(); });
            if (open < sessions)
                accept();
        });
    }

  private:
    void close() {
        if (open-- == sessions)
            accept();
    }

    const int sessions = number("SESSIONS");
    const bool shares = is_set("SHARED_STRAND");
    // Time that it takes to reload the list of blocked addresses.
    const std::chrono::milliseconds reload{number("RELOAD_MS")};
    int open = 0;
    int accepted = 0;
    asio::io_context &context;
    Strand strand;
    Strand shared;
    tcp::acceptor acceptor;
    const Work &work;
};

int main() try {
    asio::io_context context;
    const Work work = find_work(setting("HANDLER"));
    Listener listener(context, work);
    listener.accept();
    std::vector<std::thread> threads;
    for (int i = number("THREADS"); i > 0; i--)
        threads.emplace_back([&context] { context.run(); });
    for (auto &thread : threads)
        thread.join();
} catch (const std::exception &error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
