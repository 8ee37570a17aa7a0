"""A server that is far away: delay.py PORT SERVER_PORT SECONDS passes connections on, and every reply begins later."""

from __future__ import annotations

import asyncio
import sys


async def serve(at: int, server: int, seconds: float) -> None:
    async def connected(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        reader, to_server = await asyncio.open_connection("127.0.0.1", server)
        asked = asyncio.Event()

        async def requests() -> None:
            try:
                while part := await client.read(1 << 16):
                    asked.set()
                    to_server.write(part)
            finally:
                to_server.close()

        async def replies() -> None:
            try:
                while part := await reader.read(1 << 20):
                    if asked.is_set():  # its first bytes
                        asked.clear()
                        await asyncio.sleep(seconds)
                    to_client.write(part)
                    await to_client.drain()
            finally:
                to_client.close()

        await asyncio.gather(requests(), replies(), return_exceptions=True)

    async with await asyncio.start_server(connected, "127.0.0.1", at) as proxy:
        await proxy.serve_forever()


asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
