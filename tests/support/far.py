"""A server that is far away: passes connections on to another port of this machine, each byte later.

far.py PORT MILLISECONDS [WINDOW]   prints its own port, then serves until it is killed

An answer comes MILLISECONDS later, and the first one of a connection as much again, as if it had to be made over that
distance. In each direction of a connection at most WINDOW bytes are on their way (4194304).
"""

from __future__ import annotations

import asyncio
import collections
import sys

PIECE = 256 << 10


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: float, delay: float, window: int):
    """Copies one direction; every byte waits for `delay`, those of the first piece for `first`."""
    loop = asyncio.get_running_loop()
    under_way: collections.deque[tuple[float, bytes]] = collections.deque()
    length, is_over, moved = 0, False, asyncio.Event()

    async def deliver() -> None:
        nonlocal length
        try:
            while under_way or not is_over:
                if not under_way:
                    moved.clear()
                    await moved.wait()
                    continue
                due, piece = under_way[0]
                await asyncio.sleep(due - loop.time())
                writer.write(piece)
                await writer.drain()
                under_way.popleft()
                length -= len(piece)
                moved.set()
        except ConnectionError:
            pass  # Either side may leave at any time.
        finally:
            writer.close()
            moved.set()

    delivery = asyncio.create_task(deliver())
    wait = first
    try:
        while not delivery.done() and (piece := await reader.read(PIECE)):
            under_way.append((loop.time() + wait, piece))
            length, wait = length + len(piece), delay
            moved.set()
            while length >= window and not delivery.done():
                moved.clear()
                await moved.wait()
    except ConnectionError:
        pass
    is_over = True
    moved.set()
    await delivery


async def main(port: int, delay: float, window: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port, limit=PIECE)
        there = carry(reader, to_writer, 1.5 * delay, delay / 2, window)
        back = carry(to_reader, writer, delay / 2, delay / 2, window)
        await asyncio.gather(there, back)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=PIECE)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    port, milliseconds, window = [*map(int, sys.argv[1:]), 4 << 20][:3]
    asyncio.run(main(port, milliseconds / 1000, window))
