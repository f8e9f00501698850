"""Networks that can be broken: a TCP proxy whose connections are reset or held, and a cable between two network namespaces.

    with Proxy("127.0.0.1:7077") as proxy:     connect to proxy.address
        proxy.reset()                          every connection gets a TCP reset
        proxy.reset_after(1 << 20)             when another MiB has come from the target
        proxy.hold(); proxy.release()          nothing goes through, and nobody is told
    with Cable() as cable:
        [*cable.inside("trainer"), "python", "train_trainer.py"]
        cable.cut(); cable.join()

A proxy is one thread of this process. A cable is two processes that hold the namespaces and end with this process, so that nothing has to
be removed: with its last process a namespace goes, and the cable with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Coroutine
from typing import Any

CHUNK = 1 << 18
LIMIT_S = 30.0


class Proxy:
    """Passes connections on to one address."""

    def __init__(self, target: str) -> None:
        """Listens on a free port of 127.0.0.1 as long as the proxy is open."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.StreamWriter] = set()
        self._fuse: int | None = None  # bytes from the target until a reset
        self._open = asyncio.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> int:
        """Reset all connections; returns how many there were."""
        return int(self._do(self._reset())) // 2

    def reset_after(self, count: int) -> None:
        """Reset all connections, once, when so many bytes more have come from the target."""
        self._fuse = count

    def hold(self) -> None:
        """From now on nothing goes through, and connections stay as they are."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        """Let everything through again."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """Reset what is left and stop listening."""
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _reset(self) -> int:
        count = len(self._connections)
        for writer in self._connections:
            connection: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # it may have ended by itself
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._connections.clear()
        return count

    async def _stop(self) -> None:
        self._server.close()
        await self._reset()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:  # the worker isn't there: nor is this one
            writer.transport.abort()
            return
        pair = {writer, back}
        self._connections |= pair
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer, fused=True))
        finally:
            self._connections -= pair
            for each in pair:
                each.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, fused: bool = False) -> None:
        with contextlib.suppress(OSError):  # reset, by either side or by us: the other direction ends too
            while chunk := await reader.read(CHUNK):
                await self._open.wait()
                if fused and self._fuse is not None:
                    self._fuse -= len(chunk)
                    if self._fuse < 0:
                        self._fuse = None
                        await self._reset()
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()
            return
        writer.transport.abort()


class CableError(Exception):
    """This system makes no network namespaces; the message is one line."""


ADDRESSES = {"trainer": "10.254.7.1", "worker": "10.254.7.2"}
# What a command starts with to get a network of its own, in which it may do everything.
OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
_HOLD = ("sh", "-c", "echo; exec cat")


class Cable:
    """Two network namespaces, "trainer" and "worker", with a cable between them. Needs `unshare`, `nsenter` and `ip`, not root."""

    def __init__(self, *, here: bool = False) -> None:
        """With `here` the trainer's is the one that this process runs in. CableError when the system doesn't allow it."""
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._join_user: tuple[str, ...] = () if here else ("--user", "--preserve-credentials")
        try:
            if not here:
                self._hold("trainer", *OWN_NETWORK, *_HOLD)
            self._hold("worker", *self._prefix("trainer", *self._join_user), "unshare", "--net", *_HOLD)
            self._ip("trainer", "link", "add", "trainer", "type", "veth", "peer", "worker", "netns", str(self._holders["worker"].pid))
            for side, address in ADDRESSES.items():
                self._ip(side, "address", "add", f"{address}/24", "dev", side)
                self._ip(side, "link", "set", "lo", "up")
                self._ip(side, "link", "set", side, "up")
        except (OSError, CableError) as error:
            self.close()
            raise CableError(f"no network namespaces here: {error}") from None

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def inside(self, side: str) -> tuple[str, ...]:
        """What a command starts with to run in the namespace; it keeps its process id."""
        return self._prefix(side, *self._join_user, "--net")

    def cut(self) -> None:
        """Packets are lost from now on, in both directions; nobody gets an error."""
        self._ip("worker", "link", "set", "worker", "down")

    def join(self) -> None:
        """Packets arrive again."""
        self._ip("worker", "link", "set", "worker", "up")

    def shape(self, megabits: int) -> None:
        """Let no more than so many megabits a second through, from the worker to the trainer. Needs `tc`."""
        command = ["tc", "qdisc", "replace", "dev", "worker", "root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms"]
        self._run("worker", *command)

    def close(self) -> None:
        """Give up the namespaces; they go when what runs in them has ended."""
        for holder in self._holders.values():
            assert holder.stdin is not None and holder.stdout is not None
            holder.stdin.close()
            holder.stdout.close()
            holder.wait(LIMIT_S)

    def _prefix(self, side: str, *namespaces: str) -> tuple[str, ...]:
        holder = self._holders.get(side)
        return () if holder is None else ("nsenter", "--target", str(holder.pid), *namespaces)

    def _hold(self, side: str, *command: str) -> None:
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._holders[side] = holder
        assert holder.stdout is not None and holder.stderr is not None
        with holder.stderr:
            if holder.stdout.readline() != b"\n":
                raise CableError(holder.stderr.read().decode(errors="replace").strip() or "no answer")

    def _ip(self, side: str, *arguments: str) -> None:
        self._run(side, "ip", *arguments)

    def _run(self, side: str, *command: str) -> None:
        ended = subprocess.run([*self.inside(side), *command], capture_output=True, text=True, timeout=LIMIT_S)
        if ended.returncode != 0:
            raise CableError(f"{' '.join(command)}: {ended.stderr.strip()}")
