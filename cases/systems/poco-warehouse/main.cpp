// A small HTTP service on POCO. The environment variable HANDLER selects the handler; see system.toml.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include <Poco/AutoPtr.h>
#include <Poco/ConsoleChannel.h>
#include <Poco/DeflatingStream.h>
#include <Poco/Logger.h>
#include <Poco/Mutex.h>
#include <Poco/Net/HTTPRequestHandler.h>
#include <Poco/Net/HTTPRequestHandlerFactory.h>
#include <Poco/Net/HTTPServer.h>
#include <Poco/Net/HTTPServerRequest.h>
#include <Poco/Net/HTTPServerResponse.h>
#include <Poco/Net/ServerSocket.h>
#include <Poco/SHA1Engine.h>
#include <Poco/Thread.h>
#include <Poco/ThreadPool.h>

using namespace Poco::Net;
using Work = std::function<void()>;

std::string setting(const char *name) { return std::getenv(name); }

int number(const char *name) { return std::stoi(setting(name)); }

std::string report() {
    std::string text;
    unsigned price = 1;
    for (int i = 0; i < 5000; i++) {
        price = price * 1103515245 + 12345;
        text += std::to_string(i) + ",item " + std::to_string(i % 97) + "," + std::to_string(price >> 18) + "\n";
    }
    return text;
}

// Compresses a report with 5,000 rows, as for a download.
Work compress(int level) {
    return [level, text = report()] {
        std::ostringstream file;
        Poco::DeflatingOutputStream stream(file, Poco::DeflatingStreamBuf::STREAM_GZIP, level);
        stream << text;
        stream.close();
    };
}

// Hashes a block of 1 MB.
Work hash() {
    return [block = std::string(1'000'000, 'x')] {
        Poco::SHA1Engine engine;
        engine.update(block);
        engine.digest();
    };
}

// Sleeps for 20 ms. Only one request at a time sleeps.
Work turns() {
    return [] {
        static Poco::FastMutex mutex;
        Poco::FastMutex::ScopedLock lock(mutex);
        Poco::Thread::sleep(20);
    };
}

// Writes a line to POCO's console log.
Work log() {
    Poco::AutoPtr<Poco::ConsoleChannel> console(new Poco::ConsoleChannel);
    Poco::Logger &logger = Poco::Logger::create("warehouse", console);
    return [&logger] { logger.information("GET / from the warehouse: 200, 11 bytes"); };
}

struct Handler : HTTPRequestHandler {
    explicit Handler(const Work &work) : work(work) {}

    void handleRequest(HTTPServerRequest &, HTTPServerResponse &response) override {
        work();
        response.setContentType("text/plain");
        response.sendBuffer("Hello World", 11);
    }

    const Work &work;
};

struct HandlerFactory : HTTPRequestHandlerFactory {
    explicit HandlerFactory(Work work) : work(std::move(work)) {}

    HTTPRequestHandler *createRequestHandler(const HTTPServerRequest &) override { return new Handler(work); }

    const Work work;
};

int main() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);

    const std::map<std::string, std::function<Work()>> handlers = {
        {"hello", []() -> Work { return [] {}; }},
        {"sleep", []() -> Work { return [] { Poco::Thread::sleep(20); }; }},
        {"turns", turns},
        {"hash", hash},
        {"export", [] { return compress(number("LEVEL")); }},
        {"log", log},
    };
    HTTPServerParams::Ptr params = new HTTPServerParams;
    params->setKeepAlive(setting("KEEP_ALIVE") == "true");
    Poco::ThreadPool threads(2, number("THREADS"));
    ServerSocket socket(SocketAddress(setting("LISTEN")), 1024);
    HTTPServer server(new HandlerFactory(handlers.at(setting("HANDLER"))()), threads, socket, params);
    server.start();
    int signal;
    sigwait(&signals, &signal);
    std::_Exit(0);
}
