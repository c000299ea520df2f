"""An upstream process: responds to each line after a delay. It prints its port and ends when its stdin is closed."""
import asyncio
import sys

after = float(sys.argv[1]) / 1000


class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if after:
            asyncio.get_running_loop().call_later(after, self.transport.write, b"answer\n")
        else:
            self.transport.write(b"answer\n")


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answers, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
