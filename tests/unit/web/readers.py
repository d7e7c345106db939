"""Reads from many connections at once. Arguments: host, port, connections, rounds, paths."""

import asyncio
import json
import resource
import sys
import time


async def read(host: str, port: int, paths: list[str], everybody: asyncio.Barrier) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    await everybody.wait()
    seconds = []
    for path in paths:
        began = time.monotonic()
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200"), head
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        await reader.readexactly(length)
        seconds.append(time.monotonic() - began)
    writer.close()
    return seconds


async def main() -> None:
    host, port, connections, rounds, *paths = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    everybody = asyncio.Barrier(int(connections))
    chosen = [paths[i % len(paths)] for i in range(int(rounds))]
    began = time.monotonic()
    found = await asyncio.gather(
        *(read(host, int(port), chosen, everybody) for _ in range(int(connections)))
    )
    flat = sorted(second for each in found for second in each)
    print(json.dumps({"answers": len(flat), "seconds": time.monotonic() - began, "max": flat[-1]}))


asyncio.run(main())
