"""An archive's service on bjoern and PostgreSQL. See system.toml for the environment variables."""
import gc
import html
import http.client
import lzma
import os
import random
import sys
import time

import bjoern
import limits
import psycopg2


def hello():
    pass


def scan():
    time.sleep(0.02)


def page():
    """Returns a handler that responds with a page of 100 kB."""
    return lambda: b"x" * 100_000


def index():
    """Returns a handler that renders an index with 300 documents."""
    documents = [(f"letter <{i}>", i * 7919 % 400) for i in range(300)]

    def handle():
        "".join(f"<li>{html.escape(title)}: {1500 + year:,}" for title, year in documents)
    return handle


def catalog(collects):
    """Returns a handler that renders 100 of 20,000 records, and then may collect garbage."""
    records = [{"title": f"map {i}", "shelf": [i % 80]} for i in range(20_000)]

    def handle():
        first = random.randrange(len(records) - 100)
        "".join(f"{record['title']}: {record['shelf'][0]}\n" for record in records[first:first + 100])
        if collects:
            gc.collect()
    return handle


def export():
    """Returns a handler that compresses 1,000 lines."""
    preset = int(os.environ["PRESET"])
    numbers = random.Random(1)
    text = "".join(f"{i},document {numbers.randrange(10000)}\n" for i in range(1000)).encode()

    def handle():
        lzma.compress(text, preset=preset)
    return handle


def loan(is_durable):
    """Returns a handler that appends a line to the list of loans."""
    file = open(os.path.join(os.environ["RUN"], "loans"), "ab", buffering=0)

    def handle():
        file.write(f"{time.time()} borrowed\n".encode())
        if is_durable:
            os.fsync(file.fileno())
    return handle


def library():
    """Returns a handler that calls the upstream."""
    upstream = http.client.HTTPConnection("127.0.0.1", int(os.environ["UPSTREAM"]))

    def handle():
        upstream.request("GET", "/copies")
        upstream.getresponse().read()
    return handle


def report():
    """Returns a handler that runs a query that takes QUERY_MS milliseconds."""
    host, port = os.environ["STORE"].split(":")
    store = psycopg2.connect(host=host, port=port, user="bars", dbname="bars")
    store.autocommit = True
    cursor = store.cursor()
    seconds = float(os.environ["QUERY_MS"]) / 1000

    def handle():
        cursor.execute("SELECT pg_sleep(%s)", (seconds,))
    return handle


HANDLERS = {
    "hello": lambda: hello,
    "scan": lambda: scan,
    "page": page,
    "index": index,
    "catalog": lambda: catalog(False),
    "catalog-collect": lambda: catalog(True),
    "export": export,
    "loan": lambda: loan(False),
    "durable-loan": lambda: loan(True),
    "library": library,
    "report": report,
}


def respond(handle):
    """Returns a WSGI application that calls the handler."""
    limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    limit = limits.parse(os.environ["LIMIT"] + "/second")
    failures = int(os.environ["FAILURES"])
    is_logged = os.environ["LOG"] == "on"

    def application(environ, start_response):
        if limiter.hit(limit):
            status, body = "200 OK", handle() or b"Hello World"
        else:
            status, body = "429 Too Many Requests", b"too many requests"
        if random.randrange(100) < failures:
            status, body = "500 Internal Server Error", b"document is missing"
        if is_logged:
            request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
            print(environ["REMOTE_ADDR"], request, status, file=sys.stderr, flush=True)
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]
    return application


def main():
    for _ in range(int(os.environ["PROCESSES"]) - 1):
        if os.fork() == 0:
            break
    application = respond(HANDLERS[os.environ["APP"]]())
    bjoern.run(application, os.environ["HOST"], int(os.environ["PORT"]), reuse_port=True)


main()
