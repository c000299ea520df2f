"""A small Flask application. The environment variable APP selects the handler; see system.toml."""
import logging
import os
import random
import subprocess
import sys
import threading
import time

import psycopg_pool
import urllib3
from flask import Flask

APP = os.environ["APP"]
POOL = int(os.environ["POOL"])
STORE = os.environ["STORE"]
RUN = os.environ["RUN"]
ROWS = 100_000


def upstream():
    """Starts the upstream, which responds after 50 ms, and returns a function that calls it."""
    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/price"
    http = urllib3.PoolManager(maxsize=64)
    # Keep a reference to the process, because it ends when its stdin is closed.
    return lambda: process and http.request("GET", url).data


def store():
    """Returns a pool of connections to a database with the table entries."""
    host, port = STORE.split(":")
    url = f"postgresql://bars@{host}:{port}/bars"
    pool = psycopg_pool.ConnectionPool(url, min_size=POOL, max_size=POOL, timeout=60, open=True)
    with pool.connection() as connection:
        connection.execute(
            f"CREATE TABLE entries AS SELECT id, id AS code, 0 AS hits FROM generate_series(1, {ROWS}) AS id"
        )
        connection.execute("ALTER TABLE entries ADD PRIMARY KEY (id)")
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE entries")
        connection.autocommit = False
    return pool


def hello():
    return lambda: None


def sleep():
    return lambda: time.sleep(0.05)


def short_sleep():
    return lambda: time.sleep(0.01)


def lock():
    busy = threading.Lock()

    def handle():
        with busy:
            time.sleep(0.01)

    return handle


def upstream_sleep():
    call = upstream()

    def handle():
        call()
        time.sleep(0.02)

    return handle


def upstream_lock():
    call = upstream()
    busy = threading.Lock()

    def handle():
        call()
        with busy:
            time.sleep(0.02)

    return handle


class DurableHandler(logging.FileHandler):
    """Writes each line to the disk at once."""

    def emit(self, record):
        super().emit(record)
        os.fsync(self.stream.fileno())


def log(handler=logging.FileHandler):
    logger = logging.getLogger("audit")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler(os.path.join(RUN, "audit.log")))

    def handle():
        logger.info("request GET /")
        logger.info("user 1 is allowed")
        logger.info("response 200")

    return handle


def durable_log():
    return log(DurableHandler)


def query(statement, *choices):
    pool = store()

    def handle():
        with pool.connection() as connection:
            connection.execute(statement, [random.choice(column) for column in choices])

    return handle


def slow_query():
    return query("SELECT pg_sleep(0.02)")


def find_by_id():
    return query("SELECT id FROM entries WHERE id = %s", range(1, ROWS))


def find_by_code():
    # The column code has no index.
    return query("SELECT id FROM entries WHERE code = %s", range(1, ROWS))


def count(rows):
    pool = store()

    def handle():
        with pool.connection() as connection:
            connection.execute(
                "UPDATE entries SET hits = hits + 1 WHERE id = %s", [random.choice(rows)]
            )
            time.sleep(0.01)

    return handle


def count_one():
    return count([1])


def count_many():
    return count(range(1, ROWS))


HANDLERS = {
    "hello": hello,
    "sleep": sleep,
    "short-sleep": short_sleep,
    "lock": lock,
    "upstream": upstream,
    "upstream-sleep": upstream_sleep,
    "upstream-lock": upstream_lock,
    "log": log,
    "durable-log": durable_log,
    "slow-query": slow_query,
    "find-by-id": find_by_id,
    "find-by-code": find_by_code,
    "count-one": count_one,
    "count-many": count_many,
}

app = Flask(__name__)
handle = HANDLERS[APP]()


@app.get("/")
def index():
    handle()
    return "Hello World", {"Content-Type": "text/plain"}
