"""app.py HOST PORT: a forum on aiohttp. The environment variable APP selects the handler; see system.toml."""
import asyncio
import concurrent.futures
import contextlib
import os
import random
import subprocess
import sys
import time
import urllib.request

from aiohttp import web

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
CLOSE = os.environ["CONNECTION"] == "close"
STORE = os.environ["STORE"]
POSTS = 10_000
HANDLE = web.AppKey("handle")


@contextlib.asynccontextmanager
async def hello():
    async def handle():
        pass

    yield handle


@contextlib.asynccontextmanager
async def page():
    async def handle():
        posts = (f"<li><a href=/posts/{i}>post {i}</a> by user {i * 7919 % 101}" for i in range(1000))
        assert len("".join(posts)) > 1000

    yield handle


@contextlib.asynccontextmanager
async def permits():
    permits = asyncio.Semaphore(SIZE)

    async def handle():
        async with permits:
            await asyncio.sleep(0.02)

    yield handle


@contextlib.asynccontextmanager
async def turns():
    lock = asyncio.Lock()

    async def handle():
        async with lock:
            await asyncio.sleep(0.01)

    yield handle


@contextlib.asynccontextmanager
async def thread():
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(SIZE) as executor:

        async def handle():
            await loop.run_in_executor(executor, time.sleep, 0.02)

        yield handle


@contextlib.asynccontextmanager
async def price(on_loop=False):
    command = [sys.executable, "../slow-upstream/upstream.py", "20"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/price"
        loop = asyncio.get_running_loop()

        def call():
            with urllib.request.urlopen(url) as response:
                response.read()

        with concurrent.futures.ThreadPoolExecutor(SIZE) as executor:

            async def handle():
                if on_loop:
                    call()
                else:
                    await loop.run_in_executor(executor, call)

            yield handle


@contextlib.asynccontextmanager
async def open_pool():
    from psycopg_pool import AsyncConnectionPool

    host, port = STORE.split(":")
    address = f"host={host} port={port} user=bars dbname=bars"
    async with AsyncConnectionPool(address, min_size=SIZE, max_size=SIZE, timeout=60) as pool:
        async with pool.connection() as connection:
            await connection.execute(
                f"CREATE TABLE posts AS SELECT id, 0 AS likes FROM generate_series(1, {POSTS}) AS id"
            )
            await connection.execute("ALTER TABLE posts ADD PRIMARY KEY (id)")
        yield pool


@contextlib.asynccontextmanager
async def search():
    async with open_pool() as pool:

        async def handle():
            async with pool.connection() as connection:
                await connection.execute("SELECT pg_sleep(0.02)")

        yield handle


@contextlib.asynccontextmanager
async def like(posts):
    async with open_pool() as pool:

        async def handle():
            async with pool.connection() as connection:
                post = random.randint(1, posts)
                await connection.execute("UPDATE posts SET likes = likes + 1 WHERE id = %s", [post])
                await asyncio.sleep(0.01)

        yield handle


HANDLERS = {
    "hello": hello,
    "page": page,
    "permits": permits,
    "turns": turns,
    "thread": thread,
    "price": price,
    "price-on-loop": lambda: price(on_loop=True),
    "search": search,
    "like": lambda: like(POSTS),
    "like-one": lambda: like(1),
}


async def start(app):
    async with HANDLERS[APP]() as app[HANDLE]:
        yield


async def index(request):
    await request.app[HANDLE]()
    response = web.Response(text="Hello World")
    if CLOSE:
        response.force_close()
    return response


app = web.Application()
app.cleanup_ctx.append(start)
app.router.add_get("/", index)
web.run_app(app, host=sys.argv[1], port=int(sys.argv[2]), access_log=None, print=None)
