"""A server with a configurable fault: an event loop reads requests, a thread pool responds. See ../README.md."""
import argparse
import concurrent.futures
import os
import queue
import selectors
import socket
import subprocess
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("port", type=int)
options.add_argument("--host", default="127.0.0.1")
options.add_argument("--threads", type=int, default=64)
options.add_argument("--sleep", type=float, default=0)
options.add_argument("--lock", type=float, default=0)
options.add_argument("--burn", type=float, default=0)
options.add_argument("--single", action="store_true")
options.add_argument("--body", type=int, default=11)
options.add_argument("--close-after", type=int, default=0)
options.add_argument("--two-writes", action="store_true")
options.add_argument("--backlog", type=int, default=1024)
options.add_argument("--accept-sleep", type=float, default=0)
options.add_argument("--max-connections", type=int, default=0)
options.add_argument("--limit", type=float, default=0)
options.add_argument("--errors", type=float, default=0)
options.add_argument("--log", action="store_true")
options.add_argument("--upstream", type=float)
options.add_argument("--upstream-pool", type=int, default=64)
options.add_argument("--upstream-fresh", action="store_true")
options = options.parse_args()

BODY = b"x" * options.body
REASONS = {200: b"OK", 429: b"Too Many Requests", 500: b"Internal Server Error"}
lock = threading.Lock()


class Bucket:
    """A token bucket with a burst of a tenth of its rate."""

    def __init__(self, per_s):
        self.per_s, self.tokens, self.at, self.lock = per_s, per_s / 10, time.monotonic(), threading.Lock()

    def take(self):
        with self.lock:
            now = time.monotonic()
            self.tokens = min(self.per_s / 10, self.tokens + (now - self.at) * self.per_s)
            self.at = now
            if self.tokens < 1:
                return False
            self.tokens -= 1
            return True


bucket = Bucket(options.limit) if options.limit else None


class Store:
    """The upstream process, with a connection pool or a fresh connection per request."""

    def __init__(self, after_ms, connections, fresh):
        program = os.path.join(os.path.dirname(__file__), "store.py")
        self.process = subprocess.Popen([sys.executable, program, str(after_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port, self.free, self.fresh = int(self.process.stdout.readline()), queue.SimpleQueue(), fresh
        for _ in range(0 if fresh else connections):
            self.free.put(self.connect())

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self):
        connection = self.connect() if self.fresh else self.free.get()
        connection.sendall(b"ask\n")
        connection.recv(64)
        if self.fresh:
            connection.close()
        else:
            self.free.put(connection)


store = None if options.upstream is None else Store(options.upstream, options.upstream_pool, options.upstream_fresh)


def burn(ms):
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass


def answer(number):
    """Handles a request; returns its status."""
    if bucket and not bucket.take():
        return 429
    if options.sleep:
        time.sleep(options.sleep / 1000)
    if options.burn:
        burn(options.burn)
    if options.lock:
        with lock:
            time.sleep(options.lock / 1000)
    if store:
        store.ask()
    if options.log:
        with lock:
            sys.stdout.write("response number %d sent with status 200, logged by a line with the length of a usual access log.\n" % number)
            sys.stdout.flush()
    if options.errors and number % 100 < options.errors:
        return 500
    return 200


class Connection:
    def __init__(self, stream):
        self.stream, self.rest, self.answered = stream, b"", 0

    def reply(self, number):
        status = answer(number)
        self.answered += 1
        last = options.close_after and self.answered >= options.close_after
        body = BODY if status == 200 else b"refused"
        head = b"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s\r\n" % (
            status, REASONS[status], len(body), b"Connection: close\r\n" if last or self.closes else b"")
        try:
            if options.two_writes:
                self.stream.sendall(head)
                self.stream.sendall(body)
            else:
                self.stream.sendall(head + body)
        except OSError:
            last = True
        if last or self.closes:
            loop.drop(self)
        else:
            loop.ready(self)


class Loop:
    """Reads one request at a time; a connection is not polled while its request is handled."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((options.host, options.port), backlog=options.backlog)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.back, self.wake = socket.socketpair()
        self.back.setblocking(False)
        self.selector.register(self.back, selectors.EVENT_READ)
        self.waiting, self.gone, self.number, self.open = queue.SimpleQueue(), queue.SimpleQueue(), 0, 0
        self.full = False
        self.pool = concurrent.futures.ThreadPoolExecutor(options.threads)

    def ready(self, connection):
        self.waiting.put(connection)
        if not options.single:
            self.wake.send(b".")

    def drop(self, connection):
        self.gone.put(connection)
        if not options.single:
            self.wake.send(b".")

    def accept(self):
        if options.accept_sleep:
            time.sleep(options.accept_sleep / 1000)
        try:
            stream, _ = self.listener.accept()
        except OSError:
            # Retry later, because no file descriptor is free.
            time.sleep(0.01)
            return
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0 if options.two_writes else 1)
        self.open += 1
        self.selector.register(stream, selectors.EVENT_READ, Connection(stream))
        if options.max_connections and self.open >= options.max_connections:
            self.selector.unregister(self.listener)
            self.full = True

    def close(self, connection):
        connection.stream.close()
        self.open -= 1
        if self.full:
            self.full = False
            self.selector.register(self.listener, selectors.EVENT_READ)

    def read(self, connection):
        self.selector.unregister(connection.stream)
        try:
            data = connection.stream.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.close(connection)
            return
        connection.rest += data
        self.next(connection)

    def next(self, connection):
        end = connection.rest.find(b"\r\n\r\n")
        if end < 0:
            self.selector.register(connection.stream, selectors.EVENT_READ, connection)
            return
        connection.closes = b"connection: close" in connection.rest[:end].lower()
        connection.rest = connection.rest[end + 4:]
        self.number += 1
        if options.single:
            connection.reply(self.number)
        else:
            self.pool.submit(connection.reply, self.number)

    def run(self):
        while True:
            for key, _ in self.selector.select(None if self.waiting.empty() and self.gone.empty() else 0):
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj is self.back:
                    self.back.recv(65536)
                else:
                    self.read(key.data)
            while not self.waiting.empty():
                self.next(self.waiting.get())
            while not self.gone.empty():
                self.close(self.gone.get())


loop = Loop()
loop.run()
