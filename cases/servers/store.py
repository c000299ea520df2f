"""Stands behind a server: answers each line a time after it came, each connection on its own. It says its port and ends with its input."""
import asyncio
import socket
import sys

after = float(sys.argv[1]) / 1000


async def serve(reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while await reader.readline():
        await asyncio.sleep(after)
        writer.write(b"answer\n")
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
