"""A weather service on ASGI and Trio. The environment variable APP selects the handler; see system.toml."""
import contextlib
import os
import subprocess
import sys
import time

import httpx
import trio

APP = os.environ["APP"]
SIZE = int(os.environ["SIZE"])
BODY = b"Hello World"


@contextlib.asynccontextmanager
async def hello():
    async def handle():
        pass

    yield handle


@contextlib.asynccontextmanager
async def sleep():
    async def handle():
        await trio.sleep(0.02)

    yield handle


@contextlib.asynccontextmanager
async def sleep_on_loop():
    async def handle():
        time.sleep(0.02)

    yield handle


@contextlib.asynccontextmanager
async def turns():
    lock = trio.Lock()

    async def handle():
        async with lock:
            await trio.sleep(0.02)

    yield handle


@contextlib.asynccontextmanager
async def page():
    async def handle():
        rows = (f"<tr><td>{hour}<td>{hour * 37 % 41 - 10} °C<td>{hour * 13 % 1000} hPa" for hour in range(5000))
        assert len("".join(rows)) > 5000

    yield handle


@contextlib.asynccontextmanager
async def thread():
    limiter = trio.CapacityLimiter(SIZE)

    async def handle():
        await trio.to_thread.run_sync(time.sleep, 0.1, limiter=limiter)

    yield handle


@contextlib.asynccontextmanager
async def forecast():
    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/forecast"
        limits = httpx.Limits(max_connections=SIZE, max_keepalive_connections=SIZE)
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:

            async def handle():
                (await client.get(url)).raise_for_status()

            yield handle


HANDLERS = {
    "hello": hello,
    "sleep": sleep,
    "sleep-on-loop": sleep_on_loop,
    "turns": turns,
    "page": page,
    "thread": thread,
    "forecast": forecast,
}


async def app(scope, receive, send):
    global handle
    if scope["type"] == "lifespan":
        await receive()
        async with HANDLERS[APP]() as handle:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await handle()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"11")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
