"""An HTTP upstream that responds to each request after a delay. It prints its port and ends when its stdin is closed.

Usage: upstream.py MILLISECONDS
"""
import asyncio
import sys

DELAY = float(sys.argv[1]) / 1000
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nprice"


class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.received = b""

    def data_received(self, data):
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            self.received = self.received[end + 4:]
            asyncio.get_running_loop().call_later(DELAY, self.transport.write, RESPONSE)


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
