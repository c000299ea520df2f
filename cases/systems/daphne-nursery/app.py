"""Plant nursery on Litestar and Daphne. APP selects the handler; see system.toml."""
import asyncio
import contextlib
import gc
import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import jinja2
import psycopg_pool
import tenacity
from litestar import Litestar, MediaType, get
from litestar.concurrency import set_asyncio_executor

APP = os.environ["APP"]
UPSTREAM_CONNECTIONS = int(os.environ["UPSTREAM_CONNECTIONS"])


def label():
    """Prints a label, which takes 20 ms."""
    time.sleep(0.02)


def courier():
    """Returns a handler that books a courier in 20 ms, after FAILURES failed attempts."""

    def book():
        attempts = 0

        @tenacity.retry(wait=tenacity.wait_fixed(0.08))
        def attempt():
            nonlocal attempts
            attempts += 1
            if attempts <= int(os.environ["FAILURES"]):
                raise ConnectionError("the courier does not respond")
            time.sleep(0.02)

        attempt()

    return book


def login():
    """Hashes a password outside of Python's global interpreter lock."""
    hashlib.pbkdf2_hmac("sha512", b"password", b"salt", 15000)


def catalogue():
    """Returns a handler that renders a catalogue of 300 plants."""
    template = jinja2.Environment(autoescape=True).from_string(
        "<ul>{% for plant in plants %}<li>{{ plant.name }}, {{ plant.height | round(1) }} m{% endfor %}</ul>"
    )
    plants = [{"name": f"plant <{i}>", "height": i * 7919 % 60 / 7} for i in range(300)]

    async def handle():
        assert len(template.render(plants=plants)) > 1000

    return handle


def beds(collects):
    """Returns a handler that plans 100 plants for the 300,000 that stand in the beds."""
    planted = [{"plant": str(i)} for i in range(300_000)]
    handled = 0

    async def handle():
        nonlocal handled
        handled += 1
        plan = [{"plant": planted[i]} for i in range(100)]
        assert len(plan) == 100
        if collects and handled % 10 == 0:
            gc.collect()

    return handle


def greenhouse(lock):
    """Returns a handler that reads a thermometer in 10 ms."""

    async def handle():
        async with lock:
            await asyncio.sleep(0.01)

    return handle


def orders():
    """Returns a handler that runs a query that takes 20 ms."""
    host, port = os.environ["STORE"].split(":")
    size = int(os.environ["POOL"])
    pool = psycopg_pool.AsyncConnectionPool(
        f"host={host} port={port} user=bars dbname=bars", min_size=size, max_size=size, open=False
    )

    async def handle():
        # Daphne sends no lifespan events, so the first request opens the pool.
        await pool.open()
        async with pool.connection() as connection:
            await connection.execute("SELECT pg_sleep(0.02)")

    return handle


def start_upstream():
    """Starts the supplier and returns its URL."""
    command = [sys.executable, "../slow-upstream/upstream.py", os.environ["UPSTREAM_MS"]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return f"http://127.0.0.1:{process.stdout.readline().strip()}/price"


def supplier():
    """Returns a handler that calls the supplier."""
    url = start_upstream()
    limits = httpx.Limits(max_connections=UPSTREAM_CONNECTIONS)
    client = httpx.AsyncClient(limits=limits, timeout=30, trust_env=False)

    async def handle():
        assert (await client.get(url)).text == "price"

    return handle


def supplier_blocking():
    """Returns a handler that calls the supplier and blocks the event loop."""
    url = start_upstream()
    client = httpx.Client(trust_env=False)

    async def handle():
        assert client.get(url).text == "price"

    return handle


async def hello():
    """Does nothing."""


HANDLERS = {
    "hello": lambda: hello,
    "label": lambda: label,
    "courier": courier,
    "login": lambda: login,
    "catalogue": catalogue,
    "beds": lambda: beds(False),
    "beds-collect": lambda: beds(True),
    "greenhouse": lambda: greenhouse(contextlib.nullcontext()),
    "greenhouse-locked": lambda: greenhouse(asyncio.Lock()),
    "orders": orders,
    "supplier": supplier,
    "supplier-blocking": supplier_blocking,
}
work = HANDLERS[APP]()

if asyncio.iscoroutinefunction(work):

    @get("/", media_type=MediaType.TEXT)
    async def index() -> str:
        await work()
        return "Hello World"

else:
    set_asyncio_executor(ThreadPoolExecutor(int(os.environ["THREADS"])))

    @get("/", media_type=MediaType.TEXT, sync_to_thread=True)
    def index() -> str:
        work()
        return "Hello World"


app = Litestar([index], openapi_config=None, logging_config=None)
