"""A bare gRPC byte stream in Python: what the benchmarks hold the split's own stream against.

    python tools/bare_stream.py serve
    python tools/bare_stream.py read 127.0.0.1:PORT --bytes 2000000000

The server sends the same bytes again and again, the client counts them: no other work is done on either side.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

SERVICE, METHOD = "bare.Stream", "Read"
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def serve(message: int) -> None:
    """Send as many messages as each request says, until SIGTERM."""
    payload = bytes(message)

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        for _ in range(int(request)):
            yield payload

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    rpc = grpc.server(ThreadPoolExecutor(max_workers=4), options=OPTIONS)
    rpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: grpc.unary_stream_rpc_method_handler(stream)}),))
    port = rpc.add_insecure_port("127.0.0.1:0")
    rpc.start()
    print(f"listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    rpc.stop(None)


def read(address: str, message: int, size: int) -> dict[str, float]:
    """Read at least `size` bytes, after a quarter of that to warm up; seconds and CPU seconds of this process."""
    messages = -(-size // message)
    with grpc.insecure_channel(address, OPTIONS) as channel:
        unary_stream: Any = channel.unary_stream  # typed as if it needed functions to serialize
        call = unary_stream(f"/{SERVICE}/{METHOD}")
        for _ in call(b"%d" % -(-messages // 4)):
            pass
        got, start, cpu = 0, time.perf_counter(), time.process_time()
        for part in call(b"%d" % messages):
            got += len(part)
        return {"bytes": got, "seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description="A bare gRPC byte stream.")
    parser.add_argument("--message", type=int, default=1 << 20, help="bytes of one message (default: 1 MiB)")
    roles = parser.add_subparsers(dest="role", required=True)
    roles.add_parser("serve")
    reader = roles.add_parser("read")
    reader.add_argument("address")
    reader.add_argument("--bytes", type=int, default=2_000_000_000)
    args = parser.parse_args()
    if args.role == "serve":
        serve(args.message)
    else:
        print(json.dumps(read(args.address, args.message, args.bytes)))


if __name__ == "__main__":
    main()
