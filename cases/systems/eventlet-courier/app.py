"""app.py HOST PORT: parcel tracking on Eventlet. The environment variable APP selects the handler; see system.toml."""
import os
import subprocess
import sys
import time

import eventlet
import eventlet.pools
import eventlet.semaphore
import eventlet.tpool
import eventlet.wsgi
from eventlet.green.http import client

APP = os.environ["APP"]


def hello():
    return lambda: None


def sleep():
    return lambda: eventlet.sleep(0.02)


def page():
    def handle():
        parcels = (f"<li><a href=/parcels/{i}>parcel {i}</a>: {i * 7919 % 101} km to go" for i in range(1000))
        assert len("".join(parcels)) > 1000

    return handle


def permits():
    permits = eventlet.semaphore.Semaphore(int(os.environ["PERMITS"]))

    def handle():
        with permits:
            eventlet.sleep(0.02)

    return handle


def label():
    return lambda: eventlet.tpool.execute(time.sleep, 0.05)


def route():
    command = [sys.executable, "../slow-upstream/upstream.py", "20"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = f"127.0.0.1:{process.stdout.readline().strip()}"
    pool = eventlet.pools.Pool(max_size=int(os.environ["POOL"]), create=lambda: client.HTTPConnection(address))

    def handle():
        with pool.item() as connection:
            connection.request("GET", "/route")
            connection.getresponse().read()

    return handle


HANDLERS = {"hello": hello, "sleep": sleep, "page": page, "permits": permits, "label": label, "route": route}
handle = HANDLERS[APP]()


def application(environ, start_response):
    handle()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "11")])
    return [b"Hello World"]


eventlet.wsgi.server(
    eventlet.listen((sys.argv[1], int(sys.argv[2])), backlog=1024),
    application,
    max_size=int(os.environ["MAX_SIZE"]),
    keepalive=os.environ["KEEPALIVE"] == "true",
    log_output=os.environ["LOG"] == "on",
)
