"""A small Starlette application. The environment variable APP selects the handler; see system.toml."""
import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request

import aiohttp
import anyio.to_thread
import asyncpg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.routing import Route

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
POOL = int(os.environ["POOL"])
STORE = os.environ["STORE"]
RUN = os.environ["RUN"]


@contextlib.contextmanager
def upstream():
    """Starts the upstream, which responds after 50 ms, and yields its URL."""
    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/price"


def http_client():
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=POOL), raise_for_status=True
    )


@contextlib.asynccontextmanager
async def hello():
    async def handle():
        pass

    yield handle


@contextlib.asynccontextmanager
async def sleep():
    async def handle():
        await asyncio.sleep(0.01)

    yield handle


@contextlib.asynccontextmanager
async def login():
    async def handle():
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 6_000)

    yield handle


@contextlib.asynccontextmanager
async def lock():
    token = asyncio.Lock()

    async def handle():
        async with token:
            await asyncio.sleep(0.01)

    yield handle


@contextlib.asynccontextmanager
async def semaphore():
    slots = asyncio.Semaphore(SIZE)

    async def handle():
        async with slots:
            await asyncio.sleep(0.05)

    yield handle


@contextlib.asynccontextmanager
async def queue():
    jobs = asyncio.Queue()

    async def work():
        while True:
            done = await jobs.get()
            await asyncio.sleep(0.02)
            done.set_result(None)

    async def handle():
        done = asyncio.get_running_loop().create_future()
        jobs.put_nowait(done)
        await done

    workers = [asyncio.create_task(work()) for _ in range(SIZE)]
    yield handle
    for worker in workers:
        worker.cancel()


@contextlib.asynccontextmanager
async def threads():
    # Starlette runs endpoints that are not async functions in these threads.
    anyio.to_thread.current_default_thread_limiter().total_tokens = SIZE

    async def handle():
        await run_in_threadpool(time.sleep, 0.1)

    yield handle


@contextlib.asynccontextmanager
async def http():
    with upstream() as url:
        async with http_client() as client:

            async def handle():
                async with client.get(url) as response:
                    await response.read()

            yield handle


@contextlib.asynccontextmanager
async def limited_http():
    slots = asyncio.Semaphore(SIZE)
    with upstream() as url:
        async with http_client() as client:

            async def handle():
                async with slots, client.get(url) as response:
                    await response.read()

            yield handle


@contextlib.asynccontextmanager
async def blocking_http():
    with upstream() as url:

        async def handle():
            with urllib.request.urlopen(url) as response:
                response.read()

        yield handle


@contextlib.asynccontextmanager
async def query():
    host, port = STORE.split(":")
    address = {"host": host, "port": int(port), "user": "bars", "database": "bars"}
    async with asyncpg.create_pool(**address, min_size=POOL, max_size=POOL) as pool:

        async def handle():
            async with pool.acquire() as connection:
                await connection.execute("SELECT pg_sleep(0.02)")

        yield handle


@contextlib.asynccontextmanager
async def save(durable=False):
    path = os.path.join(RUN, "state.json")
    folder = os.open(RUN, os.O_RDONLY)

    async def handle():
        with open(path + ".new", "w") as file:
            json.dump({"last": time.time()}, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(path + ".new", path)
        if durable:
            os.fsync(folder)

    yield handle
    os.close(folder)


def durable_save():
    return save(durable=True)


HANDLERS = {
    "hello": hello,
    "sleep": sleep,
    "login": login,
    "lock": lock,
    "semaphore": semaphore,
    "queue": queue,
    "threads": threads,
    "http": http,
    "limited-http": limited_http,
    "blocking-http": blocking_http,
    "query": query,
    "save": save,
    "durable-save": durable_save,
}


@contextlib.asynccontextmanager
async def lifespan(app):
    async with HANDLERS[APP]() as handle:
        app.state.handle = handle
        yield


async def index(request):
    await request.app.state.handle()
    return PlainTextResponse("Hello World")


app = Starlette(routes=[Route("/", index)], lifespan=lifespan)
