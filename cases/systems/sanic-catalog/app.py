"""A small Sanic application. The environment variable APP selects the handler; see system.toml."""
import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import time

from sanic import Sanic
from sanic.response import text

APP = os.environ["APP"]
POOL = int(os.environ["POOL"])
STORE = os.environ["STORE"]
RUN = os.environ["RUN"]


@contextlib.asynccontextmanager
async def hello():
    async def handle():
        pass

    yield handle


@contextlib.asynccontextmanager
async def page():
    async def handle():
        rows = (f"<tr><td>{i}<td>item {i}<td>{i * 1.25:.2f}" for i in range(1000))
        assert len("".join(rows)) > 1000

    yield handle


@contextlib.asynccontextmanager
async def login():
    async def handle():
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 10_000)

    yield handle


@contextlib.asynccontextmanager
async def slots():
    slots = asyncio.Semaphore(POOL)

    async def handle():
        async with slots:
            await asyncio.sleep(0.02)

    yield handle


@contextlib.asynccontextmanager
async def price():
    import httpx

    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/price"
        limits = httpx.Limits(max_connections=POOL, max_keepalive_connections=POOL)
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:

            async def handle():
                (await client.get(url)).raise_for_status()

            yield handle


@contextlib.asynccontextmanager
async def report():
    import asyncpg

    host, port = STORE.split(":")
    address = {"host": host, "port": int(port), "user": "bars", "database": "bars"}
    async with asyncpg.create_pool(**address, min_size=POOL, max_size=POOL) as pool:

        async def handle():
            async with pool.acquire() as connection:
                await connection.execute("SELECT pg_sleep(0.02)")

        yield handle


@contextlib.asynccontextmanager
async def journal(durable=False):
    with open(os.path.join(RUN, "journal"), "a") as lines:

        async def handle():
            for line in ("order received", "item reserved", "order confirmed"):
                lines.write(f"{time.time()} {line}\n")
                lines.flush()
                if durable:
                    os.fsync(lines.fileno())

        yield handle


HANDLERS = {
    "hello": hello,
    "page": page,
    "login": login,
    "slots": slots,
    "price": price,
    "report": report,
    "journal": journal,
    "durable-journal": lambda: journal(durable=True),
}

app = Sanic("catalog")


@app.before_server_start
async def start(app):
    app.ctx.stack = contextlib.AsyncExitStack()
    app.ctx.handle = await app.ctx.stack.enter_async_context(HANDLERS[APP]())


@app.after_server_stop
async def stop(app):
    await app.ctx.stack.aclose()


@app.get("/")
async def index(request):
    await app.ctx.handle()
    return text("Hello World")
