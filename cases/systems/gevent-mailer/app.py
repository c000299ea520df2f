"""A small WSGI application on gevent. The environment variable APP selects the handler; see system.toml."""
import itertools
import os
import sys
import time

import gevent
import gevent.pool
import gevent.pywsgi
import gevent.queue
import gevent.socket

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
STORE = os.environ["STORE"]
ROWS = 10_000


def hello():
    return lambda: None


def sleep():
    return lambda: gevent.sleep(0.02)


def thread_call():
    threads = gevent.get_hub().threadpool
    threads.maxsize = SIZE
    return lambda: threads.apply(time.sleep, (0.05,))


def wait(connection):
    """Lets other greenlets run until PostgreSQL has responded."""
    from psycopg2 import extensions

    while (state := connection.poll()) != extensions.POLL_OK:
        if state == extensions.POLL_READ:
            gevent.socket.wait_read(connection.fileno())
        elif state == extensions.POLL_WRITE:
            gevent.socket.wait_write(connection.fileno())


def open_store(cooperative=True):
    """Returns a queue of SIZE free connections to a database with the table mails."""
    import psycopg2

    if cooperative:
        psycopg2.extensions.set_wait_callback(wait)
    host, port = STORE.split(":")
    free = gevent.queue.LifoQueue()
    for _ in range(SIZE):
        free.put(psycopg2.connect(host=host, port=port, user="bars", dbname="bars"))
    store = free.get()
    with store, store.cursor() as cursor:
        cursor.execute(f"CREATE TABLE mails AS SELECT id, 0 AS sent FROM generate_series(1, {ROWS}) AS id")
        cursor.execute("ALTER TABLE mails ADD PRIMARY KEY (id)")
    free.put(store)
    return free


def query(cooperative):
    free = open_store(cooperative)

    def handle():
        store = free.get()
        with store, store.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.02)")
        free.put(store)

    return handle


def send(rows):
    free = open_store()
    numbers = itertools.count()

    def handle():
        store = free.get()
        with store, store.cursor() as cursor:
            cursor.execute("UPDATE mails SET sent = sent + 1 WHERE id = %s", [1 + next(numbers) % rows])
            gevent.sleep(0.01)
        free.put(store)

    return handle


HANDLERS = {
    "hello": hello,
    "sleep": sleep,
    "thread-call": thread_call,
    "query": lambda: query(True),
    "blocking-query": lambda: query(False),
    "send": lambda: send(ROWS),
    "send-one": lambda: send(1),
}


def application(environ, start_response):
    handler()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "11")])
    return [b"Hello World"]


if __name__ == "__main__":
    handler = HANDLERS[APP]()
    gevent.pywsgi.WSGIServer(
        (sys.argv[1], int(sys.argv[2])),
        application,
        backlog=1024,
        spawn=gevent.pool.Pool(int(os.environ["GREENLETS"])),
        log="default" if os.environ["LOG"] == "on" else None,
    ).serve_forever()
