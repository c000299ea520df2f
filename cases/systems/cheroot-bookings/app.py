"""A small WSGI application on Cheroot. The environment variable APP selects the handler; see system.toml."""
import hashlib
import itertools
import os
import subprocess
import sys
import threading
import time

from cheroot import wsgi

APP = os.environ["APP"]
POOL = int(os.environ["POOL"])
ROWS = 10_000


def hello():
    pass


def sleep():
    time.sleep(0.05)


def login():
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 10_000)


def price():
    """Calls an upstream that responds after 50 ms."""
    import urllib3

    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    upstream = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=POOL, block=True)

    def handle():
        # Keep a reference to the process, because it ends when its stdin is closed.
        assert process.stdin
        upstream.request("GET", "/price")

    return handle


def open_store():
    """Returns a pool of connections to a database with the table bookings."""
    from psycopg_pool import ConnectionPool

    host, port = os.environ["STORE"].split(":")
    pool = ConnectionPool(f"host={host} port={port} user=bars dbname=bars", min_size=POOL, open=True)
    with pool.connection() as store:
        store.execute(f"CREATE TABLE bookings AS SELECT id, 0 AS seats FROM generate_series(1, {ROWS}) AS id")
        store.execute("ALTER TABLE bookings ADD PRIMARY KEY (id)")
    return pool


def report():
    pool = open_store()

    def handle():
        with pool.connection() as store:
            store.execute("SELECT pg_sleep(0.02)")

    return handle


def book(rows):
    pool = open_store()
    numbers = itertools.count()

    def handle():
        with pool.connection() as store:
            row = 1 + next(numbers) % rows
            store.execute("UPDATE bookings SET seats = seats + 1 WHERE id = %s", [row])
            time.sleep(0.01)

    return handle


def journal(durable):
    lines = open(os.path.join(os.environ["RUN"], "journal"), "a")
    turn = threading.Lock()

    def handle():
        with turn:
            for line in ("booking received", "seat is free", "booking confirmed"):
                lines.write(f"{time.time()} {line}\n")
                lines.flush()
                if durable:
                    os.fsync(lines.fileno())

    return handle


HANDLERS = {
    "hello": lambda: hello,
    "sleep": lambda: sleep,
    "login": lambda: login,
    "price": price,
    "report": report,
    "book": lambda: book(ROWS),
    "book-one": lambda: book(1),
    "journal": lambda: journal(False),
    "durable-journal": lambda: journal(True),
}
handler = HANDLERS[APP]()


def application(environ, start_response):
    handler()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "11")])
    return [b"Hello World"]


if __name__ == "__main__":
    server = wsgi.Server(
        (sys.argv[1], int(sys.argv[2])),
        application,
        numthreads=int(os.environ["THREADS"]),
        request_queue_size=1024,
    )
    server.keep_alive_conn_limit = int(os.environ["KEEP_ALIVE"])
    server.start()
