"""A small WSGI and ASGI application. The environment variable APP selects the handler; see system.toml."""
import asyncio
import concurrent.futures
import os
import random
import subprocess
import sys
import threading
import time

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
REUSE = os.environ["UPSTREAM_CONNECTION"] == "keep-alive"
STORE = os.environ["STORE"]
ROWS = 10_000
BODY = b"Hello World"
thread = threading.local()


def connect():
    import psycopg2

    host, port = STORE.split(":")
    return psycopg2.connect(host=host, port=port, user="bars", dbname="bars")


def pay(rows):
    # Keep one connection per thread.
    if not hasattr(thread, "store"):
        thread.store = connect()
    with thread.store, thread.store.cursor() as cursor:
        cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", [random.randint(1, rows)])
        time.sleep(0.01)


WSGI_HANDLERS = {
    "hello": lambda: None,
    "call": lambda: time.sleep(0.05),
    "pay": lambda: pay(ROWS),
    "pay-one": lambda: pay(1),
}


def wsgi(environ, start_response):
    WSGI_HANDLERS[APP]()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "11")])
    return [BODY]


async def hello():
    async def handle():
        pass

    return handle


async def timer():
    async def handle():
        await asyncio.sleep(0.02)

    return handle


async def to_thread():
    executor = concurrent.futures.ThreadPoolExecutor(SIZE)
    asyncio.get_running_loop().set_default_executor(executor)

    async def handle():
        await asyncio.to_thread(time.sleep, 0.05)

    return handle


async def price():
    """Calls an upstream that responds after 20 ms."""
    import aiohttp

    command = [sys.executable, "../slow-upstream/upstream.py", "20"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/price"
    connector = aiohttp.TCPConnector(limit=SIZE, force_close=not REUSE)
    client = aiohttp.ClientSession(connector=connector, raise_for_status=True)

    async def handle():
        # Keep a reference to the process, because it ends when its stdin is closed.
        assert process.stdin
        async with client.get(url) as response:
            await response.read()

    return handle


ASGI_HANDLERS = {"hello": hello, "timer": timer, "to-thread": to_thread, "price": price}


async def asgi(scope, receive, send):
    global handler
    if scope["type"] == "lifespan":
        await receive()
        handler = await ASGI_HANDLERS[APP]()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await handler()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"11")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    # start.sh creates the table that the handlers pay and pay-one use.
    with connect() as store, store.cursor() as cursor:
        cursor.execute(f"CREATE TABLE orders AS SELECT id, 0 AS amount FROM generate_series(1, {ROWS}) AS id")
        cursor.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
