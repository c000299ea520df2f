"""A small WSGI application without a framework. APP selects what a request does; see system.toml."""
import hashlib
import http.client
import os
import random
import threading
import time

APP = os.environ["APP"]
ROWS = 1000
thread = threading.local()


def hello():
    pass


def sleep():
    time.sleep(0.05)


def short_sleep():
    time.sleep(0.01)


def lock():
    import uwsgi

    # This lock of uWSGI works across processes.
    uwsgi.lock(1)
    try:
        time.sleep(0.01)
    finally:
        uwsgi.unlock(1)


def login():
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 6_000)


def upstream():
    # Keep one connection per thread.
    if not hasattr(thread, "upstream"):
        with open("port") as port:
            thread.upstream = http.client.HTTPConnection("127.0.0.1", int(port.read()))
    thread.upstream.request("GET", "/price")
    thread.upstream.getresponse().read()


def connect():
    import psycopg2

    host, port = os.environ["STORE"].split(":")
    return psycopg2.connect(host=host, port=port, user="bars", dbname="bars")


def count(row):
    # Keep one connection per process.
    if not hasattr(thread, "store"):
        thread.store = connect()
    with thread.store, thread.store.cursor() as cursor:
        cursor.execute("UPDATE counters SET hits = hits + 1 WHERE id = %s", [row])
        time.sleep(0.01)


def count_one():
    count(1)


def count_many():
    count(random.randint(1, ROWS))


HANDLERS = {
    "hello": hello,
    "sleep": sleep,
    "short-sleep": short_sleep,
    "lock": lock,
    "login": login,
    "upstream": upstream,
    "count-one": count_one,
    "count-many": count_many,
}
handle = HANDLERS[APP]


def application(environ, start_response):
    handle()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "11")])
    return [b"Hello World"]


if __name__ == "__main__":
    # start.sh creates the table that the handlers count-one and count-many use.
    store = connect()
    store.autocommit = True
    with store.cursor() as cursor:
        cursor.execute(f"CREATE TABLE counters AS SELECT id, 0 AS hits FROM generate_series(1, {ROWS}) AS id")
        cursor.execute("ALTER TABLE counters ADD PRIMARY KEY (id)")
        cursor.execute("VACUUM ANALYZE counters")
