"""A small Tornado application. The environment variable APP selects the handler; see system.toml."""
import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2
from tornado import web
from tornado.httpclient import AsyncHTTPClient

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
CLIENTS = int(os.environ["CLIENTS"])
STORE = os.environ["STORE"]
RUN = os.environ["RUN"]
EXECUTOR = ThreadPoolExecutor(SIZE)


def in_thread(call):
    return asyncio.get_running_loop().run_in_executor(EXECUTOR, call)


async def hello():
    pass


async def sleep():
    await asyncio.sleep(0.02)


async def executor():
    await in_thread(lambda: time.sleep(0.02))


def executor_lock():
    busy = threading.Lock()

    def call():
        with busy:
            time.sleep(0.02)

    async def handle():
        await in_thread(call)

    return handle


def price():
    """Calls an upstream that responds after 50 ms."""
    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/price"
    client = AsyncHTTPClient(max_clients=CLIENTS)

    async def handle():
        # Keep a reference to the process, because it ends when its stdin is closed.
        assert process.stdin
        await client.fetch(url)

    return handle


def query(on_loop):
    host, port = STORE.split(":")
    local = threading.local()

    def call():
        # Keep one connection per thread.
        if not hasattr(local, "store"):
            local.store = psycopg2.connect(host=host, port=port, user="bars", dbname="bars")
        with local.store, local.store.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.02)")

    async def handle():
        if on_loop:
            call()
        else:
            await in_thread(call)

    return handle


def audit(durable):
    log = open(os.path.join(RUN, "audit.log"), "a")

    async def handle():
        for line in ("request GET /", "user 1 is allowed", "response 200"):
            log.write(f"{time.time()} {line}\n")
            log.flush()
            if durable:
                os.fsync(log.fileno())

    return handle


HANDLERS = {
    "hello": lambda: hello,
    "sleep": lambda: sleep,
    "executor": lambda: executor,
    "executor-lock": executor_lock,
    "price": price,
    "query": lambda: query(False),
    "query-on-loop": lambda: query(True),
    "audit": lambda: audit(False),
    "durable-audit": lambda: audit(True),
}


class Index(web.RequestHandler):
    async def get(self):
        await self.application.settings["work"]()
        self.set_header("Content-Type", "text/plain")
        self.write("Hello World")


async def main():
    app = web.Application([("/", Index)], work=HANDLERS[APP](), log_function=lambda handler: None)
    app.listen(int(sys.argv[2]), address=sys.argv[1], backlog=1024)
    await asyncio.Event().wait()


asyncio.run(main())
